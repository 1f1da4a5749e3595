// The queues: what stands in them, what goes through them, and whether they are paused.

import { get } from './api.js';
import { h, setText } from './dom.js';
import { address } from './filters.js';
import { findings } from './findings.js';
import { count, counted, duration, rate } from './format.js';
import { pauseColumn } from './pause.js';
import { chart, last, readout } from './sparkline.js';
import { jobCounts, names, numbers, table } from './table.js';

const SHOWN = 100; // queues, unless more are asked for
const HISTORY_PERIOD = 10_000; // milliseconds; the server takes a sample each 10 s

const ORDERS = {
  Name: null,
  'Most pending': (row) => row.pending,
  'Oldest pending': (row) => row.oldest_pending_seconds ?? -1,
  'Most running': (row) => row.active_tasks,
  'Most failed': (row) => row.failed,
};

/** Only the sum of pending and scheduled is exact in large queues. */
const estimated = (number, row) =>
  row.is_estimate && Number(number) ? `≈ ${count(number)}` : count(number);

export function overview(_, { act }) {
  const totals = makeTotals();
  const wrong = findings();
  let all = [];
  let history = new Map();
  let at = [];
  let historyAt = 0;
  const curves = makeCurves();
  let limit = SHOWN;

  const filter = h('input', { type: 'search', autocomplete: 'off', spellcheck: 'false' });
  const order = h(
    'select',
    {},
    Object.keys(ORDERS).map((name) => h('option', {}, name)),
  );
  const shownCount = h('p', { class: 'hint end', role: 'status' });
  const tools = h(
    'div',
    { class: 'row', hidden: true },
    h('label', {}, 'Filter queues', filter),
    h('label', {}, 'Sort by', order),
    shownCount,
  );
  const more = h('button', { type: 'button', hidden: true });
  const queues = table({
    caption: 'Queues',
    empty: '',
    keyOf: (row) => row.queue,
    columns: [
      {
        ...names(
          'Queue',
          ({ queue }) => queue,
          (queue) => address('jobs', { queue }),
        ),
        isHeader: true,
      },
      numbers('Pending', (row) => row.pending, estimated),
      jobCounts('Running', 'running', ({ queue, active_tasks: n }) => [queue, n]),
      numbers('Not yet due', (row) => row.scheduled, estimated),
      jobCounts('Waiting', 'waiting', ({ queue, waiting }) => [queue, waiting]),
      jobCounts('Failed', 'failed', ({ queue, failed }) => [queue, failed]),
      numbers(
        'Oldest',
        (row) => row.oldest_pending_seconds,
        (seconds) => duration(seconds * 1000),
      ),
      numbers('Workers', (row) => row.workers, count),
      line('Completed', 'completed', 'Jobs completed a second', rate),
      line('Queue time', 'avg_queue_time_ms', 'Average time in the queue', duration),
      pauseColumn(act),
    ],
  });

  /** A column of a chart, with its last value beside it. */
  function line(label, name, what, words) {
    return {
      label,
      type: 'chart',
      show(cell, { queue }) {
        const values = history.get(queue)?.[name];
        if (!values) {
          cell.replaceChildren();
          return;
        }
        if (!cell.firstChild) {
          const { line, value, update } = readout();
          cell.replaceChildren(h('span', {}, line, ' ', value));
          cell.update = update;
        }
        cell.update(values, what, words, at);
      },
    };
  }

  function show() {
    const text = filter.value.trim().toLowerCase();
    const found = text ? all.filter(({ queue }) => queue.toLowerCase().includes(text)) : [...all];
    const by = ORDERS[order.value];
    if (by) found.sort((one, other) => Number(by(other)) - Number(by(one)));
    const rows = found.slice(0, limit);
    queues.setEmpty(
      text
        ? 'No matching queues.'
        : 'There are no queues yet. A queue exists from its first job on: ' +
            "insert into pgwake.jobs (kind) values ('hello').",
    );
    queues.update(rows);
    tools.hidden = all.length === 0;
    more.hidden = rows.length === found.length;
    more.textContent = `Show all ${count(found.length)}`;
    setText(
      shownCount,
      rows.length === all.length
        ? counted(all.length, 'queue')
        : `${count(rows.length)} of ${counted(all.length, 'queue')}`,
    );
  }

  filter.addEventListener('input', () => {
    limit = SHOWN;
    show();
  });
  order.addEventListener('change', show);
  more.addEventListener('click', () => {
    limit = Infinity;
    show();
    queues.element.querySelectorAll('tbody a')[SHOWN]?.focus();
  });

  return {
    title: 'Overview',
    element: [
      wrong.element,
      totals.element,
      curves.element,
      h('section', { class: 'panel', 'aria-label': 'Queues' }, tools, queues.element, more),
    ],
    async read(options) {
      const wantsHistory = Date.now() - historyAt >= HISTORY_PERIOD;
      const [stats, past] = await Promise.all([
        get('api/queue/stats', options),
        // Up to 250,000 numbers, for pictures: to keep them exact would take 0.2 s.
        wantsHistory ? get('api/queue/history', { ...options, read: JSON.parse }) : null,
      ]);
      if (past) {
        historyAt = Date.now();
        at = past.at;
        history = new Map(past.queues.map((series) => [series.queue, series]));
      }
      all = stats.queues;
      totals.update(stats);
      if (past) curves.update(stats.queues, history, at);
      show();
      await wrong.read(options);
    },
  };
}

function makeTotals() {
  const items = new Map();
  const element = h(
    'dl',
    { class: 'totals' },
    ['Queued', 'Running', 'Failed', 'Workers', 'Completed', 'Queue time', 'Run time'].map(
      (label) => {
        const value = h('dd', { class: 'figure' });
        const note = h('dd', { class: 'note' });
        items.set(label, { value, note });
        return h('div', {}, h('dt', {}, label), value, note);
      },
    ),
  );
  const set = (label, value, note = '', isBad = false) => {
    setText(items.get(label).value, value);
    setText(items.get(label).note, note);
    items.get(label).value.classList.toggle('bad', isBad);
  };
  return {
    element,
    update(stats) {
      const sum = (name) => stats.queues.reduce((total, row) => total + Number(row[name] ?? 0), 0);
      const oldest = Math.max(
        ...stats.queues.map((row) => Number(row.oldest_pending_seconds ?? 0)),
        0,
      );
      const failed = sum('failed');
      set(
        'Queued',
        count(stats.queue_size),
        oldest ? `oldest due ${duration(oldest * 1000)}` : `${count(sum('pending'))} due`,
      );
      set('Running', count(stats.active_tasks), 'now');
      set('Failed', count(failed), `${count(stats.tasks_failed)} ever`, failed > 0);
      set(
        'Workers',
        count(stats.workers),
        Number(stats.workers) ? 'live' : 'no live worker',
        Number(stats.workers) === 0,
      );
      set('Queue time', duration(stats.avg_queue_time_ms) || '–', 'average, 5 min');
      set('Run time', duration(stats.avg_execution_time_ms) || '–', 'average, 5 min');
      set('Completed', count(stats.tasks_completed), 'ever');
    },
  };
}

const CURVES = [
  ['completed', 'Jobs completed a second', rate],
  ['retried', 'Attempts to be retried a second', rate],
  ['failed', 'Jobs failed for good a second', rate],
  ['scheduled', 'Jobs not yet due: scheduled, or to be retried', (value) => (value == null ? '' : count(value))],
];

/** What went through all queues together. */
function makeCurves() {
  const charts = CURVES.map(([name, what, words]) => ({ name, ...chart(what, words) }));
  const section = h(
    'section',
    { class: 'panel curves', 'aria-label': 'The last half hour', hidden: true },
    charts.map(({ element }) => element),
  );
  return {
    element: section,
    update(queues, history, at) {
      // Not before it has all queues.
      section.hidden = history.size === 0 || queues.some(({ queue }) => !history.has(queue));
      if (section.hidden) return;
      for (const { name, update } of charts) update(sums([...history.values()], name), at);
    },
  };
}

/** Of all queues together at each time; null: nothing is known. */
function sums(all, name) {
  return all[0][name].map((_, n) => {
    const known = all.map((series) => series[name][n]).filter((value) => value != null);
    return known.length ? known.reduce((total, value) => total + Number(value), 0) : null;
  });
}
