-- The leaf of the ring for a job that finishes at this instant: floor(UTC day / width)
-- mod 32. PL/pgSQL, since an SQL function that can't be put inline is planned at each
-- call before PostgreSQL 18.
create or replace function pgwake.finished_slot(at timestamptz)
returns smallint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select pgwake.ring_slot(finished_slot.at, i.width) from pgwake.installation as i);
end
$$;

comment on function pgwake.finished_slot is
  'Internal: the leaf of pgwake.jobs_finished for a job that finishes now.';
revoke all on function pgwake.finished_slot from public;
