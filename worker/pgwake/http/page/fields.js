// Labelled inputs of forms.

import { Problem } from './api.js';
import { h } from './dom.js';
import { visible } from './format.js';
import { parse } from './json.js';

/**
 * A labelled input.
 *
 * @param {string} name
 * @param {string} label
 * @param {Array} options those of a select: [value, label]; without, it is free text
 * @param {string} tag of free text: input, or textarea
 * @param {string} value what it holds at first
 */
export function field({ name, label, options, tag = 'input', value = '', ...attributes }) {
  const input = options
    ? h(
        'select',
        { name, ...attributes },
        options.map(([option, words]) => h('option', { value: option }, words)),
      )
    : h(tag, { name, autocomplete: 'off', spellcheck: 'false', ...attributes });
  input.value = value;
  return h('label', {}, label, input);
}

/** What JSON that was typed means; throws a Problem. */
export function typedJson(what, text) {
  try {
    return parse(text);
  } catch {
    throw new Problem(422, { detail: `${visible(what)} is not JSON: ${visible(text)}` });
  }
}

/** What a form's fields hold, without those that are empty. */
export const valuesOf = (form) =>
  Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ''));
