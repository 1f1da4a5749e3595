// What consumer.js does with a job of each kind: yours go here. A handler takes the payload and the job, and returns
// the result. An error fails the attempt; with retryIn (an interval) or retryable: false it says when to try again.
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

module.exports = new Map([
  ['conformance.echo', echo],
  ['conformance.fail_once', failOnce],
  ['conformance.fail', fail],
])
