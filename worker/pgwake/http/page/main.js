// The page: who is logged in, which view is shown, and how fresh it is.

import { Problem, get, session } from './api.js';
import { h, say, setText } from './dom.js';
import { enqueue, schedule } from './enqueue.js';
import { failed } from './failed.js';
import { visibleLines } from './format.js';
import { job } from './job.js';
import { jobs } from './jobs.js';
import { kinds } from './kinds.js';
import { Live } from './live.js';
import { overview } from './overview.js';
import { queues } from './queues.js';
import { schedules } from './schedules.js';
import { running, workers } from './workers.js';

const VIEWS = {
  ...{ '': overview, queues, running, failed, jobs, schedules, kinds, workers },
  ...{ enqueue, schedule },
};
const TOKEN = /^[A-Za-z0-9._~+/=-]{1,256}$/; // what a header can carry

const WITHDRAWN = 'The token is not accepted any more.';

const main = document.getElementById('main');
const navigation = document.getElementById('navigation');
const connection = document.getElementById('connection');
const stale = document.getElementById('stale');

let live = null;
let view = null;
let shownPage = null;
let readAt = null;
const busy = new WeakSet();

/** What the address asks for: {page, make, parameters}. */
function route() {
  const [path, search] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const id = /^jobs\/([0-9]{1,19})$/.exec(path)?.[1];
  if (id) return { page: 'jobs', make: job, parameters: { id } };
  const parameters = Object.fromEntries(new URLSearchParams(search ?? ''));
  if (Object.hasOwn(VIEWS, path)) return { page: path, make: VIEWS[path], parameters };
  return { page: null, make: nowhere, parameters };
}

const nowhere = () => ({
  title: 'No such page',
  element: h(
    'p',
    { class: 'empty' },
    'There is nothing at this address. ',
    h('a', { href: '#/' }, 'Overview'),
  ),
  read: async () => {},
});

function show() {
  live?.stop();
  closeDialogs();
  if (session.token === null) {
    showLogin();
    return;
  }
  const { page, make, parameters } = route();
  view = make(parameters, { act });
  const heading = h('h1', { tabindex: '-1' }, view.title);
  const isFirst = shownPage === null;
  const isSame = shownPage === view.title;
  // A filter's own form is made anew: the focus goes on from the same field.
  const focused = isSame ? fieldOf(document.activeElement) : null;
  shownPage = view.title;
  document.title = `${view.title} - pgwake`;
  for (const link of navigation.children) {
    if (link.hash === `#/${page}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  navigation.hidden = false;
  document.getElementById('session').hidden = false;
  main.replaceChildren(h('div', { class: 'view' }, heading, view.element));
  main.setAttribute('aria-busy', 'true');
  if (focused) (main.querySelector(focused) ?? heading).focus({ preventScroll: true });
  else if (!isFirst) {
    heading.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  start();
}

const closeDialogs = () => document.querySelectorAll('dialog').forEach((dialog) => dialog.close());

function fieldOf(element) {
  if (!main.contains(element)) return null;
  return element.name ? `[name="${CSS.escape(element.name)}"]` : 'form button';
}

function start() {
  live?.stop();
  const { read, concerns = () => true } = view;
  const mine = new Live({
    read: async (signal) => {
      let refusal = null;
      try {
        await read({ signal });
      } catch (error) {
        // What was asked wrongly is no outage.
        if (!(error instanceof Problem && error.status < 500)) throw error;
        refusal = error;
      }
      if (live !== mine) return;
      if (refusal?.status === 401) {
        logOut(WITHDRAWN);
        return;
      }
      showRefusal(refusal);
      readAt = new Date();
      main.removeAttribute('aria-busy');
    },
    concerns,
    show: showState,
  });
  live = mine;
  live.refresh();
}

/** Say that what was asked for is refused; null: it is not, any more. */
function showRefusal(error) {
  const shown = main.querySelector('.refusal');
  if (error === null) shown?.remove();
  else if (shown) setText(shown, visibleLines(error.message));
  else {
    const text = h('p', { class: 'refusal', role: 'alert' }, visibleLines(error.message));
    main.querySelector('h1').after(text);
  }
}

const clock = (time) => new Date(time).toLocaleTimeString(undefined, { hour12: false });

function showState({ name, since, problem }) {
  const isOffline = name === 'offline';
  connection.dataset.status = name;
  setText(connection, isOffline ? `offline since ${clock(since)}` : name);
  connection.title = {
    live: 'Changes are shown as they happen.',
    polling: 'Changes are shown within 5 seconds.',
    offline: 'The server or its database does not answer.',
  }[name];
  if (!isOffline) {
    setText(stale, '');
    return;
  }
  const reason = problem instanceof Problem ? problem.message : 'The server does not answer.';
  const age = readAt ? ` The data is from ${clock(readAt)}.` : '';
  setText(stale, `${visibleLines(reason)}${age} Trying again.`);
}

/** Do what a button stands for, once at a time; say what came of it. */
async function act(button, action) {
  if (busy.has(button)) return;
  busy.add(button);
  try {
    const result = await action();
    if (result === null) return;
    say(result);
  } catch (error) {
    if (error instanceof Problem && error.status === 401) {
      logOut(WITHDRAWN);
      return;
    }
    const reason =
      error instanceof Problem
        ? error.message
        : 'The server does not answer: check whether it was done before you try again.';
    say(visibleLines(reason), true);
  } finally {
    busy.delete(button);
  }
  await live?.refresh();
  const focused = document.activeElement;
  if (focused === document.body || !focused.checkVisibility()) {
    main.querySelector('h1')?.focus(); // what had it is gone
  }
}

function logOut(message = '') {
  live?.stop();
  live = null;
  session.token = null;
  closeDialogs();
  showLogin(message);
}

function showLogin(message = '') {
  shownPage = null;
  readAt = null;
  navigation.hidden = true;
  document.getElementById('session').hidden = true;
  setText(stale, '');
  setText(connection, '');
  document.title = 'Log in - pgwake';
  const problem = h('p', { class: 'refusal', role: 'alert', id: 'problem' });
  const token = h('input', {
    type: 'password',
    name: 'token',
    autocomplete: 'current-password',
    required: true,
    'aria-describedby': 'problem',
  });
  const form = h(
    'form',
    { class: 'login' },
    h('h1', {}, 'Log in'),
    // For password managers, which look for one.
    h('input', { autocomplete: 'username', value: 'pgwake', readonly: true, hidden: true }),
    h('label', {}, 'Token', token),
    h(
      'p',
      { class: 'hint' },
      'It is what PGWAKE_API_TOKEN is set to where the worker runs. ',
      'This tab keeps it until it is closed.',
    ),
    problem,
    h('button', { type: 'submit', class: 'main' }, 'Log in'),
  );
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (busy.has(form)) return;
    busy.add(form);
    problem.textContent = await logIn(token.value.trim());
    busy.delete(form);
    if (problem.textContent) token.select();
  });
  main.replaceChildren(form);
  main.removeAttribute('aria-busy');
  problem.textContent = message;
  token.focus();
}

/** Try a token; what is wrong with it, or nothing. */
async function logIn(token) {
  if (!TOKEN.test(token)) return 'This is not a token: a token has letters, digits and -._~+/= only.';
  try {
    await get('api/queue/stats', { token });
  } catch (error) {
    if (!(error instanceof Problem)) return 'The server does not answer.';
    if (error.status === 401) return 'That token is not accepted.';
    if (error.status < 500) return error.message;
    // Its database is away; the token was accepted.
  }
  session.token = token;
  show();
  return '';
}

document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById('log-out').addEventListener('click', () => logOut());
addEventListener('hashchange', show);
// A page that nobody sees asks for nothing.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) live?.stop();
  else if (live) start();
});
show();
