// A question before something is done.

import { h } from './dom.js';
import { field, valuesOf } from './fields.js';

/**
 * Ask; resolves to what the fields hold, without those left empty, or to null if it is left.
 *
 * @param {string} title
 * @param {string} text what will happen
 * @param {string} action what the button says
 * @param {boolean} isGrave whether it destroys something
 * @param {Array} fields to fill in: see field()
 */
export function ask({ title, text, action, isGrave = false, fields = [] }) {
  const inputs = fields.map(field);
  const leave = h(
    'button',
    { type: 'button', onclick: () => dialog.close() },
    'Keep as it is',
  );
  const form = h(
    'form',
    { method: 'dialog' },
    h('h2', { id: 'question' }, title),
    h('p', { id: 'consequence' }, text),
    inputs,
    h(
      'div',
      { class: 'row end' },
      leave,
      h('button', { value: 'yes', class: isGrave ? 'grave' : 'main' }, action),
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
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes' ? valuesOf(form) : null);
    });
  });
}
