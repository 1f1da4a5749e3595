// What is done to all jobs that a list is filtered to: first a dry run, then the question.

import { Problem, post } from './api.js';
import { ask } from './dialog.js';
import { h } from './dom.js';
import { typedJson } from './fields.js';
import { count, counted, now } from './format.js';
import { plain } from './json.js';

const AT_ONCE = 10_000; // jobs, the most that one request may change
const FILTERS = ['queue', 'kind', 'unique_key', 'concurrency_key', 'status'];
const OUTCOMES = ['cancelled', 'cancel_requested', 'missed'];
const DUE = [
  ['', 'as it is'],
  [0, 'now'],
  [900, 'in 15 minutes'],
  [3600, 'in an hour'],
  [86_400, 'in a day'],
];

const ACTIONS = {
  'Update all': { change: update, statuses: ['waiting', 'pending'] },
  'Cancel all': { change: cancel, statuses: ['waiting', 'pending', 'running'] },
};

/** The buttons for what a list is filtered to; none if the server has no such filter. */
export function bulkActions(filters, { act }) {
  const given = Object.keys(filters).filter((name) => filters[name]);
  const isKnown = given.length > 0 && given.every((name) => FILTERS.includes(name));
  return Object.entries(ACTIONS)
    .filter(([, { statuses }]) => isKnown && (!filters.status || statuses.includes(filters.status)))
    .map(([label, { change }]) => {
      const button = h('button', { type: 'button' }, `${label}…`);
      button.addEventListener('click', () => act(button, () => change(filters)));
      return button;
    });
}

const those = (filters) =>
  Object.entries(filters)
    .filter(([, value]) => value)
    .map(([name, value]) => `${name.replace('_', ' ')} ${plain(value, 200)}`)
    .join(', ');

/** How many, of those that a dry run has looked at: it looks no further than AT_ONCE. */
const many = (total, seen) => (seen < AT_ONCE ? counted(total, 'job') : `${count(total)} jobs or more`);

async function cancel(filters) {
  const path = 'api/live/cancel';
  const dry = await post(path, { ...filters, limit: AT_ONCE, dry_run: true });
  const total = Number(dry.cancelled) + Number(dry.cancel_requested);
  if (total === 0) return `Nothing to cancel: no such job waits or runs (${those(filters)}).`;
  const question = {
    title: `Cancel ${many(total, total)}?`,
    text:
      `Of ${those(filters)}: ${many(dry.cancelled, total)} end at once, ` +
      `${counted(dry.cancel_requested, 'running job')} are asked to stop.`,
    action: `Cancel ${many(total, total)}`,
    isGrave: true,
    async attempt(_, tell) {
      const all = { cancelled: 0, cancel_requested: 0 };
      for (;;) {
        const done = await post(path, { ...filters, limit: AT_ONCE });
        const [cancelled, asked, missed] = OUTCOMES.map((name) => Number(done[name]));
        all.cancelled += cancelled;
        all.cancel_requested = Math.max(all.cancel_requested, asked); // some were asked before
        const isLast = cancelled === 0 || cancelled + asked + missed < AT_ONCE;
        if (isLast || !tell(`Cancelled ${count(all.cancelled)}`)) return all;
      }
    },
  };
  const done = await ask(question);
  if (done === null) return null;
  return (
    `Cancelled ${counted(done.cancelled, 'job')}, ` +
    `asked ${counted(done.cancel_requested, 'running job')} to stop.`
  );
}

/** Update the jobs of some filters, or those of some ids, without a dry run. */
export async function update(filters) {
  const path = 'api/waiting/update';
  const tried = await ask({
    title: `Update ${filters.ids ? 'the job' : 'all'}?`,
    text: `Jobs that wait, of ${those(filters)}. Empty fields change nothing.`,
    action: filters.ids ? 'Update' : 'Try',
    fields: [
      { name: 'priority', label: 'Priority, -100 to 100', type: 'number', min: -100, max: 100 },
      { name: 'seconds', label: 'Due', options: DUE },
      { name: 'queue', label: 'Move to queue', maxlength: 128 },
      {
        name: 'payload',
        label: 'Merge into each payload, a JSON object; null removes a field',
        tag: 'textarea',
      },
    ],
    async attempt({ priority, seconds, queue, payload }) {
      const changes = {
        ...(priority && { priority: Number(priority) }),
        ...(seconds && { run_at: dueIn(Number(seconds)) }),
        ...(queue && { queue }),
        ...(payload && { payload: typedJson('The payload', payload) }),
      };
      if (Object.keys(changes).length === 0) throw new Problem(422, { detail: 'All fields are empty.' });
      const request = { ...filters, limit: AT_ONCE, changes };
      return { request, dry: counts(await post(path, { ...request, dry_run: !filters.ids })) };
    },
  });
  if (tried === null) return null;
  const { request, dry } = tried;
  if (filters.ids) return `Done: ${said(dry)}.`;
  const { changes } = request;
  const total = dry.get('updated') ?? 0;
  if (total === 0) return `Nothing to update: ${said(dry) || 'no such job waits'}.`;
  const jobs = many(total, [...dry.values()].reduce((sum, one) => sum + one));
  const question = {
    title: `Update ${jobs}?`,
    text: `${those(changes)}. The dry run says: ${said(dry)}.`,
    action: `Update ${jobs}`,
    async attempt(_, tell) {
      const all = new Map();
      for (let after = null; ; ) {
        const done = await post(path, { ...request, after });
        for (const [outcome, more] of counts(done)) all.set(outcome, (all.get(outcome) ?? 0) + more);
        const ids = done.outcomes.flatMap((outcome) => outcome.ids);
        if (ids.length < AT_ONCE || !tell(`Updated ${count(all.get('updated') ?? 0)}`)) return all;
        after = ids.reduce((greatest, id) => (id > greatest ? id : greatest));
      }
    },
  };
  const done = await ask(question);
  return done && `Done: ${said(done) || 'no such job waits any more'}.`;
}

const dueIn = (seconds) => (seconds ? new Date(now() + seconds * 1000).toISOString() : 'now');

const counts = ({ outcomes }) =>
  new Map(outcomes.map(({ outcome, count: jobs }) => [outcome, Number(jobs)]));

const said = (found) =>
  [...found].map(([outcome, jobs]) => `${count(jobs)} ${outcome.replaceAll('_', ' ')}`).join(', ');
