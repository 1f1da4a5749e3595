-- What is wrong with a cron expression, and what to do; null if nothing is.
--
-- Five fields, parted by blanks: minute (0-59), hour (0-23), day of month (1-31), month
-- (1-12 or JAN-DEC), day of week (0-7 or SUN-SAT; 0 and 7 are Sunday). Each is a list,
-- parted by commas, of * or a value or a range a-b, perhaps with a step (*/15, 8-18/2,
-- 5/10: from 5 on). A day of month may be L (the last) or LW (the last weekday), a day
-- of week 5L (the month's last Friday) or 1#2 (its second Monday). Instead of all that:
-- @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually. Case is no matter.
--
-- What passes here, pgwake's worker understands.
create or replace function pgwake.cron_problem(cron text)
returns text[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_names constant text[] := array['minute', 'hour', 'day of month', 'month', 'day of week'];
  v_lows constant int[] := array[0, 0, 1, 1, 0];
  v_highs constant int[] := array[59, 23, 31, 12, 7];
  v_words constant text[] := array[
    null, null, null, 'JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC', 'SUN MON TUE WED THU FRI SAT'];
  v_fields text[] := regexp_split_to_array(upper(btrim(cron_problem.cron, E' \t') collate "C"), E'[ \t]+');
  v_term text;
  v_parts text[];
  v_low int;
  v_high int;
  v_days int[] := '{}';
  v_months int[] := '{}';
begin
  if v_fields[1] in ('@HOURLY', '@DAILY', '@MIDNIGHT', '@WEEKLY', '@MONTHLY', '@YEARLY', '@ANNUALLY')
    and cardinality(v_fields) = 1 then
    return null;
  end if;
  if cardinality(v_fields) <> 5 then
    return array[
      format('cron %L has %s instead of five fields', cron_problem.cron,
        case when v_fields[1] = '' then 0 else cardinality(v_fields) end),
      'Use minute, hour, day of month, month and day of week, such as 30 2 * * 1-5, or @daily and its like.'];
  end if;

  for v_n in 1..5 loop
    foreach v_term in array string_to_array(v_fields[v_n], ',') loop
      continue when v_n = 3 and v_term in ('L', 'LW');
      continue when v_n = 5 and v_term ~ '^[0-7](L|#[1-5])$';
      -- Names become numbers.
      v_term := coalesce((
        select string_agg(coalesce((array_position(string_to_array(v_words[v_n], ' '), p[1]) - 1 + v_lows[v_n])::text,
          p[1]), '' order by p.place)
        from regexp_matches(v_term, '[A-Z]+|[^A-Z]+', 'g') with ordinality as p(p, place)
      ), v_term);
      v_parts := regexp_match(v_term, '^(?:([*])|([0-9]{1,2})(?:-([0-9]{1,2}))?)(?:/([0-9]{1,2}))?$');
      v_low := coalesce(v_parts[2]::int, v_lows[v_n]);
      v_high := coalesce(
        v_parts[3]::int, case when v_parts[1] is null and v_parts[4] is null then v_low else v_highs[v_n] end);
      if v_parts is null or v_low < v_lows[v_n] or v_high > v_highs[v_n] or v_high < v_low or v_parts[4]::int = 0 then
        return array[
          format('cron %L has %L as %s', cron_problem.cron, v_fields[v_n], v_names[v_n]),
          format('Use %s to %s%s, *, a range such as %s-%s, a step such as */2, or a list of these.',
            v_lows[v_n], v_highs[v_n], ' or ' || v_words[v_n], v_lows[v_n], v_lows[v_n] + 1)];
      end if;
      if v_n = 3 then
        v_days := v_days || v_low;
      elsif v_n = 4 then
        v_months := v_months || array(select generate_series(v_low, v_high, coalesce(v_parts[4]::int, 1)));
      end if;
    end loop;
  end loop;

  -- Where day of month and day of week must both hold, a day that none of the months has never comes.
  if (v_fields[3] like '*%' or v_fields[5] like '*%') and v_fields[3] !~ 'L' and not exists (
    select from unnest(v_days) as d(day)
    join unnest(v_months) as m(month) on d.day <= (array[31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[m.month]
  ) then
    return array[
      format('cron %L has a day that its months do not have', cron_problem.cron),
      'Use a day of month that comes, or L for the last one.'];
  end if;
  return null;
end
$$;

comment on function pgwake.cron_problem is
  'Internal: what is wrong with a cron expression, and what to do; null if nothing is.';
revoke all on function pgwake.cron_problem from public;
