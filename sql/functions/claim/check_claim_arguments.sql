-- Says (PW003) which argument of claim_rows can't be meant. Internal.
create or replace function pgwake.check_claim_arguments(queue text, count int, worker text, lease interval)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if check_claim_arguments.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue to claim from.');
  end if;
  if check_claim_arguments.count is null or check_claim_arguments.count not between 1 and 10000 then
    perform pgwake.raise_invalid(
      format('count is %s', coalesce(check_claim_arguments.count::text, 'null')), 'Use 1 to 10000.');
  end if;
  if octet_length(check_claim_arguments.worker) not between 1 and 512 then
    perform pgwake.raise_invalid(
      format('worker has %s bytes', octet_length(check_claim_arguments.worker)), 'Use a name of 1 to 512 bytes.');
  end if;
  perform pgwake.raise_invalid(
    format('lease is %s', check_claim_arguments.lease), 'Use an interval from 1 second to 1 day.');
end
$$;

comment on function pgwake.check_claim_arguments is
  'Internal: says which argument of a claim can not be meant.';
revoke all on function pgwake.check_claim_arguments from public;
