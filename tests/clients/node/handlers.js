// What consumer.js does with a job of each kind: yours go here. A handler takes the payload, the job and its steps, and
// returns the result. An error fails the attempt; with retryIn (an interval) or retryable: false it says when to try
// again.
const { setTimeout: sleep } = require('node:timers/promises')

async function echo({ number, seconds = 0 }) {
  await sleep(1000 * seconds)
  return { number, by: 'node' }
}

async function failOnce(payload, job) {
  if (job.attempt === 1) throw Object.assign(new Error('not yet'), { retryIn: '0 seconds' })
  return echo(payload)
}

async function fail(payload) {
  await echo(payload)
  throw Object.assign(new Error('never'), { retryable: false })
}

async function order({ number }, job, { step, write, sleep, waitFor }) {
  const receipt = await step('charge', () => chargeCard(number, `${job.id}:charge`))
  const answer = await waitFor(`order:${number}:approved`, '1 day')
  if (answer === null) return { receipt, by: null }
  await sleep('second thoughts', '200 milliseconds')
  await write('send', 'insert into parcels (number) values ($4)', number)
  return { receipt, by: answer.by }
}

async function chargeCard(number, key) { // asks a bank, which does once what has the same key
  console.log('charged', key)
  return key
}

module.exports = new Map([
  ['conformance.echo', echo],
  ['conformance.fail_once', failOnce],
  ['conformance.fail', fail],
  ['conformance.order', order],
])
