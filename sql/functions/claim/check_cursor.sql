-- Refuses (PW003) what is no cursor of claim_rows. Null is one, and so is any object
-- without what a cursor says: then it says nothing.
create or replace function pgwake.check_cursor(cursor jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform (check_cursor.cursor ->> 'head_at')::timestamptz, (check_cursor.cursor #>> '{next_at,0}')::timestamptz,
    (check_cursor.cursor #>> '{keys,0}')::timestamptz, (check_cursor.cursor #>> '{keys,1}')::timestamptz;
  perform p.band::int, (p.resume_point ->> 0)::timestamptz, (p.resume_point ->> 1)::bigint,
    (p.resume_point #>> '{2,0}')::timestamptz, (p.resume_point #>> '{2,1}')::bigint
  from jsonb_each(check_cursor.cursor -> 'resume_points') as p(band, resume_point);
  perform k.kind from jsonb_array_elements_text(check_cursor.cursor -> 'kinds') as k(kind);
  perform pgwake.check_cursor(f.cursor) from jsonb_each(check_cursor.cursor -> 'full') as f(kinds, cursor);
exception when data_exception then
  perform pgwake.raise_invalid(
    'this is no cursor', 'Pass what the last claim of this queue answered, or null.');
end
$$;

comment on function pgwake.check_cursor is
  'Internal: refuses what is no cursor of a claim.';
revoke all on function pgwake.check_cursor from public;
