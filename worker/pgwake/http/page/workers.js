// The running jobs, and the workers.

import { get } from './api.js';
import { h, setText } from './dom.js';
import { address } from './filters.js';
import { count, counted, duration, now, showProgress } from './format.js';
import { short } from './json.js';
import { jobIds, names, numbers, table, times } from './table.js';

const LIMIT = 200; // jobs that are listed

const since = (time) => duration(now() - Date.parse(time));
const between = (from, to) => duration(Date.parse(to) - Date.parse(from));

export function running() {
  const hint = h('p', { class: 'hint', role: 'status' });
  const tasks = table({
    caption: 'Running jobs',
    empty: 'No job is running. The Overview says what is due, and whether a worker is live.',
    keyOf: ({ id }) => id,
    columns: [
      jobIds,
      names('Kind', ({ kind }) => kind),
      names(
        'Queue',
        ({ queue }) => queue,
        (queue) => address('jobs', { queue, status: 'running' }),
      ),
      {
        label: 'Progress',
        type: 'wide',
        show: (cell, { progress }) => showProgress(cell, progress, short),
      },
      times('Runs for', (task) => task.started_at, since),
      times(
        'Waited',
        (task) => task.enqueued_at,
        (time, task) => between(time, task.started_at),
      ),
      names(
        'Worker',
        ({ worker }) => worker,
        (worker) => address('jobs', { worker }),
      ),
    ],
  });
  return {
    title: 'Running jobs',
    element: h('section', { class: 'panel', 'aria-label': 'Running jobs' }, hint, tasks.element),
    async read(options) {
      const found = await get(`api/queue/active-tasks?limit=${LIMIT}`, options);
      tasks.update(found.tasks);
      hint.hidden = found.tasks.length === 0;
      setText(
        hint,
        Number(found.count) > found.tasks.length
          ? `${count(found.tasks.length)} of ${counted(found.count, 'running job')}`
          : counted(found.tasks.length, 'running job'),
      );
    },
  };
}

export function workers() {
  const list = table({
    caption: 'Workers',
    empty: 'No worker has reported itself. Start one: pgwake run --import MODULE',
    keyOf: ({ name }) => name,
    columns: [
      {
        ...names(
          'Worker',
          ({ name }) => name,
          (worker) => address('jobs', { worker }),
        ),
        isHeader: true,
      },
      {
        label: 'State',
        type: 'text',
        show(cell, { is_live: isLive }) {
          setText(cell, isLive ? 'live' : 'silent');
          cell.classList.toggle('bad', !isLive);
        },
      },
      numbers('Running', (worker) => worker.running, count),
      numbers('Slots', (worker) => worker.slots, count),
      names('Queues', (worker) => (worker.queues ?? []).join(', ')),
      names('Kinds', (worker) => (worker.kinds ?? []).join(', ')),
      names('Host', ({ host }) => host),
      numbers('Process', ({ pid }) => pid),
      names('Version', ({ version }) => version),
      times('Started', (worker) => worker.started_at),
      times('Seen', (worker) => worker.seen_at),
    ],
  });
  return {
    title: 'Workers',
    element: h('section', { class: 'panel', 'aria-label': 'Workers' }, list.element),
    async read(options) {
      list.update((await get('api/workers', options)).workers);
    },
  };
}
