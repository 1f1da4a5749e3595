-- Leaves the upkeep to whoever comes next, if this worker has it; see take_upkeep.
-- Internal, for a worker that has ended.
create or replace function pgwake.leave_upkeep(worker text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  update pgwake.upkeep_turns as t
  set worker = null
  where t.id = (select max(l.id) from pgwake.upkeep_turns as l) and t.worker = leave_upkeep.worker;
end
$$;

comment on function pgwake.leave_upkeep is
  'Internal: leaves the upkeep to whoever comes next.';
revoke all on function pgwake.leave_upkeep from public;
