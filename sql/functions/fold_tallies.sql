-- Folds pgwake.tallies: appended rows into one a queue and ten seconds, those older
-- than six minutes into the one at '-infinity'. Sums stay as they are in every
-- snapshot. Returns how many rows it took in.
create or replace function pgwake.fold_tallies()
returns int
language plpgsql volatile
set search_path = ''
as $$
declare
  v_now timestamptz := pgwake.now();
  v_count int;
begin
  with taken as (
    delete from pgwake.tallies as t
    where not t.is_folded or (t.at < v_now - interval '6 minutes' and t.at > '-infinity')
      or (t.at = '-infinity' and exists (
        select from pgwake.tallies as o
        where o.queue = t.queue and o.at > '-infinity' and o.at < v_now - interval '6 minutes'))
    returning t.*
  ),
  folded as (
    insert into pgwake.tallies
      (queue, at, is_folded, enqueued, completed, failed, cancelled, queue_ms, execution_ms)
    select t.queue, b.at, true, sum(t.enqueued), sum(t.completed), sum(t.failed), sum(t.cancelled),
      sum(t.queue_ms), sum(t.execution_ms)
    from taken as t
    cross join lateral (
      select case
        when t.at < v_now - interval '6 minutes' then '-infinity'
        else date_bin('10 seconds', t.at, '2000-01-01 00:00:00+00')
      end
    ) as b(at)
    group by t.queue, b.at
  )
  select count(*) into v_count from taken;
  return v_count;
end
$$;

comment on function pgwake.fold_tallies is
  'Folds pgwake.tallies; returns how many rows it took in.';
revoke all on function pgwake.fold_tallies from public;
