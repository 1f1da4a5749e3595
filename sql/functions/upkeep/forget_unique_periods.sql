-- Removes unique_until's rows whose time is over. Internal: for maintain('retention').
-- Returns how many, at most max_rows a call. Rides unique_periods_until_idx.
create or replace function pgwake.forget_unique_periods(max_rows int default 5000)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_count int;
begin
  delete from pgwake.unique_periods as p
  where p.ctid = any (array(
    select o.ctid
    from pgwake.unique_periods as o
    where o.until <= pgwake.now()
    order by o.until
    limit forget_unique_periods.max_rows
    for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function pgwake.forget_unique_periods is
  'Internal: removes rows of unique_periods whose time is over.';
revoke all on function pgwake.forget_unique_periods from public;
