// The HTTP API, as this page calls it.

import { setClock } from './format.js';
import { parse } from './json.js';

const KEY = 'pgwake.token';
const TIMEOUT = 20_000; // milliseconds

/** What the API answered instead of what was asked for. */
export class Problem extends Error {
  constructor(status, { title, detail, hint, code } = {}) {
    const parts = [detail ?? title ?? `The server answered ${status}.`, hint];
    super(parts.filter(Boolean).join(' '));
    this.status = status;
    this.code = code;
  }
}

export const session = {
  get token() {
    return sessionStorage.getItem(KEY);
  },
  set token(token) {
    if (token == null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, token);
  },
};

/** Send a request; relative, so that the page may lie below any path. */
export async function send(method, path, { body, token = session.token, ...options } = {}) {
  const response = await fetch(path, {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: {
      authorization: `Bearer ${token}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...options.headers,
    },
    cache: 'no-store',
    credentials: 'omit',
    redirect: 'error',
    referrerPolicy: 'no-referrer',
    signal: options.signal,
  });
  if (!response.ok) throw new Problem(response.status, await problemIn(response));
  return response;
}

async function problemIn(response) {
  try {
    return parse(await response.text());
  } catch {
    return {};
  }
}

/**
 * Send a request and read the answer, within 20 s.
 *
 * @param {function} options.read reads JSON text; by default without loss
 */
export async function call(method, path, { read = parse, ...options } = {}) {
  const signals = [AbortSignal.timeout(TIMEOUT), options.signal].filter(Boolean);
  const response = await send(method, path, { ...options, signal: AbortSignal.any(signals) });
  setClock(response.headers.get('date'));
  return read(await response.text());
}

export const get = (path, options) => call('GET', path, options);
export const post = (path, body, options) => call('POST', path, { ...options, body });

/** A path with its query, without the parts that are empty. */
export function query(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value != null && value !== '');
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
