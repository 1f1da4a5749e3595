// The kinds, those without a live worker first.

import { get } from './api.js';
import { h, setText } from './dom.js';
import { address } from './filters.js';
import { count, visible } from './format.js';
import { actions, names, numbers, policy, table, times } from './table.js';

export function kinds() {
  const list = table({
    caption: 'Kinds',
    empty: 'No kind is known: no worker has reported itself. Start one: pgwake run --import MODULE',
    keyOf: ({ name }) => name,
    columns: [
      {
        ...names(
          'Kind',
          ({ name }) => name,
          (kind) => address('jobs', { kind }),
        ),
        isHeader: true,
      },
      {
        label: 'Workers',
        type: 'number',
        show(cell, { workers }) {
          setText(cell, Number(workers) ? count(workers) : 'none');
          cell.classList.toggle('bad', !Number(workers));
        },
      },
      numbers('Given back', (kind) => kind.bounce_count, count),
      times('Last given back', (kind) => kind.bounced_at),
      names('Declared', ({ declared }) => policy(declared)),
      names('Overridden', ({ overrides }) => policy(overrides)),
      actions('Action', null, ({ name }) => visible(name), [
        { words: 'Enqueue', link: ({ name: kind }) => address('enqueue', { kind }) },
        { words: 'Schedule', link: ({ name: kind }) => address('schedule', { kind }) },
      ]),
    ],
  });
  return {
    title: 'Kinds',
    element: h('section', { class: 'panel', 'aria-label': 'Kinds' }, list.element),
    async read(options) {
      const found = (await get('api/kinds', options)).kinds;
      list.update(found.sort((one, other) => !!Number(one.workers) - !!Number(other.workers)));
    },
  };
}
