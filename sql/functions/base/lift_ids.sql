-- Lifts the sequence of ids above the highest id that a job has, and gives ended jobs
-- new ids that came again since it was below: a restore of the rows alone, or logical
-- replication before PostgreSQL 19, leaves the sequence behind. Internal: called by the
-- installer, by adopt and as a step of maintain. Returns by how much it was lifted.
--
-- Locks nobody out: a short way is made by nextval, and only a long one, beyond what
-- others can insert in that moment, by setval. Rides the primary keys of the leaves.
create or replace function pgwake.lift_ids()
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_highest constant bigint := (select max(j.id) from pgwake.jobs as j);
  v_last constant bigint := (select s.last_value from pgwake.jobs_id_seq as s);
begin
  if coalesce(v_highest <= v_last, true) then
    return 0;
  end if;
  if v_highest - v_last > 100000 then
    perform setval('pgwake.jobs_id_seq', v_highest);
  else
    while nextval('pgwake.jobs_id_seq') < v_highest loop
    end loop;
  end if;
  perform pgwake.renumber_ended_jobs(array(select j.id from pgwake.jobs_live as j where j.id <= v_last));
  return v_highest - v_last;
end
$$;

comment on function pgwake.lift_ids is
  'Internal: lifts the sequence of ids above the highest id.';
revoke all on function pgwake.lift_ids from public;
