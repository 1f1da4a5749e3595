"""Channel pgwake, while one sleeps: the queue's name, once a statement, at commit."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from core.sql.test_payloads_and_names import NAMES
from support import Connect, Connection
from support.sql.fixtures import fixture
from support.sql.helpers import (
    Listener,
    Row,
    call,
    claim,
    insert,
    insert_many,
    job_in,
    pair,
    pairs,
    rolled_back,
    rows,
    running,
    set_queue,
    sweep,
)


@fixture
async def listener(connect: Connect) -> Listener:
    queues = ("default", "q", "q0", "q1", "q2", "old", "new")
    return await Listener.with_notify_locks(await connect(), *queues)


INSERTS = {
    "a plain insert": "insert into pgwake.jobs (kind) values ('a')",
    "several rows": "insert into pgwake.jobs (kind) values ('a'), ('b'), ('c')",
    "from a select": "insert into pgwake.jobs (kind)"
    " select 'a' from generate_series(1, 9)",
    "due later": "insert into pgwake.jobs (kind, run_at)"
    " values ('a', now() + interval '1 year')",
    "one of two conflicting": "insert into pgwake.jobs (kind, unique_key)"
    " values ('a', 'k'), ('a', 'k') on conflict do nothing",
    "enqueue": "select pgwake.enqueue('a')",
}


@pytest.mark.parametrize("way", INSERTS)
async def test_a_statement_that_adds_jobs_notifies_once(
    db: Connection, listener: Listener, way: str
) -> None:
    await db.execute(INSERTS[way])

    assert await listener.heard() == ["default"]


async def test_a_statement_notifies_once_for_each_queue(
    db: Connection, listener: Listener
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, queue)"
        " select 'a', 'q' || n % 3 from generate_series(1, 100) as n"
    )

    assert sorted(await listener.heard()) == ["q0", "q1", "q2"]


async def test_each_commit_notifies_anew(db: Connection, listener: Listener) -> None:
    for _ in range(3):
        await insert(db)

    assert await listener.heard() == ["default"] * 3


@pytest.mark.parametrize(
    "statement",
    [
        (
            "insert into pgwake.jobs (kind, unique_key) values ('a', 'k')"
            " on conflict do nothing"
        ),
        "select pgwake.enqueue('a', unique_key => 'k')",
        "insert into pgwake.jobs (kind) select 'a' where false",
    ],
)
async def test_a_statement_that_adds_nothing_is_silent(
    db: Connection, listener: Listener, statement: str
) -> None:
    await insert(db, "a", unique_key="k")
    await listener.heard()
    await db.execute(statement)

    assert await listener.heard() == []


async def test_a_rollback_is_silent(db: Connection, listener: Listener) -> None:
    async with rolled_back(db):
        await insert(db)

    assert await listener.heard() == []


@pytest.mark.parametrize("name", NAMES)
async def test_the_payload_is_the_very_name(
    db: Connection, connect: Connect, name: str
) -> None:
    listener = await Listener.with_notify_locks(await connect(), name)
    await insert(db, queue=name)

    assert await listener.heard() == [name]


Back = Callable[[Connection, Row], Awaitable[Any]]
BACK: dict[str, Back] = {
    "a failed attempt": lambda c, held: call(c, "fail_job", **pair(held)),
    "a release": lambda c, held: call(c, "release_jobs", **pairs(held)),
    "a snooze": lambda c, held: call(
        c, "snooze_job", **pair(held), delay=timedelta(hours=1)
    ),
    "a lease that ran out": lambda c, _: sweep(c, "1 hour"),
    "a dead worker": lambda c, _: rows(c, "release_worker_jobs", worker="w1"),
}


@pytest.mark.parametrize("way", BACK)
async def test_every_way_back_to_pending_notifies(
    db: Connection, listener: Listener, way: str
) -> None:
    held = await running(db, queue="q")
    await listener.heard()
    await BACK[way](db, held)

    assert await listener.heard() == ["q"]


async def test_a_crash_into_quarantine_notifies_too(
    db: Connection, listener: Listener
) -> None:
    await running(db, crash_count=2)
    await listener.heard()
    await rows(db, "release_worker_jobs", worker="w1")

    assert await listener.heard() == ["default"]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_a_retry_by_hand_notifies(
    db: Connection, listener: Listener, state: str
) -> None:
    job_id = await job_in(db, state, queue="q")
    await listener.heard()
    await call(db, "retry_job", job_id=job_id)

    assert await listener.heard() == ["q"]


async def test_a_replaced_job_notifies_in_its_new_queue(
    db: Connection, listener: Listener
) -> None:
    arguments = {"kind": "a", "unique_key": "k", "on_conflict": "replace"}
    await call(db, "enqueue", queue="old", **arguments)
    await listener.heard()
    await call(db, "enqueue", queue="new", **arguments)

    assert await listener.heard() == ["new"]


async def test_a_batch_notifies_once_for_each_queue(
    db: Connection, listener: Listener
) -> None:
    held: list[Row] = []
    for queue in ("q1", "q2"):
        await insert_many(db, 20, queue)
        held += await claim(db, 20, queue)
    await listener.heard()
    await call(db, "release_jobs", **pairs(*held))

    assert sorted(await listener.heard()) == ["q1", "q2"]


ENDS: dict[str, Back] = {
    "complete": lambda c, held: call(c, "complete_job", **pair(held)),
    "fail": lambda c, held: call(c, "fail_job", **pair(held), retryable=False),
    "force": lambda c, held: call(c, "force_fail_job", job_id=held["id"], reason="x"),
    "ask to cancel": lambda c, held: call(c, "cancel_job", job_id=held["id"]),
    "extend": lambda c, held: call(c, "extend_leases", **pairs(held)),
}


@pytest.mark.parametrize("way", ENDS)
async def test_nothing_else_notifies(
    db: Connection, listener: Listener, way: str
) -> None:
    held = await running(db)
    await listener.heard()
    await ENDS[way](db, held)

    assert await listener.heard() == []


async def test_a_claim_is_silent(db: Connection, listener: Listener) -> None:
    await insert(db)
    await listener.heard()
    await claim(db)

    assert await listener.heard() == []


@pytest.mark.parametrize(
    "statement",
    [
        "update pgwake.queues set paused_until = null where name = 'q'",
        "update pgwake.queues set max_attempts = 3 where name = 'q'",
        "delete from pgwake.queues where name = 'q'",
    ],
)
async def test_a_resumed_queue_or_a_changed_policy_notifies(
    db: Connection, listener: Listener, statement: str
) -> None:
    await db.execute("insert into pgwake.queues values ('q', 'infinity')")
    await set_queue(db, "other")
    await listener.heard()
    await db.execute(statement)

    assert await listener.heard() == ["q"]
