// The list of jobs, newest first, page by page.

import { get, query } from './api.js';
import { bulkActions } from './bulk.js';
import { h, keyed, setAttribute } from './dom.js';
import { address, filterForm } from './filters.js';
import { count, relative, showProgress, showStatus, showTime, title } from './format.js';
import { short } from './json.js';
import { jobIds, names, numbers, table, times } from './table.js';

const PAGE = 50;
const STATUSES = [
  ...['', 'waiting', 'pending', 'scheduled', 'retrying'],
  ...['running', 'completed', 'failed', 'cancelled'],
];

/** The time that matters in a job's status, with its word. */
function moment(job) {
  if (job.finished_at != null) return [job.finished_at, 'ended'];
  if (job.status === 'running') return [job.started_at, 'began'];
  return [job.run_at, 'due'];
}

export function jobs(parameters, { act }) {
  const { after, ...filters } = parameters;
  const list = table({
    caption: 'Jobs, newest first',
    empty: after
      ? 'There are no older jobs.'
      : 'No matching jobs. Clear a filter, or enqueue a job on the page Kinds.',
    keyOf: ({ id }) => id,
    columns: [
      jobIds,
      { label: 'Status', type: 'text', show: (cell, { status }) => showStatus(cell, status) },
      names('Kind', ({ kind }) => kind),
      names('Queue', ({ queue }) => queue),
      names(
        'Key',
        (job) => job.concurrency_key,
        (key) => address('jobs', { ...filters, concurrency_key: key }),
      ),
      numbers('Priority', ({ priority }) => priority),
      numbers('Attempts', ({ attempt }) => attempt, count),
      {
        label: 'Progress',
        type: 'wide',
        show: (cell, { progress }) => showProgress(cell, progress, (value) => short(value, 40)),
      },
      times('Created', (job) => job.created_at),
      {
        label: 'When',
        type: 'number wide',
        show(cell, job) {
          const [time, word] = moment(job);
          showTime(cell, time, () => `${word} ${relative(time)}`);
        },
      },
      names('Worker', ({ worker }) => worker),
    ],
  });
  const pages = h('nav', { 'aria-label': 'Pages of jobs' });
  const showPages = keyed(pages, ([label]) => label, makePage);
  return {
    title: 'Jobs',
    element: h(
      'section',
      { class: 'panel', 'aria-label': 'Jobs' },
      h(
        'div',
        { class: 'row' },
        filterForm(
          'jobs',
          [
            { name: 'status', label: 'Status', options: STATUSES },
            { name: 'queue', label: 'Queue' },
            { name: 'kind', label: 'Kind' },
            ...['worker', 'unique_key', 'concurrency_key']
              .filter((name) => filters[name])
              .map((name) => ({ name, label: title(name) })),
          ],
          filters,
        ),
        idForm(),
      ),
      h('div', { class: 'row' }, bulkActions(filters, { act }), groupsLink(filters), enqueueLink(filters)),
      list.element,
      pages,
    ),
    async read(options) {
      const found = await get(query('api/jobs', { ...filters, after, limit: PAGE }), options);
      const isUnfinished = found.next != null;
      if (isUnfinished) list.setEmpty('No matching jobs so far: see the older ones.');
      list.update(found.jobs);
      const links = [];
      if (after) links.push(['Newest', address('jobs', filters)]);
      if (isUnfinished)
        links.push(['Older', address('jobs', { ...filters, after: found.next })]);
      showPages(links);
    },
  };
}

/** Failed jobs are retried and purged by what they failed of. */
const groupsLink = ({ queue, kind, status }) =>
  status === 'failed' && h('a', { href: address('failed', { queue, kind }) }, 'Retry or purge them');

const enqueueLink = ({ kind }) =>
  h('a', { class: 'end', href: address('enqueue', { kind }) }, 'Enqueue a job');

function makePage([label]) {
  const element = h('a', { class: 'button' }, label);
  return { element, update: ([, href]) => setAttribute(element, 'href', href) };
}

function idForm() {
  const input = h('input', {
    name: 'id',
    inputmode: 'numeric',
    pattern: '[0-9]{1,19}',
    autocomplete: 'off',
    title: 'A number',
    required: true,
  });
  const form = h(
    'form',
    { class: 'row', 'aria-label': 'Go to a job' },
    h('label', {}, 'Job id', input),
    h('button', { type: 'submit' }, 'Go'),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    location.hash = `#/jobs/${input.value}`;
  });
  return form;
}
