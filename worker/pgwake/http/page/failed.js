// The failed jobs, grouped by error.

import { get, post, query } from './api.js';
import { ask } from './dialog.js';
import { h, setAttribute, setText, showLink } from './dom.js';
import { typedJson } from './fields.js';
import { address, filterForm } from './filters.js';
import { count, counted, visible, visibleLines } from './format.js';
import { actions, names, numbers, table, times } from './table.js';

const AT_ONCE = 10_000; // jobs, the most that one request may retry
const RATES = [
  ['', 'all at once'],
  ...[100, 10, 1, 0.1].map((rate) => [rate, `${rate} a second`]),
];
const CLIP = 200; // characters of a message that are shown

export function failed(parameters, { act }) {
  const hint = h('p', { class: 'hint', role: 'status' });
  const groups = table({
    caption: 'Failed jobs, by reason',
    empty: 'No job has failed. A job comes here when its last attempt fails; retry or purge it here.',
    keyOf: ({ queue, kind, fingerprint }) => JSON.stringify([queue, kind, fingerprint]),
    columns: [
      { ...names('Kind', ({ kind }) => kind), isHeader: true },
      names('Queue', ({ queue }) => queue),
      names('Reason', ({ reason }) => reason),
      {
        label: 'Message',
        type: 'message',
        show(cell, { message }) {
          const text = visibleLines(message ?? '');
          setText(cell, [...text].slice(0, CLIP).join(''));
          setAttribute(cell, 'title', text);
        },
      },
      numbers('Jobs', (group) => group.count, count),
      times('First', (group) => group.first_failed_at),
      times('Last', (group) => group.last_failed_at),
      {
        label: 'Last job',
        type: 'number',
        show: (cell, group) =>
          showLink(cell, `#/jobs/${group.last_job_id}`, String(group.last_job_id)),
      },
      actions(
        'Action',
        act,
        (group) => `${counted(group.count, 'job')} of kind ${visible(group.kind)}`,
        [
          { words: 'Retry', change: retry, isFor: hasFingerprint },
          { words: 'Purge', change: purge, isFor: hasFingerprint },
          {
            words: 'List',
            link: ({ queue, kind }) => address('jobs', { queue, kind, status: 'failed' }),
          },
        ],
        (group) => group.is_queue_paused && 'queue paused',
      ),
    ],
  });
  return {
    title: 'Failed jobs',
    element: h(
      'section',
      { class: 'panel', 'aria-label': 'Failed jobs' },
      filterForm(
        'failed',
        [
          { name: 'queue', label: 'Queue' },
          { name: 'kind', label: 'Kind' },
        ],
        parameters,
      ),
      hint,
      groups.element,
    ),
    async read(options) {
      const { queue, kind } = parameters;
      const found = await get(query('api/failed', { queue, kind }), options);
      groups.update(found.groups);
      const jobs = found.groups.reduce((total, group) => total + Number(group.count), 0);
      hint.hidden = jobs === 0;
      setText(hint, `${counted(jobs, 'failed job')} in ${counted(found.groups.length, 'group')}`);
    },
  };
}

// Put there by hand: without one, all of its queue and kind would be meant.
const hasFingerprint = ({ fingerprint }) => fingerprint != null;

async function retry({ queue, kind, fingerprint, count: jobs, is_queue_paused: isPaused }) {
  const total = Number(jobs);
  const limit = Math.min(total, AT_ONCE);
  const question = {
    title: `Retry ${counted(limit, 'job')}?`,
    text:
      `They become pending again in queue ${visible(queue)}, with all their attempts before them.` +
      (isPaused ? ' The queue is paused: they run once it is resumed.' : '') +
      (total > limit ? ` These are the ${count(limit)} of ${count(total)} that failed first.` : ''),
    action: `Retry ${counted(limit, 'job')}`,
    fields: [
      { name: 'rate', label: 'How fast', options: RATES },
      {
        name: 'patch',
        label: 'Merge into each payload, a JSON object; null removes a field',
        tag: 'textarea',
      },
    ],
    attempt({ rate, patch }) {
      const chosen = { queue, kind, fingerprint, limit, rate: rate ? Number(rate) : null };
      return post('api/failed/retry', {
        ...chosen,
        ...(patch && { patch: typedJson('The patch', patch) }),
      });
    },
  };
  const done = await ask(question);
  if (done === null) return null;
  const { retried, skipped } = done;
  const left = Number(skipped)
    ? ` ${counted(skipped, 'job')} stayed: a live job has the unique key.`
    : '';
  return `Retried ${counted(retried, 'job')}.${left}`;
}

async function purge({ queue, kind, fingerprint }) {
  const chosen = { queue, kind, fingerprint, limit: AT_ONCE };
  const { purged: found } = await post('api/failed/purge', { ...chosen, dry_run: true });
  const jobs = counted(found, 'job');
  const question = {
    title: `Purge ${jobs}?`,
    text: `They are deleted for good, with their payloads and errors. At most ${count(AT_ONCE)} at once.`,
    action: `Purge ${jobs}`,
    isGrave: true,
    attempt: () => post('api/failed/purge', chosen),
  };
  const done = await ask(question);
  return done && `Purged ${counted(done.purged, 'job')}.`;
}
