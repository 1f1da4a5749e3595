// Runs a contract through node-postgres: DATABASE_URL=... node contract.js FILE
// The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
const { readFileSync } = require('node:fs')
const { Client } = require('pg')

const sessions = {}
const values = {}

async function open() {
  const client = new Client(process.env.DATABASE_URL)
  client.heard = []
  client.on('notification', (note) => client.heard.push(`${note.channel} ${note.payload}`))
  client.on('error', () => {}) // ended by another step
  await client.connect()
  return client
}

async function run(step) {
  const [title, ...lines] = step.split('\n')
  const wanted = { in: 'a' }
  for (const line of lines) {
    const [, word, text] = line.match(/^-- (in|expect|error|keep|hears): (.*)$/) ?? []
    if (word) wanted[word] = text
  }
  const client = (sessions[wanted.in] ??= await open())
  const parameters = []
  const sql = lines
    .filter((line) => !line.startsWith('--'))
    .join('\n')
    .replace(/\{(\w+)\}/g, (_, name) => `$${parameters.push(values[name])}`)

  const got = {}
  try {
    const { rows } = await client.query({ text: sql, values: parameters, rowMode: 'array' })
    const answer = rows.length === 0 ? '(no row)' : rows[0][0]
    got.expect = answer === null ? '(null)' : answer || '(empty)'
    if (wanted.keep) {
      const kept = answer === null ? [null] : answer.split('\n')
      wanted.keep.split(' ').forEach((name, i) => (values[name] = kept[i]))
    }
  } catch (error) {
    got.error = error.code
  }
  got.hears = client.heard.join(', ') || '(nothing)'
  if (wanted.hears) client.heard.length = 0
  for (const word of ['error', 'expect', 'hears']) {
    const expected = wanted[word]?.replace(/\{(\w+)\}/g, (_, name) => values[name])
    if ((expected || word === 'error') && got[word] !== expected) {
      throw `step "${title}": expected ${word} ${expected}, got ${got[word]}`
    }
  }
}

async function main() {
  const steps = readFileSync(process.argv[2], 'utf8').split('\n-- step: ').slice(1)
  for (const step of steps) await run(step)
  console.log(`${steps.length} steps`)
}

main().then(() => process.exit(0), (difference) => {
  console.log(difference)
  process.exit(1)
})
