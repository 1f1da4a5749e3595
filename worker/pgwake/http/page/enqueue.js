// Enqueue a job, or add a schedule, by a form that is made of the schema of the kind's payload.

import { get, post, query } from './api.js';
import { ask } from './dialog.js';
import { h } from './dom.js';
import { field, typedJson } from './fields.js';
import { address } from './filters.js';
import { visible } from './format.js';
import { plain } from './json.js';

const PRIORITY = { name: 'priority', label: 'Priority, -100 to 100', type: 'number', min: -100, max: 100 };

const JOB = {
  page: 'enqueue',
  title: 'Enqueue a job',
  legend: 'Job',
  action: 'Enqueue',
  options: [
    PRIORITY,
    { name: 'delay_seconds', label: 'Delay in seconds', type: 'number', min: 0, step: 'any' },
    { name: 'unique_key', label: 'Unique key', maxlength: 512 },
  ],
  async send({ queue, ...job }) {
    const { jobs } = await post(`queues/${encodeURIComponent(queue)}/push`, job);
    const [{ id, is_new: isNew }] = jobs;
    location.hash = `#/jobs/${id}`;
    return isNew
      ? `Enqueued job ${id}.`
      : `Nothing was enqueued: job ${id} is live and has the unique key.`;
  },
};

const SCHEDULE = {
  page: 'schedule',
  title: 'Add a schedule',
  legend: 'Schedule',
  action: 'Add',
  options: [
    { name: 'name', label: 'Name', required: true, maxlength: 128 },
    { name: 'cron', label: 'Cron: minute hour day month weekday', placeholder: '30 2 * * 1-5' },
    { name: 'every_seconds', label: 'Or every: seconds', type: 'number', min: 1 },
    { name: 'timezone', label: 'Time zone of cron', placeholder: 'UTC' },
    PRIORITY,
  ],
  async send(schedule) {
    const name = visible(schedule.name);
    const { schedules } = await get('api/schedules');
    const question = {
      title: `Replace ${name}?`,
      text: 'There is a schedule of that name. What this form does not have is as by default.',
      action: 'Replace',
    };
    const isThere = schedules.some((one) => one.name === schedule.name);
    if (isThere && (await ask(question)) === null) return null;
    await post('api/schedules', schedule);
    location.hash = '#/schedules';
    return `${isThere ? 'Replaced' : 'Added'} ${name}.`;
  },
};

export const enqueue = (parameters, context) => makeView(JOB, parameters, context);
export const schedule = (parameters, context) => makeView(SCHEDULE, parameters, context);

function makeView(purpose, { kind }, { act }) {
  const place = h('div', { class: 'panel' });
  let isMade = false;
  return {
    title: purpose.title,
    element: place,
    concerns: () => false,
    async read(options) {
      const [{ kinds }, { jobs }] = await Promise.all([
        get('api/kinds', options),
        // For its queue: the kind's own is known to its workers alone.
        kind ? get(query('api/jobs', { kind, limit: 1 }), options) : { jobs: [] },
      ]);
      if (isMade) return; // what was typed stays
      isMade = true;
      const known = kinds.map(({ name }) => name);
      if (known.length === 0 && !kind) {
        const text = 'No kind is known: no worker has reported itself. Start one: pgwake run --import MODULE';
        place.replaceChildren(h('p', { class: 'empty' }, text));
        return;
      }
      const choices = kind && !known.includes(kind) ? [kind, ...known] : known;
      const choice = field({
        name: 'kind',
        label: 'Kind',
        options: [['', 'choose a kind'], ...choices.map((name) => [name, visible(name)])],
        value: kind,
      });
      choice.addEventListener('change', ({ target }) => {
        location.hash = address(purpose.page, { kind: target.value });
      });
      const row = h('div', { class: 'row' }, choice);
      const schema = kinds.find(({ name }) => name === kind)?.schema;
      place.replaceChildren(row, kind ? makeForm(purpose, kind, schema, jobs[0]?.queue, act) : '');
    },
  };
}

function makeForm(purpose, kind, schema, lastQueue, act) {
  const payload = payloadFields(schema);
  const queue = field({
    name: 'queue',
    label: 'Queue',
    required: true,
    maxlength: 128,
    value: lastQueue ?? 'default',
  });
  const more = purpose.options.map(field);
  const button = h('button', { type: 'submit', class: 'main' }, purpose.action);
  const form = h(
    'form',
    { class: 'new-job', 'aria-label': `New ${purpose.legend.toLowerCase()}` },
    h('fieldset', {}, h('legend', {}, 'Payload'), payload.element),
    h('fieldset', {}, h('legend', {}, purpose.legend), h('div', { class: 'fields' }, queue, more)),
    button,
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    act(button, async () => {
      const options = Object.fromEntries(
        [queue, ...more]
          .map(({ lastElementChild: { name: option, type, value } }) => [option, value, type])
          .filter(([, value]) => value !== '')
          .map(([option, value, type]) => [option, type === 'number' ? Number(value) : value]),
      );
      return purpose.send({ kind, payload: payload.read(), ...options });
    });
  });
  return form;
}

/** The fields of a payload: {element, read(): the payload, or throws a Problem}. */
function payloadFields(schema) {
  const properties = schema?.properties;
  if (!properties || schema.additionalProperties) {
    const all = { name: 'payload', label: 'A JSON object', tag: 'textarea', rows: 6, value: '{}' };
    const input = field(all);
    return { element: input, read: () => typedJson('The payload', input.lastElementChild.value) };
  }
  const parts = Object.entries(properties).map(([name, given]) =>
    property(name, resolved(given, schema), schema.required?.includes(name)),
  );
  if (parts.length === 0) {
    return { element: h('p', { class: 'hint' }, 'This kind takes no payload.'), read: () => ({}) };
  }
  return {
    element: h('div', { class: 'fields' }, parts.map(({ element }) => element)),
    read: () => Object.fromEntries(parts.map(({ read }) => read()).filter((pair) => pair !== null)),
  };
}

/** A schema without its reference, and without null, which a field left empty stands for. */
function resolved(schema, root) {
  const name = /^#\/\$defs\/(.+)$/.exec(schema.$ref ?? '')?.[1];
  if (name) return resolved(root.$defs?.[name] ?? {}, root);
  const others = schema.anyOf?.filter(({ type }) => type !== 'null');
  return others?.length === 1 ? { ...resolved(others[0], root), default: schema.default } : schema;
}

/** One property's field; read(): [name, value], or null where it is left empty. */
function property(name, { type, enum: values, default: preset }, isRequired) {
  const isText = type === 'string' && !values;
  const choices = values ?? (type === 'boolean' ? [true, false] : null);
  const words = { integer: 'whole number', number: 'number', string: 'text' }[type] ?? 'JSON';
  const element = field({
    name: `payload.${name}`,
    label: `${visible(name)}${isRequired ? '' : ' (optional)'}`,
    required: isRequired && !isText,
    ...(choices
      ? { options: [['', preset == null ? '' : `default: ${plain(preset)}`], ...choices.map(option)] }
      : {
          placeholder: preset == null ? words : `default: ${plain(preset)}`,
          tag: isText || type === 'integer' || type === 'number' ? 'input' : 'textarea',
        }),
  });
  return {
    element,
    read() {
      const { value } = element.lastElementChild;
      if (value === '' && !(isRequired && isText)) return null;
      return [name, isText ? value : typedJson(name, value)];
    },
  };
}

const option = (value) => [JSON.stringify(value), plain(value)];
