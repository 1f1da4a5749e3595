// A producer on node-postgres: DATABASE_URL=... QUEUE=... node producer.js COUNT [PREFIX]
// Plain inserts, in the caller's own transactions.
const { Client } = require('pg')

const { DATABASE_URL, QUEUE: queue = 'default' } = process.env
const [count, prefix = 'node-'] = process.argv.slice(2)

async function enqueue(client, number) { // how many were added: none if its key is taken
  const { rowCount } = await client.query(
    `insert into pgwake.jobs (queue, kind, payload, metadata, unique_key)
     values ($1, 'conformance.echo', $2, $3, $4) on conflict do nothing`,
    [queue, { number }, { from: 'node' }, `${prefix}${number}`])
  return rowCount
}

async function main() {
  const client = new Client(DATABASE_URL)
  await client.connect()
  let inserted = 0
  for (let first = 0; first < count; first += 10) {
    let added = 0
    await client.query('begin')
    for (let number = first; number < Math.min(first + 10, count); number++) {
      added += await enqueue(client, number)
    }
    await client.query('commit')
    inserted += added
  }
  await client.query('begin')
  for (let i = 0; i < 10; i++) await enqueue(client, Number(count) + i)
  await client.query('rollback') // none of these
  try {
    await client.query("insert into pgwake.jobs (queue, kind, priority) values ($1, 'bad', 1000)", [queue])
  } catch (error) {
    console.log('refused', error.code)
  }
  console.log('inserted', inserted)
  await client.end()
}

main()
