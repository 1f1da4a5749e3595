// The dead letters, grouped by error.

import { get, post, query } from './api.js';
import { ask } from './dialog.js';
import { h, setAttribute, setText, showLink } from './dom.js';
import { address, filterForm } from './filters.js';
import { count, counted, visible, visibleLines } from './format.js';
import { names, numbers, table, times } from './table.js';

const AT_ONCE = 10_000; // jobs, the most that one request may retry
const CLIP = 200; // characters of a message that are shown

export function failed(parameters, { act }) {
  const hint = h('p', { class: 'hint', role: 'status' });
  const groups = table({
    caption: 'Failed jobs, by what they failed of',
    empty: 'Nothing has failed.',
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
      { label: 'Action', type: 'action', show: (cell, group) => showActions(cell, group, act) },
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

function showActions(cell, group, act) {
  if (!cell.firstChild) {
    const button = h('button', { type: 'button' });
    button.addEventListener('click', () => act(button, () => retry(cell.group)));
    cell.replaceChildren(button, h('a', {}, 'List'));
  }
  cell.group = group;
  const [button, list] = cell.children;
  setText(button, 'Retry');
  // Put there by hand: without a fingerprint, all of its queue and kind would be meant.
  button.hidden = group.fingerprint == null;
  const { queue, kind } = group;
  setAttribute(
    button,
    'aria-label',
    `Retry ${counted(group.count, 'job')} of kind ${visible(kind)}`,
  );
  setAttribute(list, 'href', address('jobs', { queue, kind, status: 'failed' }));
  setAttribute(list, 'aria-label', `List failed jobs of kind ${visible(kind)}`);
}

async function retry({ queue, kind, fingerprint, count: jobs }) {
  const total = Number(jobs);
  const limit = Math.min(total, AT_ONCE);
  const question = {
    title: `Retry ${counted(limit, 'job')}?`,
    text:
      `Pending again at once, in queue ${visible(queue)}, with all attempts before them.` +
      (total > limit ? ` These are the ${count(limit)} of ${count(total)} that failed first.` : ''),
    action: `Retry ${counted(limit, 'job')}`,
  };
  if ((await ask(question)) === null) return null;
  const { retried, skipped } = await post('api/failed/retry', { queue, kind, fingerprint, limit });
  const left = Number(skipped)
    ? ` ${counted(skipped, 'job')} stayed: a live job has the unique key.`
    : '';
  return `Retried ${counted(retried, 'job')}.${left}`;
}
