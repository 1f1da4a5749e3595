-- What workers know of the kinds that they handle: {name: {field: value}}, from their
-- decorators. Fields, all optional: max_attempts, priority (integers), backoff_base,
-- backoff_cap, timeout, lease (seconds), backoff_jitter (0 to 1), schema (of the
-- payload, a JSON Schema; see check_payload). One that is left out, or null, is not
-- declared any more. Kinds that are left out stay as they are.
--
-- The newest version of the workers' application wins: dotted numbers, compared number
-- by number; none is the lowest. An older one changes nothing; of equal ones the latest
-- does. What an operator has set in pgwake.kinds comes before it and is never touched.
--
-- Returns how many kinds it has written: a declaration that changes nothing writes
-- nothing, nor does it lock. Raises PW003 for what can't be meant, and then writes
-- nothing. Locks in order of names. Rides kinds_pkey.
create or replace function pgwake.declare_kinds(
  kinds jsonb,
  version text default null,
  worker text default null  -- null: application name and pid
)
returns int
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_version int[] := '{}';
  v_worker text := coalesce(
    declare_kinds.worker, format('%s:%s', current_setting('application_name'), pg_backend_pid()));
  v_problem text;
  v_advice text;
  v_rows int;
begin
  if jsonb_typeof(declare_kinds.kinds) is distinct from 'object' then
    perform pgwake.raise_invalid(
      'kinds is no object', 'Pass {"kind": {"max_attempts": 3}, ...}; {} declares nothing of a kind.');
  end if;
  if declare_kinds.version <> '' then
    if declare_kinds.version !~ '^[0-9]{1,9}([.][0-9]{1,9}){0,15}$' then
      perform pgwake.raise_invalid(
        format('version is %L', left(declare_kinds.version, 100)),
        'Use dotted numbers, such as 2026.11.2, or null.');
    end if;
    v_version := string_to_array(declare_kinds.version, '.')::int[];
  end if;

  select
    case
      when octet_length(k.name) not between 1 and 128 then format('name of kind %L is %s bytes long',
        left(k.name, 100), octet_length(k.name))
      when jsonb_typeof(k.policy) <> 'object' then format('kind %s is no object', k.name)
      when r.field is null then format('kind %s: %L is unknown', k.name, left(f.key, 100))
      when jsonb_typeof(f.value) <> r.type then format('kind %s: %s is of type %s', k.name, r.field,
        jsonb_typeof(f.value))
      else format('kind %s: %s is %s', k.name, r.field, case
        when r.type = 'object' then octet_length(f.value::text) || ' bytes long' else left(f.value::text, 100) end)
    end,
    case
      when octet_length(k.name) not between 1 and 128 then 'Use 1 to 128 bytes.'
      when jsonb_typeof(k.policy) <> 'object' then 'Pass an object of its fields; {} declares nothing.'
      when r.field is null then 'Fields are max_attempts, backoff_base, backoff_cap, backoff_jitter, timeout, '
        'lease, priority and schema.'
      else r.advice
    end
  into v_problem, v_advice
  from jsonb_each(declare_kinds.kinds) as k(name, policy)
  left join lateral jsonb_each(case jsonb_typeof(k.policy) when 'object' then k.policy else '{}' end) as f
    on jsonb_typeof(f.value) <> 'null'
  left join (values
    ('max_attempts', 'number', 1, 10000, true, 'Use an integer from 1 to 10000.'),
    ('backoff_base', 'number', 0, 86400, false, 'Use seconds, from 0 to 86400.'),
    ('backoff_cap', 'number', 0, 31104000, false, 'Use seconds, from 0 to 31104000, which is 360 days.'),
    ('backoff_jitter', 'number', 0, 1, false, 'Use 0 to 1, the share of the delay that is drawn.'),
    ('timeout', 'number', 0.001, 86400, false, 'Use seconds, from 0.001 to 86400; leave it out for none.'),
    ('lease', 'number', 1, 86400, false, 'Use seconds, from 1 to 86400.'),
    ('priority', 'number', -100, 100, true, 'Use an integer from -100 to 100; higher runs first.'),
    ('schema', 'object', 0, 65536, true, 'Pass a JSON Schema, an object of at most 65536 bytes.')
  ) as r(field, type, least, most, is_integer, advice) on r.field = f.key
  cross join lateral (
    select case
      when jsonb_typeof(f.value) is distinct from r.type then null
      when r.type = 'object' then octet_length(f.value::text)
      else (f.value #>> '{}')::numeric
    end as size
  ) as s
  where octet_length(k.name) not between 1 and 128
    or jsonb_typeof(k.policy) <> 'object'
    or f.key is not null and (
      (s.size between r.least and r.most) is not true or r.is_integer and s.size <> trunc(s.size))
  order by k.name collate "C", f.key collate "C"
  limit 1;
  if found then
    perform pgwake.raise_invalid(v_problem, v_advice);
  end if;

  -- A row that is only looked at is not locked: "on conflict" would lock it. Rounded, since 1e-9999 is no double.
  with declared as (
    select k.name,
      (k.policy ->> 'max_attempts')::numeric::int as max_attempts,
      make_interval(secs => round((k.policy ->> 'backoff_base')::numeric, 6)::double precision) as backoff_base,
      make_interval(secs => round((k.policy ->> 'backoff_cap')::numeric, 6)::double precision) as backoff_cap,
      round((k.policy ->> 'backoff_jitter')::numeric, 6)::double precision as backoff_jitter,
      make_interval(secs => round((k.policy ->> 'timeout')::numeric, 6)::double precision) as timeout,
      make_interval(secs => round((k.policy ->> 'lease')::numeric, 6)::double precision) as lease,
      (k.policy ->> 'priority')::numeric::smallint as priority,
      nullif(k.policy -> 'schema', 'null') as schema
    from jsonb_each(declare_kinds.kinds) as k(name, policy)
  )
  insert into pgwake.kinds as k
    (name, declared_max_attempts, declared_backoff_base, declared_backoff_cap, declared_backoff_jitter,
     declared_timeout, declared_lease, declared_priority, declared_schema, declared_version, declared_by,
     declared_at)
  select d.name, d.max_attempts, d.backoff_base, d.backoff_cap, d.backoff_jitter, d.timeout, d.lease,
    d.priority, d.schema, v_version, v_worker, pgwake.now()
  from declared as d
  where not exists (
    select from pgwake.kinds as k
    where k.name = d.name
      and (
        k.declared_version > v_version
        or (k.declared_max_attempts, k.declared_backoff_base, k.declared_backoff_cap, k.declared_backoff_jitter,
            k.declared_timeout, k.declared_lease, k.declared_priority, k.declared_schema, k.declared_version)
          is not distinct from
           (d.max_attempts, d.backoff_base, d.backoff_cap, d.backoff_jitter, d.timeout, d.lease, d.priority,
            d.schema, v_version)
      )
  )
  order by d.name collate "C"
  on conflict (name) do update
  set declared_max_attempts = excluded.declared_max_attempts,
    declared_backoff_base = excluded.declared_backoff_base,
    declared_backoff_cap = excluded.declared_backoff_cap,
    declared_backoff_jitter = excluded.declared_backoff_jitter,
    declared_timeout = excluded.declared_timeout,
    declared_lease = excluded.declared_lease,
    declared_priority = excluded.declared_priority,
    declared_schema = excluded.declared_schema,
    declared_version = excluded.declared_version,
    declared_by = excluded.declared_by,
    declared_at = excluded.declared_at
  where (k.declared_version > excluded.declared_version) is not true
    and (k.declared_max_attempts, k.declared_backoff_base, k.declared_backoff_cap, k.declared_backoff_jitter,
         k.declared_timeout, k.declared_lease, k.declared_priority, k.declared_schema, k.declared_version)
      is distinct from
        (excluded.declared_max_attempts, excluded.declared_backoff_base, excluded.declared_backoff_cap,
         excluded.declared_backoff_jitter, excluded.declared_timeout, excluded.declared_lease,
         excluded.declared_priority, excluded.declared_schema, excluded.declared_version);
  get diagnostics v_rows = row_count;
  return v_rows;
end
$$;

comment on function pgwake.declare_kinds is
  'Declares what a worker knows of the kinds that it handles; returns how many it has written.';
revoke all on function pgwake.declare_kinds from public;
