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
  const { promise, resolve } = withResolvers();
  const select =
    choice &&
    h(
      'select',
      { name: 'choice' },
      choice.options.map(([value, label]) => h('option', { value }, label)),
    );
  const leave = h('button', { type: 'button', onclick: () => dialog.close() }, 'Keep as it is');
  const form = h(
    'form',
    {},
    h('h2', { id: 'question' }, title),
    h('p', { id: 'consequence' }, text),
    choice && h('label', {}, choice.label, select),
    h(
      'div',
      { class: 'buttons' },
      leave,
      h('button', { type: 'submit', class: isGrave ? 'grave' : 'main' }, action),
    ),
  );
  const dialog = h(
    'dialog',
    { 'aria-labelledby': 'question', 'aria-describedby': 'consequence' },
    form,
  );
  let answer = null;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    answer = select ? select.value : true;
    dialog.close();
  });
  dialog.addEventListener('close', () => {
    dialog.remove();
    resolve(answer);
  });
  document.body.append(dialog);
  dialog.showModal();
  (select || leave).focus();
  return promise;
}

function withResolvers() {
  let resolve;
  const promise = new Promise((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}
