// One job: why it is as it is, what it carries, and what became of its attempts.

import { Problem, get, post } from './api.js';
import { update } from './bulk.js';
import { ask } from './dialog.js';
import { h, keyed, setText, showLink } from './dom.js';
import { typedJson } from './fields.js';
import { address } from './filters.js';
import { duration, now, showProgress, showStatus, showTime, title, visible, visibleLines } from './format.js';
import { jsonBox, parse, plain, short } from './json.js';
import { table, times } from './table.js';

const LIVE = ['waiting', 'pending', 'running'];
const BOXES = ['payload', 'result', 'metadata', 'progress'];
const ELSEWHERE = new Set([
  ...[...BOXES, 'id', 'status', 'errors', 'explanation', 'claimed_by', 'is_queue_paused'],
  ...['has_steps', 'steps', 'waits_for'],
]);
const FIRST = [
  ...['kind', 'queue', 'priority', 'created_at', 'run_at', 'expires_at', 'started_at', 'finished_at', 'worker'],
  ...['ran_for', 'attempt', 'max_attempts', 'unique_key', 'unique_until', 'concurrency_key', 'depends_on'],
];
const LINKS = {
  queue: (queue) => address('jobs', { queue }),
  kind: (kind) => address('jobs', { kind }),
  worker: (worker) => address('jobs', { worker }),
};

export function job({ id }, { act }) {
  const status = h('strong');
  const what = h('span');
  const cancel = h('button', { type: 'button', hidden: true }, 'Cancel job');
  const retry = h('button', { type: 'button', hidden: true }, 'Retry job');
  const run = h('button', { type: 'button', hidden: true }, 'Run now');
  const change = h('button', { type: 'button', hidden: true }, 'Update job');
  const emit = h('button', { type: 'button', hidden: true }, 'Emit event');
  const why = h('p', { class: 'whole' });
  const bar = h('span');
  const paused = h('span', { class: 'warn', hidden: true }, 'its queue is paused');
  const policy = h('p', { class: 'whole' });
  const timeline = h('ol', { class: 'timeline' });
  const showTimeline = keyed(timeline, ({ what }) => what, makeMoment);
  const facts = h('dl', { class: 'facts' });
  const internals = h('dl', { class: 'facts' });
  const showFacts = keyed(facts, ([name]) => name, makeFact);
  const showInternals = keyed(internals, ([name]) => name, makeFact);
  const attempts = attemptsTable();
  const attemptsSection = section('Failed attempts', attempts.element);
  const boxes = new Map(BOXES.map((name) => [name, jsonBox(title(name))]));
  const boxSections = BOXES.map((name) => section(title(name), ...boxes.get(name).elements));
  const missing = h(
    'p',
    { class: 'empty', hidden: true },
    'There is no such job. Ended jobs are kept for as long as their queue says.',
  );
  const found = h(
    'div',
    { class: 'job', hidden: true },
    h(
      'div',
      { class: 'row' },
      h('p', { class: 'row job-status' }, status, what, bar),
      h('div', { class: 'row end' }, paused, emit, run, change, cancel, retry),
    ),
    attemptsSection,
    section('Why', why),
    section('Timeline', timeline),
    section('Details', facts, h('details', {}, h('summary', {}, 'Policy, all fields'), policy, internals)),
    boxSections,
  );
  let shown;

  cancel.addEventListener('click', () => act(cancel, () => cancelJob(id, shown.status)));
  retry.addEventListener('click', () => act(retry, () => retryJob(id, stepsOf(shown))));
  emit.addEventListener('click', () => act(emit, () => emitEvent(shown.waits_for)));
  change.addEventListener('click', () => act(change, () => update({ ids: [parse(id)] })));
  run.addEventListener('click', () => act(run, () => runNow(id)));

  function show(row) {
    shown = row;
    showStatus(status, row.status);
    setText(what, `${visible(row.kind)} in ${visible(row.queue)}`);
    cancel.hidden = !LIVE.includes(row.status);
    change.hidden = !['waiting', 'pending'].includes(row.status);
    run.hidden = change.hidden || !(Date.parse(row.run_at) > now());
    emit.hidden = row.waits_for == null;
    retry.hidden = !['failed', 'cancelled'].includes(row.status);
    showProgress(bar, row.progress, () => '');
    // Its list of failed attempts is the table above, its statement the button.
    const [text] = row.explanation.split('\nFailed attempts:');
    const lines = text.replace(/\nTo run it .*/g, '').split('\n');
    const isPolicy = (line) => line.startsWith('Policy: ');
    setText(why, visibleLines(lines.filter((line) => !isPolicy(line)).join('\n')));
    setText(policy, visibleLines(lines.filter(isPolicy).join('\n')));
    paused.hidden = !row.is_queue_paused || (retry.hidden && run.hidden);
    showTimeline(momentsOf(row));
    attemptsSection.hidden = !row.errors?.length;
    const errors = Array.isArray(row.errors) ? row.errors : [];
    attempts.update(
      errors.map((error, n) => ({ error, n, open: n === errors.length - 1 })).reverse(),
    );
    BOXES.forEach((name, n) => {
      const isBar = name === 'progress' && bar.querySelector('progress');
      boxSections[n].hidden = row[name] == null || (isBar && Object.keys(row[name]).length === 2);
      if (row[name] != null) boxes.get(name).update(row[name]);
    });
    const fields = { ...row, ran_for: ranFor(row) };
    const rest = Object.keys(row).filter((name) => !ELSEWHERE.has(name) && !FIRST.includes(name));
    const known = (names) =>
      names.map((name) => [name, fields[name]]).filter(([, value]) => value != null);
    showFacts(known(FIRST));
    showInternals(known(rest));
  }

  return {
    title: `Job ${id}`,
    element: [missing, found],
    concerns: (event) => String(event?.id) === id,
    async read(options) {
      try {
        show(await get(`api/jobs/${id}`, options));
        found.hidden = false;
        missing.hidden = true;
      } catch (error) {
        if (!(error instanceof Problem && error.code === 'PW001')) throw error;
        found.hidden = true;
        missing.hidden = false;
      }
    },
  };
}

/** How long it runs, or its last attempt ran; null: it waits. */
function ranFor({ status, started_at: start, finished_at: finish }) {
  const end = status === 'running' ? now() : Date.parse(finish);
  return start == null || Number.isNaN(end) ? null : duration(end - Date.parse(start));
}

const section = (heading, ...content) =>
  h('section', { class: 'panel', 'aria-label': heading }, h('h2', {}, heading), content);

function makeFact([name]) {
  const value = h('dd');
  return {
    element: h(
      'div',
      {},
      h('dt', {}, name === 'run_at' ? 'Due' : title(name.replace(/_at$/, ''))),
      value,
    ),
    update: ([, fact]) => showFact(value, name, fact),
  };
}

function showFact(cell, name, value) {
  if (name === 'depends_on' && Array.isArray(value)) {
    const text = value.join(' ');
    if (cell.textContent === text) return;
    cell.replaceChildren(
      ...value.flatMap((id) => [h('a', { href: `#/jobs/${id}` }, String(id)), ' ']).slice(0, -1),
    );
  } else if (name.endsWith('_at')) {
    showTime(cell, value);
  } else if (typeof value === 'string' && Object.hasOwn(LINKS, name)) {
    showLink(cell, LINKS[name](value), visible(value));
  } else {
    setText(cell, plain(value, 2000));
  }
}

/** What it has recorded, in that order. */
const stepsOf = ({ steps }) => (Array.isArray(steps) ? steps.map(Object) : []);

/** What happened to a job, and when, the first thing first: [{what, at, after, status}]. */
function momentsOf(row) {
  const errors = Array.isArray(row.errors) ? row.errors : [];
  const steps = stepsOf(row);
  const found = [
    { what: 'created', at: row.created_at },
    ...errors.map((error) => ({
      what: `attempt ${short(error?.attempt)} failed${error?.reason ? `: ${visible(error.reason)}` : ''}`,
      at: error?.at,
      status: 'failed',
    })),
    row.status === 'pending' && { what: 'due', at: row.run_at },
    { what: `attempt ${short(row.attempt)} started`, at: row.started_at, status: 'running' },
    ...steps.map((step) => ({
      what: `${plain(step.kind, 10)} ${plain(step.name, 512)}${step.kind === 'event' && step.until ? ': not in time' : ''}`,
      at: step.at,
      status: 'completed',
      result: step.result,
    })),
    { what: row.status, at: row.finished_at, status: row.status },
  ]
    .filter((moment) => moment && !Number.isNaN(Date.parse(moment.at)))
    .map((moment, n) => ({ ...moment, n }))
    .sort((one, other) => Date.parse(one.at) - Date.parse(other.at) || one.n - other.n);
  return found.map((moment, n) => ({
    ...moment,
    after: n && duration(Date.parse(moment.at) - Date.parse(found[n - 1].at)),
  }));
}

function makeMoment({ what, status, result }) {
  const time = h('span');
  const after = h('span', { class: 'note' });
  const name = h('span', { class: 'status', 'data-status': status ?? 'waiting' }, what);
  return {
    element: h('li', { class: 'row' }, name, time, after, result == null ? [] : folded(result)),
    update(moment) {
      showTime(time, moment.at);
      setText(after, moment.after ? `${moment.after} later` : '');
    },
  };
}

const folded = (result) =>
  h('details', {}, h('summary', {}, 'Result'), h('code', {}, visibleLines(plain(result, 2000))));

/** The attempts that failed, newest first. */
function attemptsTable() {
  const field = (error, name) => {
    const value = Object.hasOwn(Object(error), name) ? error[name] : null;
    return value === null || typeof value === 'string' ? value : short(value, 2000);
  };
  const text = (label, name, type = 'text') => ({
    label,
    type,
    show: (cell, { error }) => setText(cell, visibleLines(field(error, name) ?? '')),
  });
  return table({
    caption: 'Failed attempts, newest first',
    empty: '',
    keyOf: ({ error, n }) => `${field(error, 'at')} ${n}`,
    columns: [
      { ...text('Attempt', 'attempt', 'id'), isHeader: true },
      times('When', ({ error }) => field(error, 'at')),
      text('Reason', 'reason'),
      {
        label: 'Message',
        type: 'whole',
        show(cell, { error, open }) {
          if (cell.firstChild) return; // an attempt that is over does not change
          const message = field(error, 'message') ?? (Object(error) === error ? '' : short(error));
          const traceback = field(error, 'traceback');
          cell.append(h('span', {}, visibleLines(message)));
          if (traceback === null) return;
          const code = h(
            'pre',
            { tabindex: '0', role: 'region', 'aria-label': 'Traceback' },
            visibleLines(traceback),
          );
          cell.append(h('details', { open }, h('summary', {}, 'Traceback'), code));
        },
      },
      text('Worker', 'worker', 'name'),
    ],
  });
}

async function cancelJob(id, status) {
  const question = {
    title: `Cancel job ${id}?`,
    text:
      status === 'running'
        ? 'Its worker is asked to stop it; what it has done so far stays done.'
        : 'It is never run. It can be retried later.',
    action: 'Cancel job',
    isGrave: true,
  };
  if ((await ask(question)) === null) return null;
  const { outcome } = await post(`api/jobs/${id}/cancel`);
  if (outcome === 'cancelled') return `Cancelled job ${id}.`;
  if (outcome === 'cancel_requested') return `Asked the worker of job ${id} to stop it.`;
  return `Job ${id} had already ended: ${visible(outcome)}.`;
}

async function retryJob(id, steps) {
  const names = steps.map(({ name }) => plain(name, 80));
  const froms = [['', 'after its last step'], ...names.map((name, n) => [n, `from ${name} on`])];
  const done = await ask({
    title: `Retry job ${id}?`,
    text: 'It is run again as soon as a worker is free, with all its attempts before it.',
    action: 'Retry job',
    fields: steps.length ? [{ name: 'keep', label: 'Where it goes on', options: froms }] : [],
    attempt: ({ keep }) => post(`api/jobs/${id}/retry`, keep ? { keep_steps: Number(keep) } : {}),
  });
  return done && `Job ${id} is ${visible(done.status)} again.`;
}

async function emitEvent(name) {
  const done = await ask({
    title: `Emit ${visible(name)}?`,
    text: 'All jobs that wait for this event go on, and it stays: only the first of a name counts.',
    action: 'Emit event',
    fields: [{ name: 'payload', label: 'Payload, any JSON', tag: 'textarea', value: 'null' }],
    attempt: ({ payload = 'null' }) =>
      post('api/emit', { name, payload: typedJson('The payload', payload) }),
  });
  if (done === null) return null;
  return done.is_first ? `Emitted ${visible(name)}.` : `${visible(name)} was emitted before: that one counts.`;
}

async function runNow(id) {
  const question = {
    title: `Run job ${id} now?`,
    text:
      'It is due at once. It still waits for the jobs that it depends on, for room in its ' +
      'queue and key, and for a free worker.',
    action: 'Run now',
  };
  if ((await ask(question)) === null) return null;
  const { outcome } = await post(`api/jobs/${id}/run-now`);
  if (outcome === 'updated' || outcome === 'unchanged') return `Job ${id} is due now.`;
  return `Job ${id} was left as it is: ${visible(outcome)}.`;
}
