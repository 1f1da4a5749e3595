// The problems found, each with the command that mends it: a strip that is there only when something is.

import { Problem, get } from './api.js';
import { h, keyed, setText } from './dom.js';
import { counted, visibleLines } from './format.js';

const PERIOD = 30_000; // milliseconds; the question costs the server more than the others

const CLASSES = { error: 'bad', warning: 'warn', notice: 'note' };

const UNANSWERED = {
  check: 'findings',
  severity: 'warning',
  subject: 'pgwake.diagnose()',
  problem: 'the database did not say in time what is wrong',
  fix: 'pgwake doctor',
};

export function findings() {
  const title = h('h2', {});
  const list = h('ul', {});
  const update = keyed(
    list,
    ({ check, subject }) => JSON.stringify([check, subject]),
    () => {
      const severity = h('strong', {});
      const problem = h('span', {});
      const fix = h('code', {});
      return {
        element: h('li', {}, h('p', {}, severity, ' ', problem), fix),
        update(finding) {
          severity.className = CLASSES[finding.severity];
          setText(severity, finding.severity);
          setText(problem, visibleLines(finding.problem));
          setText(fix, visibleLines(finding.fix));
        },
      };
    },
  );
  const element = h(
    'details',
    { class: 'panel findings', open: true, hidden: true },
    h('summary', {}, title),
    list,
  );
  let readAt = -Infinity;

  async function ask(options) {
    try {
      return (await get('api/findings', options)).findings;
    } catch (error) {
      if (error instanceof Problem && error.status === 503) return [UNANSWERED];
      throw error;
    }
  }

  return {
    element,
    async read(options) {
      if (Date.now() - readAt < PERIOD) return;
      const found = await ask(options);
      readAt = Date.now();
      element.hidden = found.length === 0;
      setText(title, counted(found.length, 'finding'));
      update(found);
    },
  };
}
