// A queue's pause: whether it is paused, and the button that changes it.

import { post } from './api.js';
import { ask } from './dialog.js';
import { h, setAttribute, setText } from './dom.js';
import { counted, now, relative, visible } from './format.js';

const DURATIONS = [
  ['', 'until it is resumed'],
  [900, 'for 15 minutes'],
  [3600, 'for an hour'],
  [86_400, 'for a day'],
];

/**
 * The column of a queue's pause.
 *
 * @param {function} act does what a button stands for
 * @param {function} queueOf of an item: {name, isPaused, pausedUntil, running}
 */
export const pauseColumn = (act, queueOf) => ({
  label: 'State',
  type: 'action',
  show(cell, item) {
    if (!cell.firstChild) {
      const button = h('button', { type: 'button' });
      button.addEventListener('click', () => act(button, () => change(cell.queue)));
      cell.replaceChildren(h('span', { class: 'warn' }), button);
    }
    cell.queue = queueOf(item);
    const { name, isPaused, pausedUntil } = cell.queue;
    const [state, button] = cell.children;
    setText(state, isPaused ? pausedWords(pausedUntil) : '');
    state.hidden = !isPaused;
    setText(button, isPaused ? 'Resume' : 'Pause');
    setAttribute(button, 'aria-label', `${button.textContent} ${visible(name)}`);
  },
});

function pausedWords(until) {
  return Date.parse(until) > now() ? `paused, ends ${relative(until)}` : 'paused';
}

/** Pause or resume a queue, once it is confirmed; what came of it, or nothing. */
async function change({ name: queue, isPaused, running }) {
  const name = visible(queue);
  const path = `api/queues/${encodeURIComponent(queue)}`;
  if (isPaused) {
    const text = 'Workers start its jobs again at once.';
    if ((await ask({ title: `Resume ${name}?`, text, action: 'Resume' })) === null) return null;
    await post(`${path}/resume`);
    return `Resumed ${name}.`;
  }
  const given = await ask({
    title: `Pause ${name}?`,
    text:
      `No more of its jobs are started. What runs now (${counted(running, 'job')}) ` +
      'goes on to its end, and jobs can still be enqueued.',
    action: 'Pause',
    fields: [{ name: 'seconds', label: 'How long', options: DURATIONS }],
  });
  if (given === null) return null;
  await post(`${path}/pause`, given.seconds ? { seconds: Number(given.seconds) } : {});
  return `Paused ${name}.`;
}
