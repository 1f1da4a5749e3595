// A consumer on node-postgres: DATABASE_URL=... QUEUE=... node consumer.js, until SIGTERM.
// One job at a time. Goes on duty, as "Being woken" in sql/README.md says. Node.js 20.3 on.
const { setTimeout: sleep } = require('node:timers/promises')
const { Client } = require('pg')

const { DATABASE_URL, QUEUE: queue = 'default', LEASE = '30' } = process.env
const lease = `${LEASE} seconds`
const POLL = 5000 // ms

const handlers = {
  async 'conformance.echo'({ payload }, signal) {
    await sleep(1000 * (payload.seconds ?? 0), null, { signal })
    return { number: payload.number, by: 'node' }
  },
  async 'conformance.fail_once'(job, signal) {
    if (job.attempt === 1) throw Object.assign(new Error('not yet'), { retryIn: '0 seconds' })
    return handlers['conformance.echo'](job, signal)
  },
  async 'conformance.fail'() {
    throw Object.assign(new Error('never'), { retryable: false })
  },
}

const stopping = new AbortController()
process.on('SIGTERM', () => stopping.abort())

// Runs a job; says how it ended. ask: runs a statement, gives its first value.
async function run(job, ask, lost) {
  const mine = [job.id, job.lease_id]
  const stop = new AbortController()
  const heartbeat = setInterval(async () => {
    const sql = 'select (pgwake.extend_leases(array[$1::bigint], array[$2::uuid], $3::interval))[1]'
    const outcome = await ask(sql, ...mine, lease).catch(() => 'lease_lost')
    if (outcome !== 'extended') stop.abort(outcome)
  }, (Number(LEASE) * 1000) / 3)
  let result, failure
  try {
    if (!handlers[job.kind]) throw new Error(`unknown kind ${job.kind}`)
    const signal = AbortSignal.any([stop.signal, stopping.signal, lost])
    result = await handlers[job.kind](job, signal)
  } catch (error) {
    failure = error
  }
  clearInterval(heartbeat)
  try {
    if (stop.signal.reason === 'lease_lost') return 'lost'
    if (!failure) {
      await ask('select pgwake.complete_job($1, $2, $3)', ...mine, JSON.stringify(result))
      return 'completed'
    }
    if (stopping.signal.aborted) {
      const sql = "select (pgwake.release_jobs(array[$1::bigint], array[$2::uuid], 'shutdown'))[1]"
      return await ask(sql, ...mine)
    }
    const { message, stack, retryIn, retryable = true } = failure
    const sql = 'select pgwake.fail_job($1, $2, $3, $4, retry_in => $5, retryable => $6)'
    return await ask(sql, ...mine, message, stack, retryIn, retryable)
  } catch (error) {
    if (error.code === 'PW002') return 'lost'
    throw error
  }
}

// Works until it is to stop; throws when the connection is lost.
async function work(client) {
  const rows = async (sql, values) => (await client.query(sql, values)).rows
  const ask = async (sql, ...values) => Object.values((await rows(sql, values))[0])[0]
  const lost = new AbortController()
  let onDuty = false, pause = 5, woken, wake
  const rouse = () => { woken = true; wake?.() }
  client.on('notification', ({ channel, payload }) => {
    if (payload === queue && (onDuty || channel === 'pgwake_baton')) rouse()
  })
  client.on('error', () => { lost.abort(); rouse() })
  stopping.signal.addEventListener('abort', rouse)

  await client.connect()
  await client.query('listen pgwake; listen pgwake_baton')
  console.log('ready')
  while (!stopping.signal.aborted) {
    woken = false
    const claim = 'select * from pgwake.claim_next_job($1, $2, $3)'
    const [job] = await rows(claim, [queue, `node-${process.pid}`, lease])
    if (job) {
      if (onDuty) onDuty = !(await ask('select pgwake.unpark($1)', queue))
      console.log(job.id, job.kind, await run(job, ask, lost.signal))
      pause = 5
    } else if (!onDuty && (onDuty = await ask('select pgwake.park($1)', queue))) {
      pause = 5 // and look once more
    } else {
      const due = 1000 * (await ask('select extract(epoch from pgwake.next_run_at($1) - now())', queue))
      const most = !onDuty ? POLL : due > 0 ? Math.min(due, pause) : pause
      if (!woken) await new Promise((done) => { wake = done; setTimeout(done, most) })
      pause = Math.min(2 * pause, POLL)
    }
  }
  if (onDuty) await ask('select pgwake.unpark($1)', queue)
}

async function main() {
  while (!stopping.signal.aborted) {
    const client = new Client({ connectionString: DATABASE_URL, keepAlive: true, query_timeout: 30_000 })
    try {
      await work(client)
    } catch (error) {
      console.error(error.message)
      await sleep(1000)
    } finally {
      client.end().catch(() => {})
    }
  }
  process.exit()
}

main()
