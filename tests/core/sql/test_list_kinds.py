"""list_kinds: who handles what, and what goes round without being run."""

import asyncio
from datetime import timedelta
from typing import Any

from support import Connect, Connection
from support.sql.helpers import Row, call, rows, set_clock, waits


async def kinds(db: Connection) -> dict[str, Row]:
    return {row["name"]: row for row in await rows(db, "list_kinds")}


async def report(db: Connection, worker: str, *names: str) -> None:
    await db.execute(
        "select pgwake.report_worker($1, 'h', 1, '{default}', $2)", worker, list(names)
    )


async def note(db: Connection, *names: Any) -> None:
    await call(db, "count_bounces", kinds=list(names))


async def test_kinds_of_live_workers_are_listed_with_how_many_handle_them(
    db: Connection,
) -> None:
    await report(db, "w1", "a", "b", "b")
    await report(db, "w2", "b")
    counts = {n: k["live_worker_count"] for n, k in (await kinds(db)).items()}
    assert counts == {"a": 1, "b": 2}

    await set_clock(db, "31 s")
    assert await kinds(db) == {}


async def test_policy_is_told_by_who_has_set_it(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.kinds (name, timeout, check_payload, declared_max_attempts,"
        " declared_timeout, declared_version, declared_by, declared_at)"
        " values ('a', '5 s', true, 3, '9 s', '{2026,11,2}', 'w1', pgwake.now())"
    )
    await report(db, "w1", "b")
    found = await kinds(db)

    assert found["a"]["declared"] == {"max_attempts": 3, "timeout": "00:00:09"}
    assert found["a"]["overrides"] == {"timeout": "00:00:05"}
    assert found["a"]["check_payload"] is True
    assert (found["a"]["declared_version"], found["a"]["declared_by"]) == (
        "2026.11.2",
        "w1",
    )
    assert found["a"]["declared_at"] is not None
    assert (found["b"]["declared"], found["b"]["overrides"]) == ({}, {})
    assert found["b"]["declared_version"] is None


async def test_bounces_are_counted_by_kind(db: Connection) -> None:
    await note(db, "a", "b", "a", None)
    await set_clock(db, "1 min")
    await note(db, "b")
    found = await kinds(db)

    assert {n: k["bounce_count"] for n, k in found.items()} == {"a": 2, "b": 2}
    later = found["b"]["bounced_at"] - found["a"]["bounced_at"]
    assert later >= timedelta(minutes=1)
    assert found["a"]["live_worker_count"] == 0


async def test_nothing_to_note_notes_nothing(db: Connection) -> None:
    await note(db)
    await call(db, "count_bounces", kinds=None)

    assert await kinds(db) == {}


async def test_a_bounce_keeps_the_kinds_policy(db: Connection) -> None:
    await db.execute("insert into pgwake.kinds (name, max_attempts) values ('a', 3)")
    await note(db, "a")

    assert (await kinds(db))["a"]["overrides"] == {"max_attempts": 3}


async def test_notes_lock_kinds_in_the_order_of_their_names(
    connect: Connect, db: Connection
) -> None:
    await note(db, "a", "b")
    other, observer = await connect(), await connect()
    policy = "update pgwake.kinds set max_attempts = 3 where name = $1"
    async with db.transaction():
        await db.execute(policy, "a")
        task = asyncio.create_task(note(other, "b", "a"))
        await waits(other, task, observer)
        await db.execute(policy, "b")
    await task
    found = await kinds(db)
    assert {n: k["bounce_count"] for n, k in found.items()} == {"a": 2, "b": 2}


async def test_a_kind_of_which_nothing_but_old_bounces_is_known_is_removed(
    db: Connection,
) -> None:
    await note(db, "typo", "declared", "overridden")
    await db.execute(
        "update pgwake.kinds set declared_at = pgwake.now() where name = 'declared';"
        "update pgwake.kinds set timeout = '5 s' where name = 'overridden'"
    )
    await set_clock(db, "6 days")
    await note(db, "young")
    await call(db, "maintain", step="retention")
    assert set(await kinds(db)) == {"typo", "declared", "overridden", "young"}

    await set_clock(db, "7 days 1 min")
    await call(db, "maintain", step="retention")
    assert set(await kinds(db)) == {"declared", "overridden", "young"}
