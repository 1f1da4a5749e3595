-- When the next pending job of each of many queues is due: a row a queue for which
-- next_run_at is not null.
--
-- For consumers of many queues: one look for all that are idle, some microseconds each.
-- seconds is how long the look at the queue took. Where an old snapshot pins the entries
-- of ended jobs that is long, each time anew; a row comes then in any case, from 50 ms
-- on: leave such a queue to claim_rows, which has a cursor. After a second in all, the
-- queues that are left come with null as seconds: they were not looked at. Raises PW003.
create or replace function pgwake.next_run_ats(queues text[])
returns table (queue text, run_at timestamptz, seconds double precision)
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_end_at constant timestamptz := clock_timestamp() + interval '1 second';
  v_began_at timestamptz;
begin
  if next_run_ats.queues is null then
    perform pgwake.raise_invalid('queues is null', 'Pass the queues'' names.');
  end if;
  foreach queue in array next_run_ats.queues loop
    v_began_at := clock_timestamp();
    run_at := null;
    seconds := null;
    if v_began_at < v_end_at then
      run_at := pgwake.next_run_at(next_run_ats.queue);
      seconds := extract(epoch from clock_timestamp() - v_began_at);
      continue when run_at is null and seconds < 0.05;
    end if;
    return next;
  end loop;
end
$$;

comment on function pgwake.next_run_ats is
  'When the next pending job of each of many queues is due; no row for empty queues.';
revoke all on function pgwake.next_run_ats from public;
