// A question before something is done.

import { h } from './dom.js';

/**
 * Ask; resolves to the choice, or to null when it is left.
 *
 * @param {string} title
 * @param {string} text what will happen
 * @param {string} action what the button says
 * @param {boolean} isGrave whether it destroys something
 * @param {{label, options: Array}} choice of [value, label]; without: resolves to true
 */
export function ask({ title, text, action, isGrave = false, choice }) {
  const select =
    choice &&
    h(
      'select',
      { name: 'choice' },
      choice.options.map(([value, label]) => h('option', { value }, label)),
    );
  const leave = h('button', {}, 'Keep as it is');
  const form = h(
    'form',
    { method: 'dialog' },
    h('h2', { id: 'question' }, title),
    h('p', { id: 'consequence' }, text),
    choice && h('label', {}, choice.label, select),
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
  (select ?? leave).focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes' ? (select?.value ?? true) : null);
    });
  });
}
