// Enqueue a job, by a form that is made of the schema of the kind's payload.

import { Problem, get, post, query } from './api.js';
import { h } from './dom.js';
import { field } from './fields.js';
import { address } from './filters.js';
import { visible } from './format.js';
import { parse, plain } from './json.js';

const OPTIONS = [
  { name: 'priority', label: 'Priority, -100 to 100', type: 'number', min: -100, max: 100 },
  { name: 'delay_seconds', label: 'Delay in seconds', type: 'number', min: 0, step: 'any' },
  { name: 'unique_key', label: 'Unique key', maxlength: 512 },
];

export function enqueue({ kind }, { act }) {
  const place = h('div', { class: 'panel' });
  let isMade = false;
  return {
    title: 'Enqueue a job',
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
        location.hash = address('enqueue', { kind: target.value });
      });
      const row = h('div', { class: 'row' }, choice);
      const schema = kinds.find(({ name }) => name === kind)?.schema;
      place.replaceChildren(row, kind ? makeForm(kind, schema, jobs[0]?.queue, act) : '');
    },
  };
}

function makeForm(kind, schema, lastQueue, act) {
  const payload = payloadFields(schema);
  const queue = field({
    name: 'queue',
    label: 'Queue',
    required: true,
    maxlength: 128,
    value: lastQueue ?? 'default',
  });
  const more = OPTIONS.map(field);
  const button = h('button', { type: 'submit', class: 'main' }, 'Enqueue');
  const form = h(
    'form',
    { class: 'new-job', 'aria-label': 'New job' },
    h('fieldset', {}, h('legend', {}, 'Payload'), payload.element),
    h('fieldset', {}, h('legend', {}, 'Job'), h('div', { class: 'fields' }, queue, more)),
    button,
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    act(button, async () => {
      const { queue: name, ...options } = Object.fromEntries(
        [queue, ...more]
          .map(({ lastElementChild: { name: option, type, value } }) => [option, value, type])
          .filter(([, value]) => value !== '')
          .map(([option, value, type]) => [option, type === 'number' ? Number(value) : value]),
      );
      const job = { kind, payload: payload.read(), ...options };
      const { jobs } = await post(`queues/${encodeURIComponent(name)}/push`, job);
      const [{ id, is_new: isNew }] = jobs;
      location.hash = `#/jobs/${id}`;
      return isNew
        ? `Enqueued job ${id}.`
        : `Nothing was enqueued: job ${id} is live and has the unique key.`;
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
    return { element: input, read: () => parsed('The payload', input.lastElementChild.value) };
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
      return [name, isText ? value : parsed(name, value)];
    },
  };
}

const option = (value) => [JSON.stringify(value), plain(value)];

function parsed(what, text) {
  try {
    return parse(text);
  } catch {
    throw new Problem(422, { detail: `${visible(what)} is no JSON: ${visible(text)}` });
  }
}
