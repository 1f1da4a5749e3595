"""What an old snapshot does to a drain: nothing it has seen can be vacuumed away.

Another session holds a REPEATABLE READ snapshot, with a transaction id, throughout.
"""

import functools

import asyncpg

from pgwake.cli.bench.measure import Figures

from .contenders import PGWAKE, REFERENCE, Contender
from .measure import Bench, Run

QUICK = {"jobs": 10_000, "repeats": 1}
# By the rows themselves: how many jobs a second were done in the first tenth of them,
# from the first claim on, and in the last tenth.
TENTHS = """
with ended as (
  select started_at, finished_at, row_number() over (order by finished_at, id) as place
  from {ended}
), marks as (
  select
    min(started_at) as started_at,
    max(finished_at) filter (where place <= $1 / 10) as first_at,
    max(finished_at) filter (where place <= $1 - $1 / 10) as last_at,
    max(finished_at) as finished_at
  from ended
), seconds as (
  select
    greatest(extract(epoch from first_at - started_at), 0.001)::float8 as first,
    greatest(extract(epoch from finished_at - last_at), 0.001)::float8 as last,
    greatest(extract(epoch from finished_at - started_at), 0.001)::float8 as whole
  from marks
)
select first, last, whole from seconds
"""


async def run(bench: Bench, *, jobs: int = 200_000, repeats: int = 3) -> list[Run]:
    """Drain under an old snapshot."""
    drain = functools.partial(_drain, bench, jobs)
    return await bench.rounds(
        {one.name: functools.partial(drain, one) for one in (PGWAKE, REFERENCE)},
        repeats,
    )


async def _drain(bench: Bench, jobs: int, contender: Contender) -> Figures:
    async with contender.database(bench) as (url, connection):
        await connection.execute(contender.hold)
        await contender.fill(connection, jobs)
        holder = await asyncpg.connect(url)
        await holder.execute("begin isolation level repeatable read")
        await holder.execute("select txid_current(), count(*) from pg_class")
        await contender.drain(url, connection)
        await holder.close()
        row = await connection.fetchrow(TENTHS.format(ended=contender.ended), jobs)
    assert row is not None
    return {
        "last_over_first": row["first"] / row["last"],
        "first_tenth_per_second": jobs / 10 / row["first"],
        "last_tenth_per_second": jobs / 10 / row["last"],
        "jobs_per_second": jobs / row["whole"],
    }
