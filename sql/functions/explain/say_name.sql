-- A name or a line of somebody's text for people: in quotes, at most 200 characters,
-- control characters as question marks, so that it can't pass for a line of ours.
create or replace function pgwake.say_name(name text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select '"' || regexp_replace(left(say_name.name, 200), '[[:cntrl:]]', '?', 'g')
    || case when length(say_name.name) > 200 then '...' else '' end || '"'
$$;

comment on function pgwake.say_name is 'Internal: a name for people, without control characters.';
revoke all on function pgwake.say_name from public;
