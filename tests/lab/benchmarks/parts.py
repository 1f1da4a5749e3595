"""What each statement of a job's life costs the server: the profile behind the others.

In one session, without a network, with synchronous_commit off: elapsed time is what the
server's one process works. And beside bare statements, as clients have them: bare.py.
"""

import functools

from pgwake.cli.bench.measure import Figures

from .bare import beside_bare
from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"rounds": 200, "repeats": 1}
STEPS = ("insert", "claim", "complete", "empty_claim")
ROUNDS = """
do $$
declare
  v_began timestamptz;
  v_spent double precision[] := array[0, 0, 0, 0];
  v_claim record;
begin
  for v_round in 1..{rounds} loop
    v_began := clock_timestamp();
    insert into pgwake.jobs (kind) select 'noop' from generate_series(1, {batch});
    commit;
    v_spent[1] := v_spent[1] + extract(epoch from clock_timestamp() - v_began);
    v_began := clock_timestamp();
    select array_agg(c.id) as ids, array_agg(c.lease_id) as lease_ids into v_claim
    from pgwake.claim_rows('default', {batch}, 'w') as c
    where c.id is not null;
    commit;
    v_spent[2] := v_spent[2] + extract(epoch from clock_timestamp() - v_began);
    v_began := clock_timestamp();
    perform pgwake.complete_jobs(v_claim.ids, v_claim.lease_ids);
    commit;
    v_spent[3] := v_spent[3] + extract(epoch from clock_timestamp() - v_began);
    v_began := clock_timestamp();
    perform from pgwake.claim_rows('default', {batch}, 'w');
    commit;
    v_spent[4] := v_spent[4] + extract(epoch from clock_timestamp() - v_began);
  end loop;
  perform set_config('bench.spent', v_spent::text, false);
end
$$
"""
SPENT = "select current_setting('bench.spent')::double precision[]"
CHECKS = """
select format('alter table %s drop constraint %I', c.conrelid::regclass, c.conname)
from pg_constraint as c
where c.contype = 'c' and c.conislocal
  and c.conrelid in ('pgwake.jobs'::regclass, 'pgwake.jobs_live'::regclass)
"""


async def run(bench: Bench, *, rounds: int = 2000, repeats: int = 3) -> list[Run]:
    """Insert, claim and complete so many times, one job or more a statement."""

    async def parts(batch: int, without: str = "") -> Figures:
        async with PGWAKE.database(bench) as (_, connection):
            if without == "triggers":
                await connection.execute("alter table pgwake.jobs disable trigger user")
            elif without == "checks":
                for (drop,) in await connection.fetch(CHECKS):
                    await connection.execute(drop)
            await connection.execute("set synchronous_commit = off")
            some = max(rounds // batch, 20)
            for count in (some // 10 + 1, some):  # the first ones compile
                await connection.execute(ROUNDS.format(rounds=count, batch=batch))
            spent = await connection.fetchval(SPENT)
        jobs = some * batch
        return {
            f"{step}_us": seconds / (some if step == "empty_claim" else jobs) * 1e6
            for step, seconds in zip(STEPS, spent, strict=True)
        }

    return await bench.rounds(
        {
            "one a statement": functools.partial(parts, 1),
            "one, without triggers": functools.partial(parts, 1, "triggers"),
            "one, without checks": functools.partial(parts, 1, "checks"),
            "a hundred a statement": functools.partial(parts, 100),
            **{
                f"beside bare statements: {name} each": functools.partial(
                    beside_bare, bench, batch, max(rounds // (5 + batch), 20)
                )
                for name, batch in (("one", 1), ("100", 100), ("500", 500))
            },
        },
        repeats,
    )
