// JSON without loss: numbers that JavaScript would round keep their text.

import { h, setText } from './dom.js';
import { counted, visible } from './format.js';

const CLIP = 20_000; // characters that are shown at first
const DEEPEST_INDENT = 40;

/** A number that is not what JavaScript makes of it; it counts as that all the same. */
class Exact {
  constructor(text) {
    this.text = text;
  }
  valueOf() {
    return Number(this.text);
  }
  toString() {
    return this.text;
  }
  toJSON() {
    return JSON.rawJSON(this.text);
  }
}

const keepExact = (_, value, context) =>
  typeof value === 'number' && context && context.source !== String(value)
    ? new Exact(context.source)
    : value;

/** Parse JSON. What is nested too deep for exactness is read without. */
export function parse(text) {
  try {
    return JSON.parse(text, keepExact);
  } catch (error) {
    if (error instanceof RangeError) return JSON.parse(text);
    throw error;
  }
}

const scalar = (value) =>
  value instanceof Exact ? value.text : visible(JSON.stringify(value) ?? 'null');

const isScalar = (value) => value === null || typeof value !== 'object' || value instanceof Exact;

/** Write JSON on one line, at most so many characters of it. */
export const short = (value, length = 80) => write(value, length, () => '', ' ');

/** The same, but a text alone without quotation marks. */
export const plain = (value, length) =>
  typeof value === 'string' ? visible(value) : short(value, length);

/** Write JSON on indented lines. */
const pretty = (value) =>
  write(value, Infinity, (depth) => `\n${'  '.repeat(Math.min(depth, DEEPEST_INDENT))}`, '');

/** Goes by a stack of its own: nothing is nested too deep for it. */
function write(value, length, newLine, gap) {
  const work = [{ value, depth: 0 }];
  let text = '';
  while (work.length && text.length <= length) {
    const item = work.pop();
    if (typeof item === 'string') {
      text += item;
    } else if (isScalar(item.value)) {
      text += scalar(item.value);
    } else {
      const isArray = Array.isArray(item.value);
      const [open, close] = isArray ? '[]' : '{}';
      const members = Object.entries(item.value);
      const depth = item.depth + 1;
      text += open;
      work.push(members.length ? newLine(item.depth) + close : close);
      for (let n = members.length - 1; n >= 0; n -= 1) {
        const [name, member] = members[n];
        work.push({ value: member, depth });
        const label = isArray ? '' : `${scalar(name)}: `;
        work.push((n ? `,${gap}` : '') + newLine(depth) + label);
      }
    }
  }
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

/**
 * A box that shows JSON, its beginning only if it is long.
 *
 * @returns {{elements, update(value)}}
 */
export function jsonBox(label) {
  let shown;
  let isWhole = false;
  const box = h('pre', { tabindex: '0', role: 'region', 'aria-label': label });
  const more = h('button', { type: 'button', hidden: true }, '');
  const show = () => {
    const isLong = shown.length > CLIP && !isWhole;
    setText(box, isLong ? `${shown.slice(0, CLIP)}…` : shown);
    more.hidden = !isLong;
    more.textContent = `Show all ${counted(shown.length, 'character')}`;
  };
  more.addEventListener('click', () => {
    isWhole = true;
    show();
    box.focus();
  });
  return {
    elements: [box, more],
    update(value) {
      const text = pretty(value);
      if (text === shown) return;
      shown = text;
      show();
    },
  };
}
