"""python -m tests.lab.chaos.limits: limits under many claimers, and how keys share.

Each claimer is a session of its own that claims, holds its jobs for a moment, and
completes them. One of the keys has half of all jobs. Limits of kinds are tried by two
queues at once. What was seen at once is told twice: exactly, from started_at and
finished_at of the finished jobs, and by a session that looks all the time.
"""

import asyncio
import itertools
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields
from typing import Annotated

import asyncpg
import typer

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.database.statements import Connection
from pgwake.database.statements.claim import claim_rows
from pgwake.database.statements.finish import complete_jobs

CLAIMERS = 16
BATCH = 10
MAX_RUNNING = 12
KEY_LIMIT = 2
BIG_LIMIT = 8
BIG = "tenant 0"

POLICY = """
insert into pgwake.queues (name, key_limit, max_running, rate_limit, rate_burst)
values ('keys', $1, null, null, null), ('running', $1, $2, null, null),
  ('rate', null, null, $3, $4), ('fair', $1, null, null, null)
"""
LIMITS = """
insert into pgwake.concurrency_limits (queue, key, max_running)
select q, $1, $2 from unnest(array['keys', 'running']) as q
"""
KIND_QUEUES = ["kinds 1", "kinds 2"]
KINDS = """
insert into pgwake.kinds (name, max_running, rate_limit, rate_burst)
values ('few', $1, null, null), ('rated', null, $2, $3)
"""
INSERT_KINDS = """
insert into pgwake.jobs (queue, kind)
select case when n % 2 = 0 then 'kinds 1' else 'kinds 2' end,
  (array['few', 'rated', 'noop'])[n % 3 + 1]
from generate_series(1, $1::int) as n
"""
INSERT = """
insert into pgwake.jobs (queue, kind, concurrency_key)
select $1, 'noop',
  case when $3 > 0 then
    'tenant ' || case when n % 2 = 0 then 0 else n / 2 % ($3 - 1) + 1 end
  end
from generate_series(1, $2::int) as n
"""
# The most that ran at once, by key; an end comes before a start at the same time.
MOST = """
select key, max(running)::int from (
  select key, sum(step) over (partition by key order by at, step) as running
  from (
    select {key} as key, started_at as at, 1 as step
    from pgwake.jobs_finished where queue = any ($1)
    union all
    select {key}, finished_at, -1 from pgwake.jobs_finished where queue = any ($1)
  ) as e
) as r
group by key
"""
SAMPLE = """
select max(n) filter (where key <> $2), max(n) filter (where key = $2), sum(running)
from (
  select concurrency_key as key, count(*) as n,
    count(*) filter (where status = 'running') as running
  from pgwake.jobs_live
  where queue = $1 and status in ('pending', 'running') and concurrency_key is not null
  group by concurrency_key
) as held
"""
STARTS = """
select started_at from pgwake.jobs_finished
where queue = any ($1) and kind = $2 order by 1
"""
# A big tenant's jobs, and after them ten of each of ten small ones.
TENANTS = """
insert into pgwake.jobs (queue, kind, concurrency_key)
select $1, case when n > $2 then 'small' else 'big' end,
  case when not $3 then null when n > $2 then 'small ' || n % 10 else 'big' end
from generate_series(1, $2::int + 100) as n
"""
# How long the small ones took, and how many of the big one's jobs were done by then.
SHARE = """
select extract(epoch from small.ended_at - $2)::float8, (
  select count(*) from pgwake.jobs_finished
  where queue = $1 and kind = 'big' and finished_at <= small.ended_at)
from (
  select max(finished_at) as ended_at from pgwake.jobs_finished
  where queue = $1 and kind = 'small'
) as small
"""
IS_LEFT = """
select exists (
  select from pgwake.jobs_live where queue = any ($1) and kind <> 'big')
"""


@dataclass(frozen=True, slots=True)
class Account:
    """What came of it.

    Attributes:
        jobs: How many jobs each of the three queues had, and those of the kinds.
        keys: How many concurrency keys.
        completed: How many jobs were completed, once each, of each of these.
        most_of_a_key: The most that ran at once of any key but the big one; its limit.
        most_of_the_big_key: The same of the one with half of all jobs.
        seen_of_a_key: The most that was ever seen to hold a key at once.
        seen_of_the_big_key: The same of the big one.
        most_running: The most that ran at once where max_running is set; the limit.
        most_of_a_kind: The same of a kind with max_running in two queues; its limit.
        beyond_rate: How many jobs more than burst + rate * t started, at the worst.
        beyond_rate_of_a_kind: The same of a kind with a rate in two queues.
        keys_per_second: Jobs a second of the queue with keys.
        running_per_second: The same of the one with keys and max_running.
        rate_per_second: The same of the one with a rate; its rate.
        fair: How many seconds ten tenants' ten jobs each took beside one that had come
            first with half of all jobs, each with a key of its own; and how many of the
            big one's jobs were completed by then.
        unfair: The same without keys.
    """

    jobs: int
    keys: int
    completed: tuple[int, ...]
    most_of_a_key: tuple[int, int]
    most_of_the_big_key: tuple[int, int]
    seen_of_a_key: int
    seen_of_the_big_key: int
    most_running: tuple[int, int]
    most_of_a_kind: tuple[int, int]
    beyond_rate: float
    beyond_rate_of_a_kind: float
    keys_per_second: int
    running_per_second: int
    rate_per_second: tuple[int, int]
    fair: tuple[float, int]
    unfair: tuple[float, int]

    @property
    def holds(self) -> bool:
        """Whether no limit was exceeded, and no job lost."""
        return (
            set(self.completed) == {self.jobs}
            and self.most_of_a_key[0] <= self.most_of_a_key[1]
            and self.most_of_the_big_key[0] <= self.most_of_the_big_key[1]
            and self.seen_of_a_key <= self.most_of_a_key[1]
            and self.seen_of_the_big_key <= self.most_of_the_big_key[1]
            and self.most_running[0] <= self.most_running[1]
            and self.most_of_a_kind[0] <= self.most_of_a_kind[1]
            and max(self.beyond_rate, self.beyond_rate_of_a_kind) < 0.01
        )


async def run(url: str, *, jobs: int, keys: int, seed: int = 1) -> Account:
    """Do it, on a database with the schema; the account."""
    rate, burst = jobs / 10, max(1, jobs // 100)
    connection: Connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "truncate pgwake.queues, pgwake.concurrency_limits, pgwake.kinds"
        )
        await connection.execute(POLICY, KEY_LIMIT, MAX_RUNNING, rate, burst)
        await connection.execute(LIMITS, BIG, BIG_LIMIT)
        await connection.execute(KINDS, MAX_RUNNING, rate, burst)

        seconds, seen = {}, {}
        for name in ("keys", "running", "rate"):
            await connection.execute(INSERT, name, jobs, 0 if name == "rate" else keys)
            async with _sampler(url, name) as seen[name]:
                seconds[name] = await _drain(url, [name], seed)
        await connection.execute(INSERT_KINDS, jobs)
        await _drain(url, KIND_QUEUES, seed)
        most = {
            name: await _most(connection, "concurrency_key", [name])
            for name in ("keys", "running")
        }
        running = await _most(connection, "'all'", ["running"])
        kinds = await _most(connection, "kind", KIND_QUEUES)
        beyond = [
            _beyond(await connection.fetch(STARTS, queues, kind), rate, burst)
            for queues, kind in ((["rate"], "noop"), (KIND_QUEUES, "rated"))
        ]
        shares = [
            await _share(url, connection, name, jobs // 2, seed)
            for name in ("fair", "unfair")
        ]
        completed = await connection.fetch(
            "select count(distinct id) from pgwake.jobs_finished"
            " where queue not in ('fair', 'unfair') group by left(queue, 5)"
        )
    finally:
        await connection.close()
    big = [most[name].pop(BIG) for name in most]
    return Account(
        jobs=jobs,
        keys=keys,
        completed=tuple(row[0] for row in completed),
        most_of_a_key=(
            max([*most["keys"].values(), *most["running"].values()]),
            KEY_LIMIT,
        ),
        most_of_the_big_key=(max(big), BIG_LIMIT),
        seen_of_a_key=max(seen["keys"].key, seen["running"].key),
        seen_of_the_big_key=max(seen["keys"].big, seen["running"].big),
        most_running=(max(running["all"], seen["running"].running), MAX_RUNNING),
        most_of_a_kind=(kinds["few"], MAX_RUNNING),
        beyond_rate=beyond[0],
        beyond_rate_of_a_kind=beyond[1],
        keys_per_second=int(jobs / seconds["keys"]),
        running_per_second=int(jobs / seconds["running"]),
        rate_per_second=(int(jobs / seconds["rate"]), int(rate)),
        fair=shares[0],
        unfair=shares[1],
    )


async def _most(connection: Connection, key: str, queues: list[str]) -> dict[str, int]:
    rows = await connection.fetch(MOST.format(key=key), queues)
    return {row[0]: row[1] for row in rows}


def _beyond(rows: list[asyncpg.Record], rate: float, burst: int) -> float:
    """By how many jobs the worst span of time has exceeded burst + rate * t."""
    starts = [row[0].timestamp() for row in rows]
    worst, least = 0.0, float("inf")
    for place, at in enumerate(starts):
        least = min(least, place - rate * (at - starts[0]))
        worst = max(worst, place + 1 - rate * (at - starts[0]) - least)
    return max(0.0, round(worst - burst, 3))


async def _drain(url: str, queues: list[str], seed: int) -> float:
    """Have all claimers work until nothing is left; how long it took."""
    connections = [await asyncpg.connect(url) for _ in range(CLAIMERS + 1)]
    began = time.monotonic()
    work = [
        asyncio.create_task(_work(connection, queue, random.Random(seed + n)))  # noqa: S311
        for n, (connection, queue) in enumerate(
            zip(connections[1:], itertools.cycle(queues), strict=False)
        )
    ]
    while await connections[0].fetchval(IS_LEFT, queues):
        await asyncio.sleep(0.02)
        for task in work:
            if task.done():
                task.result()
    took = time.monotonic() - began
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    for connection in connections:
        connection.terminate()
    return took


async def _work(connection: Connection, name: str, dice: random.Random) -> None:
    cursor = None
    while True:
        claim = await claim_rows(
            connection, name, BATCH, f"claimer {id(connection)}", None, cursor
        )
        cursor = claim.cursor
        await asyncio.sleep(dice.uniform(0, 0.002) if claim.jobs else 0.005)
        if claim.jobs:
            outcomes = await complete_jobs(
                connection,
                [job[0] for job in claim.jobs],
                [job[1] for job in claim.jobs],
                None,
            )
            assert set(outcomes) == {"completed"}, outcomes


@dataclass(slots=True)
class Seen:
    """The most that was seen at once."""

    key: int = 0
    big: int = 0
    running: int = 0


@asynccontextmanager
async def _sampler(url: str, name: str) -> AsyncIterator[Seen]:
    seen = Seen()
    connection = await asyncpg.connect(url)

    async def look() -> None:
        while True:
            row = await connection.fetchrow(SAMPLE, name, BIG)
            assert row is not None
            seen.key = max(seen.key, row[0] or 0)
            seen.big = max(seen.big, row[1] or 0)
            seen.running = max(seen.running, row[2] or 0)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(look())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await connection.close()


async def _share(
    url: str, connection: Connection, name: str, jobs: int, seed: int
) -> tuple[float, int]:
    await connection.execute(TENANTS, name, jobs, name == "fair")
    began = await connection.fetchval("select clock_timestamp()")
    await _drain(url, [name], seed)
    row = await connection.fetchrow(SHARE, name, began)
    assert row is not None
    return round(row[0], 3), row[1]


def main(
    jobs: int = 50_000,
    keys: int = 1_000,
    seed: int = 1,
    database_url: Annotated[str | None, typer.Option(help="A scratch one.")] = None,
) -> None:
    """Run it and print the account; exit code 1 if a limit was exceeded."""
    if database_url is None:
        with EmbeddedServer() as server:
            asyncio.run(install(server.url))
            account = asyncio.run(run(server.url, jobs=jobs, keys=keys, seed=seed))
    else:
        asyncio.run(install(database_url))
        account = asyncio.run(run(database_url, jobs=jobs, keys=keys, seed=seed))
    for field in fields(account):
        print(f"{field.name:20} {getattr(account, field.name)}")  # noqa: T201
    print("the limits hold" if account.holds else "A LIMIT WAS EXCEEDED")  # noqa: T201
    sys.exit(not account.holds)


if __name__ == "__main__":
    typer.run(main)
