// Small charts of the last half hour.

import { setAttribute } from './dom.js';

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 120;
const HEIGHT = 24;
const FEWEST = 18; // samples that the width stands for, so that a few don't look like many

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** The path of the line, and of what is below it; null leaves a gap. */
function paths(values, top) {
  const length = Math.max(values.length, FEWEST);
  const start = length - values.length;
  const x = (n) => (((start + n) / (length - 1)) * WIDTH).toFixed(1);
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
 * @returns {{element, update(values, what, words)}} what the values are, and how one is
 *   said, for the text that stands for the picture
 */
export function sparkline() {
  const area = svg('path', { stroke: 'none' });
  const line = svg('path', { fill: 'none', 'vector-effect': 'non-scaling-stroke' });
  const element = svg('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: 'none',
    role: 'img',
  });
  element.append(area, line);
  let shown;
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
    },
  };
}
