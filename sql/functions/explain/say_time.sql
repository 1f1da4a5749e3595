-- An instant for people: in UTC, and how far from now: 2026-11-28 06:40:12Z (in 5 min).
-- Null for null.
create or replace function pgwake.say_time(at timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when isfinite(say_time.at) then
      to_char(say_time.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z ("')
      || case when d.seconds >= 0 then 'in ' else '' end
      || case
        when abs(d.seconds) < 1 then round(abs(d.seconds) * 1000) || ' ms'
        when abs(d.seconds) < 10 then round(abs(d.seconds), 1) || ' s'
        when abs(d.seconds) < 120 then round(abs(d.seconds)) || ' s'
        when abs(d.seconds) < 7200 then round(abs(d.seconds) / 60) || ' min'
        when abs(d.seconds) < 172800 then round(abs(d.seconds) / 3600) || ' h'
        else round(abs(d.seconds) / 86400) || ' days'
      end
      || case when d.seconds >= 0 then ')' else ' ago)' end
    else say_time.at::text
  end
  from (
    select case when isfinite(say_time.at) then
      (extract(epoch from say_time.at) - extract(epoch from pgwake.now()))::numeric
    end as seconds
  ) as d
$$;

comment on function pgwake.say_time is 'Internal: an instant for people, and how far it is from now.';
revoke all on function pgwake.say_time from public;
