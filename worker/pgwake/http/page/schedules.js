// The schedules: their ticks, and what came of them.

import { get, post } from './api.js';
import { ask } from './dialog.js';
import { h, setAttribute, setText, showLink } from './dom.js';
import { address } from './filters.js';
import { count, duration, visible, visibleLines } from './format.js';
import { names, numbers, table, times } from './table.js';

const ticks = ({ cron, every_seconds: every, timezone }) =>
  cron == null ? `every ${duration(Number(every) * 1000)}` : `${cron} ${timezone}`;

export function schedules(_, { act }) {
  const list = table({
    caption: 'Schedules',
    empty: 'There are no schedules. Add one: pgwake schedule add NAME KIND --cron "30 2 * * *"',
    keyOf: ({ name }) => name,
    columns: [
      { ...names('Schedule', ({ name }) => name), isHeader: true },
      names('Ticks', ticks),
      names(
        'Kind',
        ({ kind }) => kind,
        (kind) => address('jobs', { kind }),
      ),
      names('Queue', ({ queue }) => queue),
      times('Next', (schedule) => schedule.next_at),
      times('Last', (schedule) => schedule.last_at),
      {
        label: 'Last job',
        type: 'number',
        show(cell, { last_job_id: id }) {
          if (id == null) cell.replaceChildren();
          else showLink(cell, `#/jobs/${id}`, String(id));
        },
      },
      numbers('Fired', (schedule) => schedule.fired_count, count),
      numbers('Left out', (schedule) => schedule.left_out_count, count),
      {
        label: 'Problem',
        type: 'message',
        show(cell, { problem }) {
          setText(cell, visibleLines(problem ?? ''));
          cell.classList.toggle('bad', problem != null);
        },
      },
      { label: 'State', type: 'action', show: (cell, schedule) => showState(cell, schedule, act) },
    ],
  });
  return {
    title: 'Schedules',
    element: h('section', { class: 'panel', 'aria-label': 'Schedules' }, list.element),
    async read(options) {
      list.update((await get('api/schedules', options)).schedules);
    },
  };
}

function showState(cell, schedule, act) {
  if (!cell.firstChild) {
    const button = (change) =>
      h('button', { type: 'button', onclick: ({ target }) => act(target, () => change(cell.schedule)) });
    cell.replaceChildren(h('span', { class: 'warn' }, 'paused'), button(run), button(pauseOrResume));
  }
  cell.schedule = schedule;
  const [state, runs, pauses] = cell.children;
  state.hidden = !schedule.is_paused;
  setText(runs, 'Run now');
  setText(pauses, schedule.is_paused ? 'Resume' : 'Pause');
  for (const button of [runs, pauses]) {
    setAttribute(button, 'aria-label', `${button.textContent} ${visible(schedule.name)}`);
  }
}

const path = ({ name }, change) => `api/schedules/${encodeURIComponent(name)}/${change}`;

async function run(schedule) {
  const name = visible(schedule.name);
  const text = 'A job of it is made at once; its ticks stay as they are.';
  if ((await ask({ title: `Run ${name} now?`, text, action: 'Run now' })) === null) return null;
  const { job_id: id } = await post(path(schedule, 'run'));
  return id == null ? `${name} was not run: its last job is live.` : `${name} runs as job ${id}.`;
}

async function pauseOrResume(schedule) {
  const name = visible(schedule.name);
  if (schedule.is_paused) {
    const text = 'Ticks that it missed meanwhile are not made up.';
    if ((await ask({ title: `Resume ${name}?`, text, action: 'Resume' })) === null) return null;
    await post(path(schedule, 'resume'));
    return `Resumed ${name}.`;
  }
  const text = 'It fires nothing until it is resumed. Its jobs stay.';
  if ((await ask({ title: `Pause ${name}?`, text, action: 'Pause' })) === null) return null;
  await post(path(schedule, 'pause'));
  return `Paused ${name}.`;
}
