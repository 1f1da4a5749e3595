-- Says (PW003) which argument of claim_batch can't be meant. Internal.
create or replace function pgwake.refuse_claim(queue text, count int, worker text, lease interval)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if refuse_claim.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue to claim from.');
  end if;
  if refuse_claim.count is null or refuse_claim.count not between 1 and 10000 then
    perform pgwake.raise_invalid(
      format('count is %s', coalesce(refuse_claim.count::text, 'null')), 'Use 1 to 10000.');
  end if;
  if octet_length(refuse_claim.worker) not between 1 and 512 then
    perform pgwake.raise_invalid(
      format('worker has %s bytes', octet_length(refuse_claim.worker)), 'Use a name of 1 to 512 bytes.');
  end if;
  perform pgwake.raise_invalid(
    format('lease is %s', refuse_claim.lease), 'Use an interval from 1 second to 1 day.');
end
$$;

comment on function pgwake.refuse_claim is
  'Internal: says which argument of a claim can not be meant.';
revoke all on function pgwake.refuse_claim from public;
