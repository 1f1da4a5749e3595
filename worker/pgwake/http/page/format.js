// What values look like.

import { child, h, setAttribute, setText } from './dom.js';

// What has no shape of its own, or changes the order of what is around it. Joiners stay:
// there are languages that are written with them.
const UNSEEN = new RegExp(
  `[${[
    '\\u0000-\\u001f\\u007f-\\u009f\\u00ad', // controls, the soft hyphen
    '\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069', // directions
    '\\u180e\\u200b\\u2028\\u2029\\u2060-\\u2065\\u206a-\\u206f\\ufeff\\ufff9-\\ufffb',
    '\\ud800-\\udfff\\u{e0000}-\\u{e007f}', // halves of characters, tags
  ].join('')}]`,
  'gu',
);

const escape = (character) =>
  [...Array(character.length).keys()]
    .map((n) => `\\u${character.charCodeAt(n).toString(16).padStart(4, '0')}`)
    .join('');

/** Text of a line, with what can't be seen written out: \u202e. */
export const visible = (text) => String(text).replace(UNSEEN, escape);

/** The same of several lines. */
export const visibleLines = (text) =>
  String(text).replace(UNSEEN, (it) => (it === '\n' || it === '\t' ? it : escape(it)));

const grouped = new Intl.NumberFormat('en');

/** A count: 12,345. */
export const count = (number) => grouped.format(Number(number));

/** A count of things: 1 job, 2 jobs. */
export const counted = (number, one, many = `${one}s`) =>
  `${count(number)} ${Number(number) === 1 ? one : many}`;

/** So many a second. */
export function rate(perSecond) {
  if (perSecond == null) return '';
  const number = Number(perSecond);
  if (number === 0) return '0/s';
  if (number < 0.1) return '<0.1/s';
  return `${number < 10 ? number.toFixed(1) : grouped.format(Math.round(number))}/s`;
}

/** A duration: 12 ms, 3.4 s, 5 min, 2 h 10 min, 3 d 4 h. */
export function duration(milliseconds) {
  if (milliseconds == null) return '';
  const ms = Math.max(0, Number(milliseconds));
  if (ms < 1) return '<1 ms';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  if (days < 10 && hours % 24) return `${days} d ${hours % 24} h`;
  return `${grouped.format(days)} d`;
}

/** How much the server's clock is ahead of the browser's, in milliseconds. */
let ahead = 0;

/** Learn it from the Date of an answer, which is cut to the second. */
export function setClock(date) {
  const difference = Date.parse(date) + 500 - Date.now();
  if (Math.abs(difference - ahead) > 2000) ahead = difference;
}

/** The server's time. */
export const now = () => Date.now() + ahead;

/** How long ago, or in how long. */
export function relative(time) {
  const passed = now() - Date.parse(time);
  const seconds = Math.floor(Math.abs(passed) / 1000);
  if (seconds < 1) return 'now';
  const length = seconds < 60 ? `${seconds} s` : duration(seconds * 1000);
  return passed < 0 ? `in ${length}` : `${length} ago`;
}

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' });

/** Show a time in an element: as it is said, with the exact one in its title. */
export function showTime(parent, time, words = relative) {
  if (time == null) {
    parent.replaceChildren();
    return;
  }
  const element = child(parent, 'time');
  if (Number.isNaN(Date.parse(time))) {
    setText(element, visible(time));
    return;
  }
  setAttribute(element, 'datetime', time);
  setAttribute(element, 'title', `${absolute.format(new Date(time))}\n${time}`);
  setText(element, words(time));
}

/** Show a status in an element: its word and its mark. */
export function showStatus(parent, status) {
  const element = child(parent, 'span', { class: 'status' });
  setAttribute(element, 'data-status', status);
  setText(element, status);
}

/** Show progress in an element: a bar for {done, of}, else the value. */
export function showProgress(parent, progress, text) {
  const done = Number(progress?.done);
  const of = Number(progress?.of);
  if (!(done >= 0 && of > 0)) {
    setText(parent, progress == null ? '' : text(progress));
    return;
  }
  if (!parent.querySelector('progress')) {
    parent.replaceChildren(
      h('span', {}, h('progress', { 'aria-label': 'Progress' }), ' ', h('span')),
    );
  }
  const [bar, label] = parent.firstElementChild.children;
  setAttribute(bar, 'max', of);
  setAttribute(bar, 'value', Math.min(done, of));
  setText(label, `${count(done)} of ${count(of)}`);
}

/** A column's name as a label: unique_key is Unique key. */
export const title = (name) => name[0].toUpperCase() + name.slice(1).replaceAll('_', ' ');
