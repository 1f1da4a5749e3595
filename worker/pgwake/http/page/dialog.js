// A question before something is done.

import { Problem } from './api.js';
import { h, setText } from './dom.js';
import { field, valuesOf } from './fields.js';
import { visibleLines } from './format.js';

/**
 * Ask; resolves to what the attempt does, or to null if the question is left. What the
 * server refuses is said in the dialog, so that what was typed can be mended.
 *
 * @param {string} title
 * @param {string} text what will happen
 * @param {string} action what the button says
 * @param {boolean} isGrave whether it destroys something
 * @param {Array} fields to fill in: see field()
 * @param {function} attempt of what the fields hold, without those left empty, and a function
 *   that it tells how far it is, which answers whether it is to go on
 */
export function ask({ title, text, action, isGrave, fields = [], attempt = (given) => given }) {
  const inputs = fields.map(field);
  const leave = h(
    'button',
    { type: 'button', onclick: () => dialog.close() },
    'Keep as it is',
  );
  const button = h('button', { class: isGrave ? 'grave' : 'main' }, action);
  const tell = (progress) => {
    setText(button, progress);
    return dialog.open;
  };
  const problem = h('p', { class: 'refusal', role: 'alert' });
  const form = h(
    'form',
    {},
    h('h2', { id: 'question' }, title),
    h('p', { id: 'consequence' }, text),
    inputs,
    problem,
    h(
      'div',
      { class: 'row end' },
      leave,
      button,
    ),
  );
  const dialog = h(
    'dialog',
    { 'aria-labelledby': 'question', 'aria-describedby': 'consequence' },
    form,
  );
  document.body.append(dialog);
  dialog.showModal();
  (inputs[0]?.lastElementChild ?? leave).focus();
  let done = null; // a promise, once it is tried
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (done) return;
    done = Promise.resolve(valuesOf(form)).then((given) => attempt(given, tell));
    try {
      await done;
    } catch (error) {
      if (dialog.open && error instanceof Problem && error.status !== 401) {
        done = null;
        setText(button, action);
        setText(problem, visibleLines(error.message));
        return;
      }
    }
    dialog.close();
  });
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(done);
    });
  });
}
