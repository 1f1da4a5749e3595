// A consumer on node-postgres: DATABASE_URL=... QUEUE=... LEASE=... node consumer.js, until SIGTERM.
// Claims one job at a time, keeps its lease while it runs, and is on duty ("Being woken" in sql/CONSUMERS.md) between.
const { setTimeout: sleep } = require('node:timers/promises')
const { Client } = require('pg')
const handlers = require('./handlers')
const stepsOf = require('./steps')

const { DATABASE_URL, QUEUE: queue = 'default', LEASE: lease = '30' } = process.env // the lease in seconds
const name = `node-${process.pid}`
let stopping = false, wake = new AbortController()
process.on('SIGTERM', () => { stopping = true; wake.abort() })

async function run(job, ask, steps) { // says how it ended
  const mine = [job.id, job.lease_id]
  const keep = () => ask('pgwake.extend_leases(array[$1::bigint], array[$2::uuid], $3)', ...mine, lease)
  const heartbeat = setInterval(() => keep().catch(console.error), (1000 * lease) / 3)
  try {
    if (!handlers.has(job.kind)) throw new Error(`unknown kind ${job.kind}`)
    const result = await handlers.get(job.kind)(job.payload, job, steps)
    return await ask('pgwake.complete_job($1, $2, $3)', ...mine, JSON.stringify(result)) || 'completed'
  } catch ({ message, stack, retryIn, retryable = true, hasLeft }) {
    if (hasLeft) return message // it sleeps or waits
    return await ask('pgwake.fail_job($1, $2, $3, $4, $5, $6)', ...mine, message, stack, retryIn, retryable)
  } finally {
    clearInterval(heartbeat)
  }
}
const orLost = (error) => { if (error.code === 'PW002') return 'lost'; throw error } // somebody else has it

async function work(client) {
  const ask = async (call, ...values) => (await client.query(`select ${call} as answer`, values)).rows[0].answer
  let onDuty = false
  client.on('error', () => wake.abort()).on('notification', ({ channel, payload }) => {
    if (payload === queue && (onDuty || channel === 'pgwake_duty')) wake.abort()
  })
  await client.connect()
  await client.query('listen pgwake; listen pgwake_duty')
  console.log('ready')
  while (!stopping) {
    wake = new AbortController() // forgets what has been heard: before each claim, never after it
    const { rows: [job] } = await client.query('select * from pgwake.claim_or_wait($1, $2, $3)', [queue, name, lease])
    onDuty = job.is_on_duty
    if (job.id) console.log(job.id, job.kind, await run(job, ask, stepsOf(job, client)).catch(orLost))
    else await sleep(1000 * job.wait_seconds, null, { signal: wake.signal }).catch(() => {})
  }
  if (onDuty) await ask('pgwake.unpark($1)', queue)
}

(async () => {
  while (!stopping) {
    const client = new Client({ connectionString: DATABASE_URL, keepAlive: true, query_timeout: 30_000 })
    await work(client).catch((error) => { console.error(error.message); return sleep(1000) })
    client.end().catch(() => {})
  }
  process.exit()
})()
