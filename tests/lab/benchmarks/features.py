"""What features cost those who insert: the ways to do it, checks, events and parents.

Each beside a plain INSERT, in turns, by one connection of this process. A worker's CPU
is here the producer's.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import asyncpg

from pgwake import AsyncQueue, NewJob
from pgwake.cli.bench.measure import Figures, measured
from pgwake.database.connection import Connection

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"jobs": 2000, "repeats": 1}
BATCH = 1000
INSERT = """
insert into pgwake.jobs (kind, payload)
select 'noop', $1::jsonb from generate_series(1, $2::int)
"""
CHILDREN = """
insert into pgwake.jobs (kind, depends_on)
select 'noop', $1::bigint[] from generate_series(1, $2::int)
"""
FLAT = '{"to": "ada@example.org", "attachments": 2}'
NESTED = '{"order": {"number": 42, "lines": [{"item": "a", "count": 1}]}}'
FLAT_SCHEMA = """{"type": "object", "required": ["to"], "additionalProperties": false,
  "properties": {"to": {"type": "string"}, "attachments": {"type": "integer"}}}"""
LINES_SCHEMA = """{"type": "array", "items": {"type": "object", "required": ["item"],
  "properties": {"item": {"type": "string"}, "count": {"type": "integer"}}}}"""
NESTED_SCHEMA = f"""{{"type": "object", "required": ["order"], "properties": {{"order":
  {{"type": "object", "properties": {{"number": {{"type": "integer"}},
  "lines": {LINES_SCHEMA}}}}}}}}}"""
CHECK = """
select pgwake.declare_kinds('{{"noop": {{"schema": {}}}}}');
insert into pgwake.kinds (name, check_payload) values ('noop', true)
on conflict (name) do update set check_payload = true
"""
EVENTS = "insert into pgwake.queues (name, status_events) values ('default', '{}')"
Way = Callable[[Connection, int], Awaitable[object]]


async def run(bench: Bench, *, jobs: int = 50_000, repeats: int = 3) -> list[Run]:
    """Insert that many jobs by the thousand, and a tenth of that one by one."""

    async def ways(
        way: Way, size: int, policy: str = "", *, watched: bool = False
    ) -> Figures:
        count = (jobs if size > 1 else jobs // 10) // size
        async with PGWAKE.database(bench) as (url, session), AsyncExitStack() as stack:
            if policy:
                await session.execute(policy)
            if watched:
                watcher = await asyncpg.connect(url)
                stack.push_async_callback(watcher.close)
                await watcher.execute("listen job_status_changed")
                await watcher.execute("select pgwake.watch()")

            async def insert(times: int = count) -> None:
                for _ in range(times):
                    await way(session, size)

            await insert(max(count // 10, 1))  # the first ones compile
            return await measured(session, count * size, insert, os.getpid())

    flat, nested = partial(_insert, FLAT), partial(_insert, NESTED)
    conditions: dict[str, Callable[[], Awaitable[Figures]]] = {}
    for words, size in (("one by one", 1), ("by the thousand", BATCH)):
        conditions |= {
            f"INSERT {words}": partial(ways, flat, size),
            f"checked {words}": partial(ways, flat, size, CHECK.format(FLAT_SCHEMA)),
            f"nested {words}": partial(ways, nested, size),
            f"nested, checked {words}": partial(
                ways, nested, size, CHECK.format(NESTED_SCHEMA)
            ),
            f"status events never {words}": partial(
                ways, flat, size, EVENTS.format("never")
            ),
            f"status events always {words}": partial(
                ways, flat, size, EVENTS.format("always")
            ),
            f"watched by one session {words}": partial(ways, flat, size, watched=True),
        }
    conditions |= {
        "queue.enqueue": partial(ways, _enqueue, 1),
        "queue.enqueue_many": partial(ways, _enqueue_many, BATCH),
        "queue.copy, all at once": partial(ways, _copy, jobs),
        "children of one parent": partial(ways, _children, BATCH),
    }
    return await bench.rounds(conditions, repeats)


async def _insert(payload: str, session: Connection, size: int) -> None:
    await session.execute(INSERT, payload, size)


async def _enqueue(session: Connection, size: int) -> None:
    del size
    await AsyncQueue(session).enqueue("noop", {"to": "ada@example.org"})


async def _enqueue_many(session: Connection, size: int) -> None:
    await AsyncQueue(session).enqueue_many([_job()] * size)


async def _copy(session: Connection, size: int) -> None:
    await AsyncQueue(session).copy([_job()] * size)


def _job() -> NewJob:
    return NewJob("noop", {"to": "ada@example.org"})


async def _children(session: Connection, size: int) -> None:
    """Add a parent, and so many children of it."""
    parent = await AsyncQueue(session).enqueue("noop")
    await session.execute(CHILDREN, [parent], size)
