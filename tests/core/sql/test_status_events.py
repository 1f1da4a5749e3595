"""Channel job_status_changed, for queues whose status_events are always."""

from datetime import timedelta

import pytest

from support import Connect, Connection
from support.sql.fixtures import fixture
from support.sql.helpers import (
    Listener,
    call,
    claim,
    insert,
    insert_many,
    pair,
    pairs,
    rows,
    running,
    set_clock,
    set_queue,
    sweep,
)


@fixture
async def listener(connect: Connect, db: Connection) -> Listener:
    await set_queue(db, status_events="always")
    return await Listener.start(await connect(), "job_status_changed")


async def changes(listener: Listener) -> list[tuple[str | None, str]]:
    return [(e["old_status"], e["new_status"]) for e in await listener.events()]


async def test_an_event_names_the_job_and_both_states(
    db: Connection, listener: Listener
) -> None:
    job_id = await insert(db, "k")
    await claim(db)

    new = {"id": job_id, "queue": "default", "kind": "k"}
    assert await listener.events() == [
        {**new, "old_status": None, "new_status": "pending"},
        {**new, "old_status": "pending", "new_status": "running"},
    ]


async def test_each_row_of_a_statement_has_its_event(
    db: Connection, listener: Listener
) -> None:
    await insert_many(db, 50)
    held = await claim(db, 50)
    await call(db, "complete_jobs", **pairs(*held))

    events = await listener.events()
    assert len({(event["id"], event["new_status"]) for event in events}) == 150


async def test_the_ends_of_a_running_job(db: Connection, listener: Listener) -> None:
    for function, arguments in [
        ("complete_job", {}),
        ("fail_job", {"retryable": False}),
    ]:
        held = await running(db)
        await listener.heard()
        await call(db, function, **pair(held), **arguments)
        end = "completed" if function == "complete_job" else "failed"
        assert await changes(listener) == [("running", end)]


async def test_the_ways_back_to_pending(db: Connection, listener: Listener) -> None:
    held = await running(db)
    await listener.heard()

    await call(db, "fail_job", **pair(held), retry_in=timedelta(0))
    assert await changes(listener) == [("running", "pending")]
    (held,) = await claim(db)
    await call(db, "release_jobs", **pairs(held))
    assert await changes(listener) == [("pending", "running"), ("running", "pending")]
    (held,) = await claim(db, worker="w1")
    await rows(db, "release_worker_jobs", worker="w1")
    assert await changes(listener) == [("pending", "running"), ("running", "pending")]
    await claim(db)
    await sweep(db, "1 hour")
    assert await changes(listener) == [("pending", "running"), ("running", "pending")]
    (held,) = await rows(db, "claim_next_job")
    await call(db, "snooze_job", **pair(held), delay=timedelta(0))
    assert await changes(listener) == [("pending", "running"), ("running", "pending")]


@pytest.mark.parametrize("state", ["waiting", "pending"])
async def test_a_job_that_is_cancelled_before_it_starts(
    db: Connection, listener: Listener, state: str
) -> None:
    job_id = await insert(db, status=state)
    assert await changes(listener) == [(None, state)]
    await call(db, "cancel_job", job_id=job_id)

    assert await changes(listener) == [(state, "cancelled")]


@pytest.mark.parametrize("way", ["fail_jobs", "release_jobs", "sweep"])
async def test_a_job_that_is_cancelled_while_it_runs(
    db: Connection, listener: Listener, way: str
) -> None:
    held = await running(db)
    await listener.heard()
    await call(db, "cancel_job", job_id=held["id"])
    assert await changes(listener) == []  # it was only asked to stop
    if way == "sweep":
        await sweep(db, "1 hour")
    else:
        await call(db, way, **pairs(held))

    assert await changes(listener) == [("running", "cancelled")]


@pytest.mark.parametrize("way", ["sweep", "force_fail_job"])
async def test_a_job_that_dies(db: Connection, listener: Listener, way: str) -> None:
    held = await running(db, crash_count=4)
    await listener.heard()
    if way == "sweep":
        await sweep(db, "1 hour")
    else:
        await call(db, way, job_id=held["id"], reason="x")

    assert await changes(listener) == [("running", "failed")]


@pytest.mark.parametrize("state", ["waiting", "pending"])
async def test_a_job_that_is_completed_by_force(
    db: Connection, listener: Listener, state: str
) -> None:
    job_id = await insert(db, status=state)
    await listener.heard()
    await call(db, "force_complete_job", job_id=job_id, reason="x")

    assert await changes(listener) == [(state, "completed")]


async def test_a_retry_by_hand(db: Connection, listener: Listener) -> None:
    held = await running(db)
    await call(db, "fail_job", **pair(held), retryable=False)
    await listener.heard()
    await call(db, "retry_job", job_id=held["id"])
    assert await changes(listener) == [("failed", "pending")]
    await call(db, "cancel_job", job_id=held["id"])
    await call(db, "retry_job", job_id=held["id"])

    assert await changes(listener) == [
        ("pending", "cancelled"),
        ("cancelled", "pending"),
    ]


async def test_what_changes_nothing_tells_nothing(
    db: Connection, listener: Listener
) -> None:
    held = await running(db)
    await call(db, "complete_job", **pair(held))
    await listener.heard()
    for function in ("complete_jobs", "extend_leases", "release_jobs", "fail_jobs"):
        await call(db, function, **pairs(held))
    await set_clock(db, "1 hour")
    await call(db, "maintain")

    assert await changes(listener) == []


@pytest.mark.parametrize("policy", [None, "never"])
async def test_other_queues_tell_nothing(
    db: Connection, listener: Listener, policy: str | None
) -> None:
    if policy:
        await set_queue(db, "other", status_events=policy)
    held = await running(db, queue="other")
    await call(db, "fail_job", **pair(held), retry_in=timedelta(0))
    (held,) = await claim(db, queue="other")
    await call(db, "fail_job", **pair(held), retryable=False)
    await call(db, "retry_job", job_id=held["id"])
    await call(db, "cancel_job", job_id=held["id"])

    assert await listener.heard() == []


async def test_a_switch_holds_at_once(db: Connection, listener: Listener) -> None:
    await set_queue(db, status_events="never")
    await insert(db)
    assert await changes(listener) == []
    await set_queue(db, status_events="always")
    await claim(db)

    assert await changes(listener) == [("pending", "running")]


async def test_with_notify_off_nothing_is_told(
    db: Connection, listener: Listener
) -> None:
    await db.execute("set pgwake.notify = off")
    held = await running(db)
    await call(db, "complete_job", **pair(held))

    assert await changes(listener) == []


async def test_the_longest_names_fit(db: Connection, listener: Listener) -> None:
    name = "\x01" * 128  # six bytes each in JSON
    await set_queue(db, name, status_events="always")
    await insert(db, name, queue=name)

    (event,) = await listener.events()
    assert (event["kind"], event["queue"]) == (name, name)
