"""What steps, sleeps and waits cost, beside a claim, and how late a sleep ends.

Each statement as clients have it, in one session, those of a round one after the other:
CPU of the session's process, so the server must run on this machine. Then claims beside
jobs that sleep and wait with a time-out. A sleep's end is taken by a worker whose poll
is at one hour, from when it was to be until the handler's first line.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from time import monotonic_ns, time_ns
from typing import Any

from pgwake.cli.bench.measure import Figures, latencies
from pgwake.cli.bench.worker import LATENCY
from pgwake.database.connection import Connection

from .bare import cpu_us
from .contenders import PGWAKE
from .delayed import HOUR
from .measure import Bench, Run

QUICK = {"rounds": 100, "beside": 2000, "sleeps": 20, "repeats": 1}
INSERT = "insert into pgwake.jobs (kind) values ('noop')"
CLAIM = "select id, lease_id from pgwake.claim_rows('default', 1, 'w') limit 1"
COMPLETE = "select pgwake.complete_job($1, $2)"
RECORD = "select pgwake.record_step($1, $2, $3, '17')"
SLEEP = "select pgwake.sleep_job($1, $2, 'nap', clock_timestamp() + interval '1 ms')"
AWAIT = "select outcome from pgwake.await_event($1, $2, $3, interval '1 hour')"
EMIT = "select pgwake.emit_event($1)"
BUFFERS = "explain (analyze, buffers, format json) " + CLAIM
HALF = 500
FILL = f"""
do $$
declare
  v_job record;
begin
  insert into pgwake.jobs (kind) select 'noop' from generate_series(1, {2 * HALF});
  for v_job in select * from pgwake.claim_jobs('default', {2 * HALF}) loop
    if v_job.id % 2 = 0 then
      perform pgwake.sleep_job(
        v_job.id, v_job.lease_id, 'nap', now() + interval '1 day');
    else
      perform pgwake.await_event(
        v_job.id, v_job.lease_id, 'event:' || v_job.id, interval '1 day');
    end if;
  end loop;
end
$$
"""
# In one transaction, so that the worker sees them when they sleep.
SLEEPERS = f"""
insert into pgwake.jobs (kind, payload)
select '{LATENCY}', jsonb_build_object(
  'at', (1e9 * extract(epoch from clock_timestamp()))::bigint - $2::bigint
    + (1e9 + 1e8 * (number + random() / 2))::bigint)
from generate_series(1, $1::int) as number
"""
SLEEP_ALL = """
select pgwake.sleep_job(c.id, c.lease_id, 'nap',
  to_timestamp((((c.payload ->> 'at')::bigint + $2::bigint) / 1e9)::float8))
from pgwake.claim_jobs('default', $1) as c
"""


class Meter:
    """Medians of what statements cost the process of their session.

    Args:
        session: The session, on this machine.
        pid: Its process.
    """

    def __init__(self, session: Connection, pid: int) -> None:
        self._session = session
        self._pid = pid
        self._used: defaultdict[str, list[float]] = defaultdict(list)

    async def row(self, name: str, statement: str, *arguments: object) -> Any:
        """Execute one, and note its microseconds under the name; its first row."""
        before = cpu_us(self._pid)
        row = await self._session.fetchrow(statement, *arguments)
        after = cpu_us(self._pid)
        assert before is not None, "the server is not on this machine"
        assert after is not None, "the session is lost"
        self._used[f"{name}_us"].append(after - before)
        return row

    def figures(self) -> Figures:
        """Return the medians so far, and forget them."""
        figures = {name: median(values) for name, values in self._used.items()}
        self._used.clear()
        return figures


async def run(
    bench: Bench,
    *,
    rounds: int = 1000,
    beside: int = 100_000,
    sleeps: int = 200,
    repeats: int = 3,
) -> list[Run]:
    """Measure that many of each statement; as many sleepers, and waiters, beside."""

    async def statements() -> Figures:
        async with _meter(bench) as (meter, session):
            for number in range(-rounds // 10, rounds):
                if number == 0:
                    meter.figures()  # the first ones compile
                await _live(meter, session, f"event:{number}")
            return meter.figures()

    async def claims_beside() -> Figures:
        async with _meter(bench) as alone, _meter(bench) as full:
            for _ in range(0, beside, HALF):
                await full[1].execute(FILL)
            for _, session in (alone, full):
                await session.execute("vacuum analyze")
            for number in range(-rounds // 10, rounds):
                for meter, session in (alone, full):
                    if number == 0:
                        meter.figures()
                    await session.execute(INSERT)
                    job = await meter.row("claim", CLAIM)
                    await session.execute(COMPLETE, *job)
                    await meter.row("empty_claim", CLAIM)
            figures = {**alone[0].figures(), "buffers": await _buffers(alone[1])}
            full_ones = {**full[0].figures(), "buffers": await _buffers(full[1])}
            return figures | {f"beside_{name}": n for name, n in full_ones.items()}

    async def sleeping() -> Figures:
        async with (
            PGWAKE.database(bench) as (url, session),
            PGWAKE.worker(url, "--poll-interval", str(HOUR)) as worker,
        ):
            booted = time_ns() - monotonic_ns()
            async with session.transaction():
                await session.execute(SLEEPERS, sleeps, booted)
                slept = await session.fetch(SLEEP_ALL, sleeps, booted)
            assert len(slept) == sleeps
            return latencies(await worker.delays(sleeps, sleeps / 10 + 60))

    return await bench.rounds(
        {
            "one a statement": statements,
            f"claims beside {beside:,} asleep and {beside:,} waiting": claims_beside,
            "sleeps that end": sleeping,
        },
        repeats,
    )


@asynccontextmanager
async def _meter(bench: Bench) -> AsyncIterator[tuple[Meter, Connection]]:
    async with PGWAKE.database(bench) as (_, session):
        await session.execute("set synchronous_commit = off")
        yield Meter(session, await session.fetchval("select pg_backend_pid()")), session


async def _live(meter: Meter, session: Connection, event: str) -> None:
    """Live a job without steps, and one that does all of them."""
    for name in ("", "stepping"):
        await session.execute(INSERT)
        job = await meter.row("claim", CLAIM)
        if name:
            await meter.row("first_step", RECORD, *job, "first")
            await meter.row("step", RECORD, *job, "second")
            answer = await meter.row("wait", AWAIT, *job, event)
            assert answer[0] == "waits"
            await meter.row("emit", EMIT, event)
            job = await meter.row("waking_claim", CLAIM)
            answer = await meter.row("heard", AWAIT, *job, event)
            assert answer[0] == "here"
            await meter.row("sleep", SLEEP, *job)
            await asyncio.sleep(0.002)
            job = await meter.row("claim_after_sleep", CLAIM)
        await meter.row(f"{name}_complete".lstrip("_"), COMPLETE, *job)


async def _buffers(session: Connection) -> int:
    """How many buffers a claim touches, after a vacuum; rolled back."""
    await session.execute("vacuum")
    buffers = 0
    for _ in range(3):  # the first ones read catalogs
        transaction = session.transaction()
        await transaction.start()
        await session.execute(INSERT)
        (explained,) = json.loads(await session.fetchval(BUFFERS))
        await transaction.rollback()
        plan = explained["Plan"]
        buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return buffers
