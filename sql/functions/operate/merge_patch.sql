-- A JSON value with a merge patch applied (RFC 7396): fields of the patch replace or add
-- those of the target, field by field through nested objects; null removes a field; what
-- is no object replaces all. No patch (null) changes nothing.
create or replace function pgwake.merge_patch(target jsonb, patch jsonb)
returns jsonb
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_merged jsonb := case jsonb_typeof(merge_patch.target) when 'object' then merge_patch.target else '{}' end;
  v_field record;
begin
  if merge_patch.patch is null then
    return merge_patch.target;
  end if;
  if jsonb_typeof(merge_patch.patch) <> 'object' then
    return merge_patch.patch;
  end if;
  for v_field in select e.key, e.value from jsonb_each(merge_patch.patch) as e loop
    if jsonb_typeof(v_field.value) = 'null' then
      v_merged := v_merged - v_field.key;
    else
      v_merged := v_merged || jsonb_build_object(
        v_field.key, pgwake.merge_patch(v_merged -> v_field.key, v_field.value));
    end if;
  end loop;
  return v_merged;
end
$$;

comment on function pgwake.merge_patch is
  'A JSON value with a merge patch applied (RFC 7396).';
revoke all on function pgwake.merge_patch from public;
