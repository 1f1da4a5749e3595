-- What is wrong with a value by a JSON Schema: {problem, advice}, the first that is
-- found; null if nothing is. The field is named by its path: items.2.price.
--
-- Knows the subset that is cheap to check: type, enum, const, properties, required,
-- additionalProperties, items, anyOf, allOf, and $ref into #/$defs (what stands beside a
-- $ref is not looked at). oneOf is read as anyOf; false is a schema too. All else
-- passes: formats, lengths, ranges, patterns, prefixItems and the items after them,
-- additionalProperties beside patternProperties, what is nested deeper than 20 values
-- or anyOf, and a keyword whose value makes no sense.
create or replace function pgwake.payload_problem(
  schema jsonb,
  value jsonb,
  defs jsonb,             -- the whole schema's $defs
  path text default '',
  depth int default 0
)
returns text[]
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_schema jsonb := payload_problem.schema;
  v_type constant text := jsonb_typeof(payload_problem.value);
  v_field constant text := case payload_problem.path when '' then 'it' else payload_problem.path end;
  v_forms jsonb;
  v_types text[];
  v_properties jsonb;
  v_rest jsonb;
  v_key text;
  v_part jsonb;
  v_value jsonb;
  v_problem text[];
  v_problems text[] := '{}';
begin
  if payload_problem.depth > 20 then
    return null;
  end if;
  for v_hop in 1..8 loop
    exit when not v_schema ? '$ref';
    v_schema := payload_problem.defs -> substring(v_schema ->> '$ref' from '^#/[$]defs/(.+)$');
  end loop;
  if v_schema = 'false' then
    return array[v_field || ' is not allowed', 'Leave it out.'];
  elsif jsonb_typeof(v_schema) is distinct from 'object' or v_schema ? '$ref' then
    return null;
  end if;

  -- anyOf of plain types reads as a list of types does.
  v_forms := coalesce(v_schema -> 'anyOf', v_schema -> 'oneOf');
  if jsonb_typeof(v_forms) = 'array'
    and not exists (
      select from jsonb_array_elements(v_forms) as f(form)
      where jsonb_typeof(f.form -> 'type') is distinct from 'string'
        or f.form ?| '{$ref,enum,const,properties,required,additionalProperties,items,anyOf,oneOf,allOf}'
    )
  then
    v_types := array(select f.form ->> 'type' from jsonb_array_elements(v_forms) as f(form));
    v_problem := pgwake.type_problem(v_types, payload_problem.value, v_field);
    if v_problem is not null then
      return v_problem;
    end if;
    v_forms := null;
  end if;

  if v_schema ->> 'type' is distinct from v_type and v_schema ? 'type' then
    v_types := case jsonb_typeof(v_schema -> 'type')
      when 'string' then array[v_schema ->> 'type']
      when 'array' then array(select t.name from jsonb_array_elements_text(v_schema -> 'type') as t(name))
    end;
    v_problem := pgwake.type_problem(v_types, payload_problem.value, v_field);
    if v_problem is not null then
      return v_problem;
    end if;
  end if;
  if v_schema -> 'const' <> payload_problem.value then
    return array[
      format('%s must be %s', v_field, left((v_schema -> 'const')::text, 200)), 'No other value is taken.'];
  end if;
  if jsonb_typeof(v_schema -> 'enum') = 'array'
    and not exists (
      select from jsonb_array_elements(v_schema -> 'enum') as e(value) where e.value = payload_problem.value
    )
  then
    return array[
      format('%s must be one of %s', v_field, left(substring((v_schema -> 'enum')::text from '^.(.*).$'), 200)),
      'No other value is taken.'];
  end if;

  if v_type = 'object' then
    v_properties := case jsonb_typeof(v_schema -> 'properties')
      when 'object' then v_schema -> 'properties' else '{}'
    end;
    v_rest := case when not v_schema ? 'patternProperties' then v_schema -> 'additionalProperties' end;
    -- Those that need no second look are left out by the query, at a tenth of a call's cost.
    for v_key, v_value, v_part in
      select f.key, f.value, coalesce(v_properties -> f.key, v_rest)
      from jsonb_each(payload_problem.value) as f
      where coalesce(v_properties -> f.key, v_rest) is not null
        and (
          coalesce(v_properties -> f.key, v_rest) ->> 'type' is distinct from jsonb_typeof(f.value)
          or coalesce(v_properties -> f.key, v_rest)
            ?| '{$ref,enum,const,properties,required,additionalProperties,items,anyOf,oneOf,allOf}'
        )
    loop
      if v_part = 'false' and not v_properties ? v_key then
        return array[
          format('%s is unknown', concat_ws('.', nullif(payload_problem.path, ''), left(v_key, 64))),
          format('Known fields are: %s.', coalesce((
            select string_agg(left(p.key, 64), ', ' order by p.key)
            from (select p.key from jsonb_object_keys(v_properties) as p(key) order by p.key limit 50) as p
          ), 'none'))];
      end if;
      v_problem := pgwake.payload_problem(
        v_part, v_value, payload_problem.defs,
        concat_ws('.', nullif(payload_problem.path, ''), left(v_key, 64)), payload_problem.depth + 1);
      if v_problem is not null then
        return v_problem;
      end if;
    end loop;
    if jsonb_typeof(v_schema -> 'required') = 'array' then
      select r.name #>> '{}' into v_key
      from jsonb_array_elements(v_schema -> 'required') as r(name)
      where jsonb_typeof(r.name) = 'string' and not payload_problem.value ? (r.name #>> '{}')
      limit 1;
      if found then
        return array[
          format('%s is missing', concat_ws('.', nullif(payload_problem.path, ''), left(v_key, 64))),
          format('Needed are: %s.', (
            select string_agg(left(r.name #>> '{}', 64), ', ')
            from (select r.name from jsonb_array_elements(v_schema -> 'required') as r(name) limit 50) as r
          ))];
      end if;
    end if;
  elsif v_type = 'array' and v_schema ? 'items' and not v_schema ? 'prefixItems' then
    v_part := v_schema -> 'items';
    for v_key, v_value in
      select (e.place - 1)::text, e.value
      from jsonb_array_elements(payload_problem.value) with ordinality as e(value, place)
      where v_part ->> 'type' is distinct from jsonb_typeof(e.value)
        or v_part ?| '{$ref,enum,const,properties,required,additionalProperties,items,anyOf,oneOf,allOf}'
    loop
      v_problem := pgwake.payload_problem(
        v_part, v_value, payload_problem.defs,
        concat_ws('.', nullif(payload_problem.path, ''), v_key), payload_problem.depth + 1);
      if v_problem is not null then
        return v_problem;
      end if;
    end loop;
  end if;

  if jsonb_typeof(v_schema -> 'allOf') = 'array' then
    for v_part in select f.form from jsonb_array_elements(v_schema -> 'allOf') as f(form) loop
      v_problem := pgwake.payload_problem(
        v_part, payload_problem.value, payload_problem.defs, payload_problem.path, payload_problem.depth + 1);
      if v_problem is not null then
        return v_problem;
      end if;
    end loop;
  end if;
  if jsonb_typeof(v_forms) = 'array' and v_forms <> '[]' then
    for v_part in select f.form from jsonb_array_elements(v_forms) as f(form) loop
      v_problem := pgwake.payload_problem(
        v_part, payload_problem.value, payload_problem.defs, payload_problem.path, payload_problem.depth + 1);
      if v_problem is null then
        return null;
      end if;
      -- Of an optional one, what is wrong beside that it is not null.
      if v_part ->> 'type' is distinct from 'null' then
        v_problems := v_problems || v_problem;
      end if;
    end loop;
    if cardinality(v_problems) = 2 then
      return v_problems;
    end if;
    return array[
      v_field || ' fits none of its forms',
      left((
        select string_agg(p.problem, '; or ' order by p.place)
        from unnest(v_problems) with ordinality as p(problem, place) where p.place % 2 = 1
      ), 500)];
  end if;
  return null;
end
$$;

comment on function pgwake.payload_problem is
  'Internal: what is wrong with a value by a JSON Schema, and what to do; null if nothing.';
revoke all on function pgwake.payload_problem from public;
