-- For explain_job: what became of each attempt that failed, a line each, the last 20:
-- the first line of its message.
create or replace function pgwake.explain_attempts(errors jsonb)
returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select
      format('attempt %s', e.error ->> 'attempt')
      || case when e.error ->> 'at' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+[-+][0-9:]+$' then
        format(' at %s', pgwake.say_time((e.error ->> 'at')::timestamptz)) else '' end
      || coalesce(' on ' || pgwake.say_name(e.error ->> 'worker'), '')
      || format(': %s, %s', e.error ->> 'reason', pgwake.say_name(split_part(e.error ->> 'message', e'\n', 1)))
    from jsonb_array_elements(
      case jsonb_typeof(explain_attempts.errors) when 'array' then explain_attempts.errors else '[]' end
    ) with ordinality as e(error, place)
    order by e.place)
$$;

comment on function pgwake.explain_attempts is
  'Internal: for explain_job, what became of each attempt that failed.';
revoke all on function pgwake.explain_attempts from public;
