// The queues: their limits, how much of these is used, other policy, and their pauses.

import { get } from './api.js';
import { h, setText } from './dom.js';
import { address } from './filters.js';
import { count } from './format.js';
import { short } from './json.js';
import { pauseColumn } from './pause.js';
import { jobCounts, names, numbers, policy, table } from './table.js';

/** The limits of a queue in words, those that are set. */
function limits({ rate_limit: rate, rate_burst: burst, key_limit: key, keys }) {
  return [
    rate != null && `${short(rate)}/s`,
    burst != null && `burst ${count(burst)}`,
    key != null && `${count(key)} a key`,
    ...Object.entries(keys).map(([name, limit]) => `key ${short(name)} ${count(limit)}`),
  ]
    .filter(Boolean)
    .join(', ');
}

export function queues(_, { act }) {
  const list = table({
    caption: 'Queues',
    empty: 'No queue has jobs or policy. Enqueue a job, on the page Kinds or in SQL.',
    keyOf: ({ name }) => name,
    columns: [
      {
        ...names(
          'Queue',
          ({ name }) => name,
          (queue) => address('jobs', { queue }),
        ),
        isHeader: true,
      },
      {
        label: 'Slots used',
        type: 'number',
        show(cell, { running_count: running, max_running: most }) {
          setText(cell, most == null ? count(running) : `${count(running)} of ${count(most)}`);
          cell.classList.toggle('zero', Number(running) === 0);
          cell.classList.toggle('warn', most != null && Number(running) >= Number(most));
        },
      },
      jobCounts('Pending', 'pending', ({ name, pending_count: n }) => [name, n]),
      numbers('Not yet due', (row) => row.scheduled_count, count),
      jobCounts('Waiting', 'waiting', ({ name, waiting_count: n }) => [name, n]),
      jobCounts('Failed', 'failed', ({ name, failed_count: n }) => [name, n]),
      { ...names('Limits', limits), type: 'message' },
      names('Policy', ({ policy: given }) => policy(given)),
      pauseColumn(act, (row) => ({
        name: row.name,
        isPaused: row.is_paused,
        pausedUntil: row.paused_until,
        running: row.running_count,
      })),
    ],
  });
  const hint = h(
    'p',
    { class: 'hint' },
    'Limits: pgwake limit QUEUE --max-running N --rate N --key-limit N. ',
    'Other policy: the columns of pgwake.queues.',
  );
  return {
    title: 'Queues',
    element: h('section', { class: 'panel', 'aria-label': 'Queues' }, list.element, hint),
    async read(options) {
      list.update((await get('api/queues', options)).queues);
    },
  };
}
