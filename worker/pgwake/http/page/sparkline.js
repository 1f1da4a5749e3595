// Charts of the last half hour: small ones in tables, larger ones with an axis.

import { h, setAttribute, setText } from './dom.js';
import { duration, now } from './format.js';

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 120;
const HEIGHT = 24;
const FEWEST = 18; // samples that the width stands for, so that a few don't look like many
const PERIOD = 10_000; // milliseconds between samples

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Where samples stand: {start, length, x(n)}; the last one at the right end. */
function scale({ length: known }) {
  const length = Math.max(known, FEWEST);
  const start = length - known;
  return { start, length, x: (n) => (((start + n) / (length - 1)) * WIDTH).toFixed(1) };
}

/** The path of the line, and of what is below it; null leaves a gap. */
function paths(values, top) {
  const { x } = scale(values);
  const y = (value) => (HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1);
  let line = '';
  let area = '';
  let from = null;
  values.forEach((value, n) => {
    if (value == null) return;
    if (from === null) {
      from = n;
      line += `M${x(n)} ${y(value)}`;
      area += `M${x(n)} ${HEIGHT}L${x(n)} ${y(value)}`;
    } else {
      line += `L${x(n)} ${y(value)}`;
      area += `L${x(n)} ${y(value)}`;
    }
    if (values[n + 1] == null) {
      if (from === n) line += `h1`; // a point of its own
      area += `L${x(n)} ${HEIGHT}Z`;
      from = null;
    }
  });
  return [area, line];
}

/**
 * A sparkline.
 *
 * @param {function} point is told which value the pointer is at: its place; null: at none
 * @returns {{element, update(values, what, words)}} what the values are, and how one is
 *   said, for the text that stands for the picture
 */
export function sparkline(point) {
  const area = svg('path', { stroke: 'none' });
  const line = svg('path', { fill: 'none', 'vector-effect': 'non-scaling-stroke' });
  const mark = svg('path', { class: 'mark', 'vector-effect': 'non-scaling-stroke' });
  const element = svg('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: 'none',
    role: 'img',
  });
  element.append(area, line, mark);
  let shown = [];
  const leave = () => {
    setAttribute(mark, 'd', null);
    point(null);
  };
  element.addEventListener('pointermove', ({ clientX }) => {
    const { left, width } = element.getBoundingClientRect();
    const { start, length, x } = scale(shown);
    const n = Math.round(((clientX - left) / width) * (length - 1)) - start;
    if (n < 0 || n >= shown.length) {
      leave();
      return;
    }
    setAttribute(mark, 'd', `M${x(n)} 0V${HEIGHT}`);
    point(n);
  });
  element.addEventListener('pointerleave', leave);
  return {
    element,
    update(values, what, words) {
      if (values === shown) return;
      shown = values;
      const known = values.filter((value) => value != null).map(Number);
      const top = Math.max(...known, 0);
      const [below, above] = paths(values, top || 1);
      setAttribute(area, 'd', below);
      setAttribute(line, 'd', above);
      const text = known.length
        ? `${what}: last ${words(known.at(-1))}, highest ${words(top)}`
        : `${what}: nothing yet`;
      setAttribute(element, 'aria-label', text);
      return top;
    },
  };
}

export const last = (values) => values?.findLast((value) => value != null);

/**
 * A value beside its sparkline: the last one, or the one that the pointer is at.
 *
 * @returns {{line, value, update(values, what, words, at)}} at: the times of the values
 */
export function readout() {
  const value = h('span', { class: 'note' });
  let shown = null;
  const show = (n) => {
    if (shown === null) return;
    const { values, words, at } = shown;
    const time = n === null ? null : new Date(at[n]).toLocaleTimeString(undefined, { hour12: false });
    setText(value, words(n === null ? last(values) : values[n]) || '–');
    setAttribute(value, 'data-time', time);
  };
  const { element, update } = sparkline(show);
  return {
    line: element,
    value,
    update(values, what, words, at) {
      if (values === shown?.values) return null;
      shown = { values, words, at };
      show(null);
      return update(values, what, words);
    },
  };
}

/** A chart with its axis, under its name. */
export function chart(what, words) {
  const { line, value, update } = readout();
  const top = h('span', { class: 'top' });
  const from = h('span');
  const element = h(
    'figure',
    {},
    h('figcaption', { class: 'row' }, what, value),
    h('div', { class: 'plot' }, line, top),
    h('div', { class: 'row axis', 'aria-hidden': 'true' }, from, h('span', { class: 'end' }, 'now')),
  );
  return {
    element,
    update(values, at) {
      const highest = update(values, what, words, at);
      if (highest === null) return;
      setText(top, words(highest));
      const first = Math.min(Date.parse(at[0] ?? ''), now() - (FEWEST - 1) * PERIOD);
      setText(from, Number.isNaN(first) ? '' : `${duration(now() - first)} ago`);
    },
  };
}
