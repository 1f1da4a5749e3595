-- Whether a payload is what its kind's workers have declared that they take: raises
-- PW003 that names the field if not. A kind without declared_schema takes anything.
--
-- Checks whether or not the kind has check_payload, so that an operator can try before
-- the switch is set: from then on INSERT and enqueue() check each job. What is checked
-- says payload_problem. Rides kinds_pkey.
create or replace function pgwake.check_payload(kind text, payload jsonb)
returns void
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_schema jsonb;
  v_problem text[];
begin
  if check_payload.kind is null or check_payload.payload is null then
    perform pgwake.raise_invalid('kind or payload is null', 'Pass both.');
  end if;
  select k.declared_schema into v_schema from pgwake.kinds as k where k.name = check_payload.kind;
  v_problem := pgwake.payload_problem(v_schema, check_payload.payload, v_schema -> '$defs');
  if v_problem is not null then
    perform pgwake.raise_invalid(
      format('payload of kind %s: %s', check_payload.kind, v_problem[1]), v_problem[2]);
  end if;
end
$$;

comment on function pgwake.check_payload is
  'Raises PW003 for a payload that its kind''s workers do not take, and names the field.';
revoke all on function pgwake.check_payload from public;
