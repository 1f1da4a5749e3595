// When to read anew: on news from the server, else each few seconds.

import { Problem, send } from './api.js';
import { parse } from './json.js';

const PAUSE = 1000; // milliseconds between two reads, whatever comes
const PERIOD = 5000; // and at most so many
const SILENCE = 45_000; // without a heartbeat: the stream is dead
const FIRST_RETRY = 500;
const LAST_RETRY = 15_000;

/** Read a stream of server-sent events. */
async function* eventsOf(response, isAlive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let event = {};
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      isAlive();
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === '') {
          if (event.data !== undefined || event.event) yield event;
          event = {};
          continue;
        }
        const [, name, text] = /^([^:]*):? ?(.*)$/s.exec(line);
        if (name === 'data' && event.data !== undefined) event.data += `\n${text}`;
        else if (name) event[name] = text;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Keeps what is shown fresh, until it is stopped.
 *
 * @param {function} read reads what is shown, anew, until a signal that it gets; its errors
 *   tell that the server is away
 * @param {function} concerns whether an event's data has to do with what is shown
 * @param {function} show is told the state: {name: live | polling | offline, since, error}
 */
export class Live {
  #read;
  #concerns;
  #show;
  #stopping = new AbortController();
  #timer;
  #isReading = false;
  #isWanted = false;
  #readAt = 0;
  #isStreaming = false;
  #since; // when the server was lost; null: it is there; undefined: not yet known
  #lastId = null;

  constructor({ read, concerns, show }) {
    this.#read = read;
    this.#concerns = concerns;
    this.#show = show;
    this.#stream();
  }

  stop() {
    this.#stopping.abort();
    clearTimeout(this.#timer);
  }

  /** Read anew now, or as soon as what is being read has come. */
  async refresh() {
    if (this.#isReading) {
      this.#isWanted = true;
      return;
    }
    clearTimeout(this.#timer);
    this.#isReading = true;
    this.#isWanted = false;
    this.#readAt = Date.now();
    let problem;
    try {
      await this.#read(this.#stopping.signal);
    } catch (error) {
      problem = error;
    }
    this.#isReading = false;
    if (this.#stopping.signal.aborted) return;
    this.#tell(problem);
    this.#plan(this.#isWanted ? PAUSE : PERIOD);
  }

  /** Read anew, at most once a second. */
  #news() {
    if (this.#isReading) this.#isWanted = true;
    else this.#plan(PAUSE);
  }

  #plan(after) {
    clearTimeout(this.#timer);
    const wait = Math.max(0, this.#readAt + after - Date.now());
    this.#timer = setTimeout(() => this.refresh(), wait);
  }

  #tell(problem) {
    this.#since = problem === undefined ? null : (this.#since ?? Date.now());
    this.#showState(problem);
  }

  #showState(problem) {
    if (this.#since === undefined) return;
    const name = this.#since ? 'offline' : this.#isStreaming ? 'live' : 'polling';
    this.#show({ name, since: this.#since, problem });
  }

  async #stream() {
    let retry = FIRST_RETRY;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        await this.#listen(() => {
          retry = FIRST_RETRY;
        });
      } catch (error) {
        // A wrong token is told by what is read.
        if (error instanceof Problem) retry = LAST_RETRY;
      }
      if (signal.aborted) return;
      this.#setStreaming(false);
      await new Promise((resolve) => {
        setTimeout(resolve, retry * (0.5 + Math.random() / 2));
      });
      retry = Math.min(retry * 2, LAST_RETRY);
    }
  }

  async #listen(hasBegun) {
    const dead = new AbortController();
    let watch;
    const isAlive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => dead.abort(), SILENCE);
    };
    isAlive();
    try {
      const response = await send('GET', 'api/events', {
        headers: {
          accept: 'text/event-stream',
          ...(this.#lastId && { 'last-event-id': this.#lastId }),
        },
        signal: AbortSignal.any([this.#stopping.signal, dead.signal]),
      });
      hasBegun();
      this.#setStreaming(true);
      this.#news(); // what happened since the last read
      for await (const { event, data, id } of eventsOf(response, isAlive)) {
        if (id) this.#lastId = id;
        this.#take(event, data);
      }
    } finally {
      clearTimeout(watch);
    }
  }

  #take(event, data) {
    if (event === 'job_status_changed') {
      if (this.#concerns(parse(data))) this.#news();
    } else {
      this.#setStreaming(event !== 'poll'); // the server itself may hear nothing
      this.#news();
    }
  }

  #setStreaming(isStreaming) {
    if (this.#isStreaming === isStreaming) return;
    this.#isStreaming = isStreaming;
    if (!this.#since) this.#showState();
  }
}
