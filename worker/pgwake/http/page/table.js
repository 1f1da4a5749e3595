// Tables that are kept up to date in place; on a narrow screen each row is a card.

import { h, keyed, setAttribute, setText, showLink } from './dom.js';
import { address } from './filters.js';
import { count, relative, showTime, visible } from './format.js';
import { plain } from './json.js';

/**
 * A table.
 *
 * Roles are said though they are the elements' own: as cards, some browsers forget them.
 *
 * @param {string} caption what it lists, for those who do not see it
 * @param {Array} columns {label, show(cell, item), type: its classes, isHeader}
 * @param {function} keyOf of an item: its identity
 * @param {string} empty what to say when there is nothing
 * @returns {{element, update(items)}}
 */
export function table({ caption, columns, keyOf, empty }) {
  const body = h('tbody', { role: 'rowgroup' });
  const makeRow = () => {
    const cells = columns.map(({ label, type = 'text', isHeader }) =>
      isHeader
        ? h('th', { scope: 'row', role: 'rowheader', class: type, 'data-label': label })
        : h('td', { role: 'cell', class: type, 'data-label': label }),
    );
    return {
      element: h('tr', { role: 'row' }, cells),
      update(item) {
        columns.forEach(({ show }, n) => show(cells[n], item));
      },
    };
  };
  const show = keyed(body, keyOf, makeRow);
  const head = columns.map(({ label, type = 'text' }) =>
    h('th', { scope: 'col', role: 'columnheader', class: type }, label),
  );
  const nothing = h('p', { class: 'empty' }, empty);
  const whole = h(
    'table',
    { role: 'table', 'aria-label': caption },
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, head)),
    body,
  );
  return {
    element: h('div', { class: 'table' }, whole, nothing),
    update(items) {
      whole.hidden = items.length === 0;
      nothing.hidden = items.length > 0;
      show(items);
    },
    setEmpty: (text) => setText(nothing, text),
  };
}

/** A column of numbers; zeros stand back. */
export const numbers = (label, valueOf, words = (value) => String(value)) => ({
  label,
  type: 'number',
  show(cell, item) {
    const value = valueOf(item);
    setText(cell, value == null ? '' : words(value, item));
    cell.classList.toggle('zero', value != null && Number(value) === 0);
  },
});

/** A column of names, perhaps links; whole in their titles. */
export const names = (label, valueOf, link) => ({
  label,
  type: 'name',
  show(cell, item) {
    const value = valueOf(item);
    if (value == null) {
      cell.replaceChildren();
    } else if (link) {
      showLink(cell, link(value), visible(value), visible(value));
    } else {
      setText(cell, visible(value));
      cell.title = visible(value);
    }
  },
});

/** A column of times. */
export const times = (label, valueOf, words = relative) => ({
  label,
  type: 'number',
  show: (cell, item) => showTime(cell, valueOf(item), (time) => words(time, item)),
});

/** The column of a job's id. */
export const jobIds = {
  label: 'Job',
  type: 'id',
  isHeader: true,
  show: (cell, { id }) => showLink(cell, `#/jobs/${id}`, String(id)),
};

/** A column of a queue's jobs in a status, as a link to them; valueOf: [queue, count]. */
export const jobCounts = (label, status, valueOf) => ({
  label,
  type: 'number',
  show(cell, item) {
    const [queue, number] = valueOf(item);
    const isNone = Number(number) === 0;
    const page = status === 'failed' ? 'failed' : 'jobs';
    const filters = { queue, ...(page === 'jobs' && { status }) };
    if (isNone) setText(cell, '0');
    else showLink(cell, address(page, filters), count(number));
    cell.classList.toggle('zero', isNone);
    cell.classList.toggle('bad', status === 'failed' && !isNone);
  },
});

/**
 * A column of what can be done to an item.
 *
 * @param {function} act does what a button stands for
 * @param {function} nameOf of an item: what each button is of
 * @param {Array} choices {words: a text, or a function of an item, change(item), isFor(item):
 *   whether it is there}, or with link(item), its address, instead of change
 * @param {function} stateOf of an item: a word that warns, or nothing
 */
export const actions = (label, act, nameOf, choices, stateOf = () => '') => ({
  label,
  type: 'action',
  show(cell, item) {
    if (!cell.firstChild) {
      const make = ({ change }) =>
        change
          ? h('button', { type: 'button', onclick: ({ target }) => act(target, () => change(cell.item)) })
          : h('a');
      cell.replaceChildren(h('span', { class: 'warn' }), ...choices.map(make));
    }
    cell.item = item;
    const [state, ...elements] = cell.children;
    setText(state, stateOf(item) || '');
    state.hidden = !state.textContent;
    elements.forEach((element, n) => {
      const { words, link, isFor = () => true } = choices[n];
      setText(element, typeof words === 'string' ? words : words(item));
      setAttribute(element, 'aria-label', `${element.textContent} ${nameOf(item)}`);
      if (link) setAttribute(element, 'href', link(item));
      element.hidden = !isFor(item);
    });
  },
});

/** Policy in words: timeout 60, priority 5. */
export const policy = (given) =>
  Object.entries(given)
    .map(([name, value]) => `${name} ${plain(value)}`)
    .join(', ');
