// What a handler of consumer.js needs to go on where it was: it begins at its first line again, and what is recorded
// under a name is answered. Where it leaves (hasLeft) the database has the sleep or wait: do nothing more.
module.exports = (job, client) => {
  const ask = async (sql, ...values) => (await client.query(sql, [job.id, job.lease_id, ...values])).rows[0]
  const leave = (outcome) => { throw Object.assign(new Error(outcome), { hasLeft: true }) }
  let recorded
  async function find(name) {
    const read = () => client.query('select name, result from pgwake.get_steps($1)', [job.id])
    recorded ??= job.options?.steps ? (await read()).rows : []
    return recorded.find((step) => step.name === name)
  }

  return {
    async step(name, call) { // at least once: give what it does elsewhere `${job.id}:${name}` as idempotency key
      const { result } = await find(name) ?? await ask(
        'select pgwake.record_step($1, $2, $3, $4) as result', name, JSON.stringify(await call()))
      return result
    },
    async write(name, statement, ...values) { // once: its parameters, from $4 on, and the record are one commit
      if (await find(name)) return
      await ask(`with written as (${statement}) select pgwake.record_step($1, $2, $3)`, name, ...values)
    },
    async sleep(name, interval) {
      const { outcome } = await ask(
        'select pgwake.sleep_job($1, $2, $3, pgwake.now() + $4::interval) as outcome', name, interval)
      if (outcome !== 'over') leave(outcome)
    },
    async waitFor(event, timeout) { // the event's payload; null, if the time is up
      const { outcome, result } = await ask('select * from pgwake.await_event($1, $2, $3, $4)', event, timeout)
      if (outcome === 'timed_out') return null
      return outcome === 'here' ? result : leave(outcome)
    },
  }
}
