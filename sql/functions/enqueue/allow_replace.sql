-- Who may execute this may have enqueue() replace jobs that others have added: by their
-- kind and unique key, all but these can be replaced, and so put off for ever or
-- cancelled. Workers and admins may; a producer's own role gets it by
--   grant execute on function pgwake.allow_replace to shop;
--
-- Raises 42501 for others. Asked for is the session's role (set role, else its login),
-- since enqueue runs as the owner.
create or replace function pgwake.allow_replace()
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_role constant text := coalesce(nullif(current_setting('role', true), 'none'), session_user);
begin
  if not has_function_privilege(v_role, 'pgwake.allow_replace()', 'execute') then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('role %I may not replace jobs', v_role),
      hint = format('Use on_conflict => ''return'' or ''raise'', or let it: '
        'grant execute on function pgwake.allow_replace to %I', v_role);
  end if;
end
$$;

comment on function pgwake.allow_replace is
  'Raises 42501 unless the session may have enqueue() replace jobs: the right to execute it.';
revoke all on function pgwake.allow_replace from public;
