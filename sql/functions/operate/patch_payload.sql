-- A job's payload with a merge patch applied: see merge_patch. Internal. Raises PW003
-- where that is too large, and where its kind does not take it (check_payload).
create or replace function pgwake.patch_payload(job_id bigint, kind text, payload jsonb, patch jsonb)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_payload constant jsonb := pgwake.merge_patch(patch_payload.payload, patch_payload.patch);
begin
  if octet_length(v_payload::text) > 1048576 then
    perform pgwake.raise_invalid(
      format('the payload of job %s with the patch has more than 1 MiB', patch_payload.job_id),
      'Use a smaller patch; nothing has been changed.');
  end if;
  perform pgwake.check_payload(k.name, v_payload)
  from pgwake.kinds as k where k.name = patch_payload.kind and k.check_payload;
  return v_payload;
end
$$;

comment on function pgwake.patch_payload is
  'Internal: a job''s payload with a merge patch applied.';
revoke all on function pgwake.patch_payload from public;
