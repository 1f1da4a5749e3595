-- How many attempts have failed since the installation that were not the last of their
-- job, a row a queue. Reads what get_queue_stats sums.
create or replace function pgwake.count_retries()
returns table (queue text, retried_total bigint)
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query select r.queue, coalesce(sum(r.retried), 0)::bigint from pgwake.count_rows as r group by r.queue;
end
$$;

comment on function pgwake.count_retries is
  'How many attempts have failed that were not the last of their job, a row a queue.';
revoke all on function pgwake.count_retries from public;
