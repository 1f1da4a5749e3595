-- Refuses (PW003) what a batch function can't pair up: arrays of different lengths,
-- nulls, more than one dimension, a job named twice.
create or replace function pgwake.check_batch_arguments(job_ids bigint[], lease_ids uuid[])
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if array_ndims(check_batch_arguments.job_ids) > 1 or array_ndims(check_batch_arguments.lease_ids) > 1 then
    perform pgwake.raise_invalid(
      'the job ids or lease ids are an array of arrays', 'Pass parallel arrays: one lease id for each job id.');
  end if;
  if check_batch_arguments.job_ids is null or check_batch_arguments.lease_ids is null
    or array_position(check_batch_arguments.job_ids, null) is not null
    or array_position(check_batch_arguments.lease_ids, null) is not null
  then
    perform pgwake.raise_invalid(
      'a job id or lease id is null', 'Pass the id and the lease_id that the claim returned.');
  end if;
  if cardinality(check_batch_arguments.job_ids) <> cardinality(check_batch_arguments.lease_ids) then
    perform pgwake.raise_invalid(
      format('%s job ids but %s lease ids', cardinality(check_batch_arguments.job_ids),
             cardinality(check_batch_arguments.lease_ids)),
      'Pass parallel arrays: one lease id for each job id.');
  end if;
  if cardinality(check_batch_arguments.job_ids) > 1
    and (select count(distinct u.id) from unnest(check_batch_arguments.job_ids) as u(id))
        <> cardinality(check_batch_arguments.job_ids)
  then
    perform pgwake.raise_invalid(
      'a job is named twice', 'Name each job once in a batch; decide on one outcome for it.');
  end if;
end
$$;

comment on function pgwake.check_batch_arguments is
  'Internal: refuses arrays that a batch function can''t pair up.';
revoke all on function pgwake.check_batch_arguments from public;
