-- Deletes rows of a leaf of ended jobs, and counts them. Internal: for retention and
-- purge, which have locked the rows. Returns how many. frees: also their unique keys that
-- stay taken until a time.
--
-- A row that can't be deleted, since a user's trigger or foreign key refuses it, is left
-- with a warning that names the job, and does not stop the others: smaller and smaller
-- parts are tried, up to a hundred such rows. Constraints that are deferred are checked
-- here, not at the commit, which would refuse all of them.
create or replace function pgwake.delete_ended_jobs(leaf regclass, tids tid[], frees boolean default false)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_from int := 1;
  v_size int := cardinality(delete_ended_jobs.tids);
  v_deleted int;
  v_refused int := 0;
  v_count int := 0;
  v_id bigint;
begin
  while v_from <= cardinality(delete_ended_jobs.tids) and v_refused < 100 loop
    begin
      execute format(
        'with gone as (delete from %s where ctid = any ($1) returning id, queue, kind, status, unique_key, finished_slot), '
        'freed as (delete from pgwake.unique_periods as p where p.ctid = any (array('
        'select u.ctid from gone as g join pgwake.unique_periods as u on $3 and u.kind = g.kind '
        'and u.unique_key = g.unique_key and u.job_id = g.id for update of u skip locked))), '
        'counted as (insert into pgwake.counts (queue, at, failed_rows, completed_rows, cancelled_rows, finished_slot) '
        'select g.queue, $2, -nullif(count(*) filter (where g.status = ''failed''), 0), '
        '-nullif(count(*) filter (where g.status = ''completed''), 0), '
        '-nullif(count(*) filter (where g.status = ''cancelled''), 0), g.finished_slot '
        'from gone as g group by g.queue, g.finished_slot) '
        'select count(*) from gone', delete_ended_jobs.leaf)
      into v_deleted using delete_ended_jobs.tids[v_from : v_from + v_size - 1], pgwake.now(),
        delete_ended_jobs.frees;
      set constraints all immediate;
      set constraints all deferred;
      v_count := v_count + v_deleted;
      v_from := v_from + v_size;
      v_size := 2 * v_size;
    exception when others then
      if v_size = 1 then
        execute format('select id from %s where ctid = $1', delete_ended_jobs.leaf)
        into v_id using delete_ended_jobs.tids[v_from];
        raise warning 'job % can not be deleted: %', v_id, sqlerrm;
        v_refused := v_refused + 1;
        v_from := v_from + 1;
      else
        v_size := least(v_size, cardinality(delete_ended_jobs.tids) - v_from + 1) / 2;
        v_size := greatest(v_size, 1);
      end if;
    end;
  end loop;
  return v_count;
end
$$;

comment on function pgwake.delete_ended_jobs is
  'Internal: deletes ended jobs, those that a trigger or foreign key refuses left out.';
revoke all on function pgwake.delete_ended_jobs from public;
