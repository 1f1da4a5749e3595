-- What is wrong with a value's type, of those that JSON Schema knows: {problem, advice};
-- null if nothing is, or a type is unknown. 1.0 is an integer.
create or replace function pgwake.type_problem(types text[], value jsonb, field text)
returns text[]
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type constant text := jsonb_typeof(type_problem.value);
begin
  if coalesce(cardinality(type_problem.types), 0) = 0
    or v_type = any (type_problem.types)
    or not type_problem.types <@ '{string,number,integer,boolean,object,array,"null"}'
  then
    return null;
  elsif v_type = 'number' and 'integer' = any (type_problem.types) then
    if trunc(type_problem.value::numeric) = type_problem.value::numeric then
      return null;
    end if;
  end if;
  return array[
    format('%s must be %s, not %s', type_problem.field,
      (
        select string_agg(case
            when t.name = 'null' then t.name
            when t.name ~ '^[aeiou]' then 'an ' || t.name
            else 'a ' || t.name
          end, ' or ' order by t.place)
        from unnest(type_problem.types) with ordinality as t(name, place)
      ),
      case
        when v_type = 'number' and 'integer' = any (type_problem.types) then 'a fraction'
        when v_type = 'null' then v_type
        when v_type ~ '^[aeiou]' then 'an ' || v_type
        else 'a ' || v_type
      end),
    'Send the JSON type that the kind''s handler takes.'];
end
$$;

comment on function pgwake.type_problem is
  'Internal: what is wrong with a value''s type, and what to do; null if nothing.';
revoke all on function pgwake.type_problem from public;
