-- The cursors of claim_rows that this session keeps for clients that can't carry them:
-- an object by queue, from the setting pgwake.cursor. Null if there is none. Raises
-- PW003 for what is no object.
create or replace function pgwake.session_cursors()
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_setting text := nullif(current_setting('pgwake.cursor', true), '');
  v_cursors jsonb;
begin
  if v_setting is null then
    return null;
  end if;
  begin
    v_cursors := v_setting;
  exception when data_exception then
    v_cursors := null;
  end;
  if jsonb_typeof(v_cursors) is distinct from 'object' then
    perform pgwake.raise_invalid('pgwake.cursor is no JSON object', 'Use: reset pgwake.cursor');
  end if;
  return v_cursors;
end
$$;

comment on function pgwake.session_cursors is
  'Internal: the cursors that this session keeps.';
revoke all on function pgwake.session_cursors from public;
