// The queues: what stands in them, what goes through them, and whether they are paused.

import { get, post } from './api.js';
import { ask } from './dialog.js';
import { h, setAttribute, setText, showLink } from './dom.js';
import { address } from './filters.js';
import { findings } from './findings.js';
import { count, counted, duration, now, rate, relative, visible } from './format.js';
import { sparkline } from './sparkline.js';
import { names, numbers, table } from './table.js';

const SHOWN = 100; // queues, unless more are asked for
const HISTORY_PERIOD = 10_000; // milliseconds; the server takes a sample each 10 s

const ORDERS = {
  Name: null,
  'Most pending': (row) => row.pending,
  'Oldest pending': (row) => row.oldest_pending_seconds ?? -1,
  'Most running': (row) => row.active_tasks,
  'Most failed': (row) => row.failed,
};

const DURATIONS = [
  ['', 'until it is resumed'],
  [900, 'for 15 minutes'],
  [3600, 'for an hour'],
  [86_400, 'for a day'],
];

/** Only the sum of pending and scheduled is exact in large queues. */
const estimated = (number, row) =>
  row.is_estimate && Number(number) ? `≈ ${count(number)}` : count(number);

const last = (values) => values?.findLast((value) => value != null);

export function overview(_, { act }) {
  const totals = makeTotals();
  const wrong = findings();
  let all = [];
  let history = new Map();
  let historyAt = 0;
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
      numbers('Running', (row) => row.active_tasks, count),
      numbers('Scheduled', (row) => row.scheduled, estimated),
      numbers('Waiting', (row) => row.waiting, count),
      failedColumn,
      numbers(
        'Oldest',
        (row) => row.oldest_pending_seconds,
        (seconds) => duration(seconds * 1000),
      ),
      numbers('Workers', (row) => row.workers, count),
      chart('Completed', 'completed', 'Jobs completed a second', rate),
      chart('Queue time', 'avg_queue_time_ms', 'Average time in the queue', duration),
      { label: 'State', type: 'action', show: (cell, row) => showState(cell, row, act) },
    ],
  });

  /** A column of a chart, with its last value beside it. */
  function chart(label, name, what, words) {
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
          const line = sparkline();
          cell.value = h('span', { class: 'note' });
          cell.replaceChildren(h('span', {}, line.element, ' ', cell.value));
          cell.update = line.update;
        }
        cell.update(values, what, words);
        setText(cell.value, words(last(values)));
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
        ? 'No queue has that in its name.'
        : 'No queue has been used yet. It is there with its first job: ' +
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
        history = new Map(past.queues.map((series) => [series.queue, series]));
      }
      all = stats.queues;
      totals.update(stats, history);
      show();
      await wrong.read(options);
    },
  };
}

const failedColumn = {
  label: 'Failed',
  type: 'number',
  show(cell, { queue, failed }) {
    cell.classList.toggle('zero', Number(failed) === 0);
    if (Number(failed) === 0) setText(cell, '0');
    else showLink(cell, address('failed', { queue }), count(failed));
    cell.classList.toggle('bad', Number(failed) > 0);
  },
};

function showState(cell, row, act) {
  if (!cell.firstChild) {
    const button = h('button', { type: 'button' });
    button.addEventListener('click', () => act(button, () => change(cell.row)));
    cell.replaceChildren(h('span', { class: 'warn' }), button);
  }
  cell.row = row;
  const [state, button] = cell.children;
  setText(state, row.is_paused ? pausedWords(row.paused_until) : '');
  state.hidden = !row.is_paused;
  setText(button, row.is_paused ? 'Resume' : 'Pause');
  setAttribute(button, 'aria-label', `${button.textContent} ${visible(row.queue)}`);
}

function pausedWords(until) {
  const time = Date.parse(until);
  return time > now() ? `paused, ends ${relative(until)}` : 'paused';
}

/** Pause or resume a queue, once it is confirmed; what came of it, or nothing. */
async function change({ queue, is_paused: isPaused, active_tasks: running }) {
  const name = visible(queue);
  const path = `queues/${encodeURIComponent(queue)}`;
  if (isPaused) {
    const question = {
      title: `Resume ${name}?`,
      text: 'Workers start its jobs again at once.',
      action: 'Resume',
    };
    if ((await ask(question)) === null) return null;
    await post(`api/${path}/resume`);
    return `Resumed ${name}.`;
  }
  const seconds = await ask({
    title: `Pause ${name}?`,
    text:
      `No more of its jobs are started. What runs now (${counted(running, 'job')}) ` +
      'goes on to its end, and jobs can still be enqueued.',
    action: 'Pause',
    choice: { label: 'How long', options: DURATIONS },
  });
  if (seconds === null) return null;
  await post(`api/${path}/pause`, seconds ? { seconds: Number(seconds) } : {});
  return `Paused ${name}.`;
}

function makeTotals() {
  const line = sparkline();
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
  items.get('Completed').value.parentElement.append(h('dd', {}, line.element));
  return {
    element,
    update(stats, history) {
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
      set('Running', count(stats.active_tasks));
      set('Failed', count(failed), `${count(stats.tasks_failed)} ever`, failed > 0);
      set(
        'Workers',
        count(stats.workers),
        Number(stats.workers) ? '' : 'nobody works',
        Number(stats.workers) === 0,
      );
      set('Queue time', duration(stats.avg_queue_time_ms) || '–', 'average, 5 min');
      set('Run time', duration(stats.avg_execution_time_ms) || '–', 'average, 5 min');
      const rates = completedRates(stats.queues, history);
      set(
        'Completed',
        rates ? rate(last(rates)) || '–' : count(stats.tasks_completed),
        rates ? `${count(stats.tasks_completed)} ever` : 'ever',
      );
      line.element.toggleAttribute('hidden', !rates);
      if (rates) line.update(rates, 'Jobs completed a second', rate);
    },
  };
}

let summed = { history: null, rates: null };

/** Completed a second in all queues; null where the history has not all of them. */
function completedRates(queues, history) {
  if (history.size === 0 || queues.some(({ queue }) => !history.has(queue))) return null;
  if (summed.history === history) return summed.rates;
  const series = [...history.values()].map(({ completed }) => completed);
  const rates = series[0].map((_, n) => {
    const known = series.map((values) => values[n]).filter((value) => value != null);
    return known.length ? known.reduce((total, value) => total + Number(value), 0) : null;
  });
  summed = { history, rates };
  return rates;
}
