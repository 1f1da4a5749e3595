// A queue's pause: whether it is paused, and the button that changes it.

import { post } from './api.js';
import { ask } from './dialog.js';
import { counted, now, relative, visible } from './format.js';
import { actions } from './table.js';

const DURATIONS = [
  ['', 'until it is resumed'],
  [900, 'for 15 minutes'],
  [3600, 'for an hour'],
  [86_400, 'for a day'],
];

// Queues are listed with these names, and counted with others.
const nameOf = ({ name, queue }) => name ?? queue;
const runningOf = (row) => Number(row.running_count ?? row.active_tasks);

/** The column of a queue's pause, and of what else can be done to it: see actions(). */
export const pauseColumn = (act, others = []) =>
  actions(
    'State',
    act,
    (row) => visible(nameOf(row)),
    [...others, { words: (row) => (row.is_paused ? 'Resume' : 'Pause'), change: pauseOrResume }],
    (row) => (row.is_paused ? pausedWords(row) : ''),
  );

function pausedWords(row) {
  const until = Date.parse(row.paused_until) > now() && `ends ${relative(row.paused_until)}`;
  return ['paused', until, `${runningOf(row) || 'none'} running`].filter(Boolean).join(', ');
}

/** Pause or resume a queue, once it is confirmed; what came of it, or nothing. */
async function pauseOrResume(row) {
  const queue = nameOf(row);
  const name = visible(queue);
  const path = `api/queues/${encodeURIComponent(queue)}`;
  if (row.is_paused) {
    const text = 'Workers start its jobs again at once.';
    const attempt = () => post(`${path}/resume`);
    const done = await ask({ title: `Resume ${name}?`, text, action: 'Resume', attempt });
    return done && `Resumed ${name}.`;
  }
  const running = runningOf(row);
  const done = await ask({
    title: `Pause ${name}?`,
    text:
      `No more of its jobs are started. What runs now (${counted(running, 'job')}) ` +
      'goes on to its end, and jobs can still be enqueued. It is drained when none is running.',
    action: 'Pause',
    fields: [{ name: 'seconds', label: 'How long', options: DURATIONS }],
    attempt: ({ seconds }) => post(`${path}/pause`, seconds ? { seconds: Number(seconds) } : {}),
  });
  return done && `Paused ${name}.`;
}
