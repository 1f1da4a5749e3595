// The schedules: their ticks, and what came of them.

import { get, post } from './api.js';
import { ask } from './dialog.js';
import { h, setText, showLink } from './dom.js';
import { address } from './filters.js';
import { count, duration, visible, visibleLines } from './format.js';
import { actions, names, numbers, table, times } from './table.js';

const ticks = ({ cron, every_seconds: every, timezone }) =>
  cron == null ? `every ${duration(Number(every) * 1000)}` : `${cron} ${timezone}`;

export function schedules(_, { act }) {
  const list = table({
    caption: 'Schedules',
    empty: 'There are no schedules. Add one, here or by pgwake schedule add.',
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
      actions(
        'State',
        act,
        ({ name }) => visible(name),
        [
          { words: 'Run now', change: run },
          {
            words: (schedule) => (schedule.is_paused ? 'Resume' : 'Pause'),
            change: (schedule) => (schedule.is_paused ? resume : pause)(schedule),
          },
          { words: 'Remove', change: remove },
        ],
        (schedule) => schedule.is_paused && 'paused',
      ),
    ],
  });
  const add = h('p', {}, h('a', { class: 'button', href: '#/schedule' }, 'Add a schedule'));
  return {
    title: 'Schedules',
    element: h('section', { class: 'panel', 'aria-label': 'Schedules' }, list.element, add),
    async read(options) {
      list.update((await get('api/schedules', options)).schedules);
    },
  };
}

const path = ({ name }, change) => `api/schedules/${encodeURIComponent(name)}/${change}`;

async function run(schedule) {
  const name = visible(schedule.name);
  const text = 'A job of it is made at once; its ticks stay as they are.';
  const attempt = () => post(path(schedule, 'run'));
  const done = await ask({ title: `Run ${name} now?`, text, action: 'Run now', attempt });
  if (done === null) return null;
  const { job_id: id } = done;
  return id == null ? `${name} was not run: its last job is live.` : `${name} runs as job ${id}.`;
}

const change = (action, isGrave, text, done) => async (schedule) => {
  const name = visible(schedule.name);
  const attempt = () => post(path(schedule, action.toLowerCase()));
  const title = `${action} ${name}?`;
  return (await ask({ title, text, action, isGrave, attempt })) && `${done} ${name}.`;
};
const pause = change('Pause', false, 'It fires nothing until it is resumed. Its jobs stay.', 'Paused');
const resume = change('Resume', false, 'Ticks that were missed are not fired.', 'Resumed');
const remove = change('Remove', true, 'It fires nothing more, and is gone. Its jobs stay.', 'Removed');
