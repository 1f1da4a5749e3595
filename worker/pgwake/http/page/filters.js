// Filters that stand in the address, so that going back undoes them.

import { h } from './dom.js';
import { field, valuesOf } from './fields.js';

/** The hash of a page with these parameters, without those that are empty. */
export function address(page, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value != null && value !== '');
  return `#/${page}${given.length ? `?${new URLSearchParams(given)}` : ''}`;
}

/**
 * A form of filters.
 *
 * @param {string} page that it filters
 * @param {Array} fields {name, label, options: those of a select; without, it is free text}
 * @param {object} parameters what holds now
 */
export function filterForm(page, fields, parameters) {
  const inputs = fields.map(({ options, ...rest }) =>
    field({
      ...rest,
      ...(options
        ? { options: options.map((value) => [value, value || 'any']) }
        : { type: 'search' }),
      value: parameters[rest.name],
    }),
  );
  const apply = () => {
    location.hash = address(page, valuesOf(form));
  };
  const isFiltered = fields.some(({ name }) => parameters[name]);
  const form = h(
    'form',
    { class: 'row', role: 'search', 'aria-label': 'Filter' },
    inputs,
    h('button', { type: 'submit' }, 'Filter'),
    isFiltered && h('a', { href: address(page) }, 'Clear'),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    apply();
  });
  form.addEventListener('change', (event) => {
    if (event.target.localName === 'select') apply();
  });
  return form;
}
