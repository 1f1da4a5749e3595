// The queues: their limits, how much of these is used, other policy, and their pauses.

import { get, post } from './api.js';
import { ask } from './dialog.js';
import { h, setText, showLink } from './dom.js';
import { address } from './filters.js';
import { count, visible } from './format.js';
import { short } from './json.js';
import { pauseColumn } from './pause.js';
import { jobCounts, names, numbers, policy, table } from './table.js';

// Of each limit: its name, its label in a form, what holds without it, and its words in a list.
const LIMITS = [
  ['max_running', 'Jobs at once', 'no limit', () => null], // beside the slots used
  ['rate_limit', 'Claims a second', 'no limit', (value) => `${value}/s`],
  ['rate_burst', 'Burst: claims at once', "a second's worth", (value) => `burst ${value}`],
  ['key_limit', 'Jobs of a concurrency key at once', '1', (value) => `${value} a key`],
  ['key_rate', 'Starts of a key a second', 'no limit', (value) => `${value}/s a key`],
  ['key_burst', 'Burst: starts of a key at once', "a second's worth", (value) => `burst ${value} a key`],
  ['max_pending', 'Jobs that may wait', 'no limit', (value) => `${count(value)} may wait`],
];
const OF_A_KEY = LIMITS.filter(([name]) => ['key_limit', 'key_rate'].includes(name));

/** The limits of a queue in words, those that are set. */
const limits = (row) =>
  [
    ...LIMITS.map(([name, , , words]) => row[name] != null && words(short(row[name]))),
    ...Object.entries(row.keys).map(([key, limit]) => `key ${short(key)} ${short(limit)}`),
    ...Object.entries(row.key_rates).map(([key, rate]) => `key ${short(key)} ${short(rate)}/s`),
  ]
    .filter(Boolean)
    .join(', ');

const path = ({ name }) => `api/queues/${encodeURIComponent(name)}/limits`;

const limitField = (name, label, placeholder, value) => {
  return { name, label, placeholder, value, type: 'number', min: 0, step: 'any' };
};

async function changeLimits(queue) {
  const before = (name) => String(queue[name] ?? '');
  return ask({
    title: `Limits of ${visible(queue.name)}`,
    text: 'They hold at once, and end no running job.',
    action: 'Change',
    fields: LIMITS.map(([name, label, none]) => limitField(name, label, none, before(name))),
    async attempt(given) {
      const changed = LIMITS.map(([name]) => name).filter((name) => (given[name] ?? '') !== before(name));
      if (changed.length === 0) return 'Nothing was changed.';
      await post(path(queue), Object.fromEntries(changed.map((name) => [name, numberIn(given[name])])));
      return `Changed the limits of ${visible(queue.name)}.`;
    },
  });
}

async function limitKey(queue) {
  return ask({
    title: `Limit a key of ${visible(queue.name)}`,
    text: 'These hold for one concurrency key alone, and at once. 0 jobs at once stop the key.',
    action: 'Change',
    fields: [
      { name: 'key', label: 'Concurrency key', required: true, maxlength: 512 },
      ...OF_A_KEY.map(([name, label]) => limitField(name, label, 'as the queue says')),
    ],
    async attempt({ key, ...given }) {
      const own = OF_A_KEY.map(([name]) => [name, numberIn(given[name])]);
      await post(path(queue), { key, ...Object.fromEntries(own) });
      return `Changed the limits of key ${visible(key)}.`;
    },
  });
}

const numberIn = (text) => (text === undefined ? null : Number(text));

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
        show(cell, { name: queue, running_count: running, max_running: most }) {
          const words = most == null ? count(running) : `${count(running)} of ${count(most)}`;
          if (Number(running)) showLink(cell, address('jobs', { queue, status: 'running' }), words);
          else setText(cell, words);
          cell.classList.toggle('zero', Number(running) === 0);
          cell.classList.toggle('warn', most != null && Number(running) >= Number(most));
        },
      },
      jobCounts('Pending', 'pending', ({ name, pending_count: n }) => [name, n]),
      numbers('Not yet due', (row) => row.scheduled_count, count),
      jobCounts('Waiting', 'waiting', ({ name, waiting_count: n }) => [name, n]),
      jobCounts('Failed', 'failed', ({ name, failed_count: n }) => [name, n]),
      { ...names('Limits', limits), type: 'whole' },
      { ...names('Policy', ({ policy: given }) => policy(given)), type: 'whole' },
      pauseColumn(act, [
        { words: 'Limits', change: changeLimits },
        { words: 'Limit a key', change: limitKey },
      ]),
    ],
  });
  const hint = h('p', { class: 'hint' }, 'Other policy: the columns of pgwake.queues.');
  return {
    title: 'Queues',
    element: h('section', { class: 'panel', 'aria-label': 'Queues' }, list.element, hint),
    async read(options) {
      list.update((await get('api/queues', options)).queues);
    },
  };
}
