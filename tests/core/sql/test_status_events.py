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
async def listener(connect: Connect, connection: Connection) -> Listener:
    await set_queue(connection, status_events="always")
    return await Listener.start(await connect(), "job_status_changed")


async def changes(listener: Listener) -> list[tuple[str | None, str]]:
    return [(e["old_status"], e["new_status"]) for e in await listener.events()]


async def test_an_event_names_the_job_and_both_states(
    connection: Connection, listener: Listener
) -> None:
    job_id = await insert(connection, "k")
    await claim(connection)

    new = {"id": job_id, "queue": "default", "kind": "k"}
    assert await listener.events() == [
        {**new, "old_status": None, "new_status": "pending"},
        {**new, "old_status": "pending", "new_status": "running"},
    ]


async def test_each_row_of_a_statement_has_its_event(
    connection: Connection, listener: Listener
) -> None:
    await insert_many(connection, 50)
    held = await claim(connection, 50)
    await call(connection, "complete_jobs", **pairs(*held))

    events = await listener.events()
    assert len({(event["id"], event["new_status"]) for event in events}) == 150


async def test_the_ends_of_a_running_job(
    connection: Connection, listener: Listener
) -> None:
    for function, arguments in [
        ("complete_job", {}),
        ("fail_job", {"retryable": False}),
    ]:
        held = await running(connection)
        await listener.heard()
        await call(connection, function, **pair(held), **arguments)
        end = "completed" if function == "complete_job" else "failed"
        assert await changes(listener) == [("running", end)]


async def test_the_ways_back_to_pending(
    connection: Connection, listener: Listener
) -> None:
    held = await running(connection)
    await listener.heard()

    await call(connection, "fail_job", **pair(held), retry_in=timedelta(0))
    assert await changes(listener) == [("running", "pending")]
    (held,) = await claim(connection)
    await call(connection, "release_jobs", **pairs(held))
    assert await changes(listener) == [("pending", "running"), ("running", "pending")]
    (held,) = await claim(connection, worker="w1")
    await rows(connection, "release_worker_jobs", worker="w1")
    assert await changes(listener) == [("pending", "running"), ("running", "pending")]
    await claim(connection)
    await sweep(connection, "1 hour")
    assert await changes(listener) == [("pending", "running"), ("running", "pending")]
    (held,) = await rows(connection, "claim_next_job")
    await call(connection, "snooze_job", **pair(held), delay=timedelta(0))
    assert await changes(listener) == [("pending", "running"), ("running", "pending")]


@pytest.mark.parametrize("state", ["waiting", "pending"])
async def test_a_job_that_is_cancelled_before_it_starts(
    connection: Connection, listener: Listener, state: str
) -> None:
    job_id = await insert(connection, status=state)
    assert await changes(listener) == [(None, state)]
    await call(connection, "cancel_job", job_id=job_id)

    assert await changes(listener) == [(state, "cancelled")]


@pytest.mark.parametrize("way", ["fail_jobs", "release_jobs", "sweep"])
async def test_a_job_that_is_cancelled_while_it_runs(
    connection: Connection, listener: Listener, way: str
) -> None:
    held = await running(connection)
    await listener.heard()
    await call(connection, "cancel_job", job_id=held["id"])
    assert await changes(listener) == []  # it was only asked to stop
    if way == "sweep":
        await sweep(connection, "1 hour")
    else:
        await call(connection, way, **pairs(held))

    assert await changes(listener) == [("running", "cancelled")]


@pytest.mark.parametrize("way", ["sweep", "force_fail_job"])
async def test_a_job_that_dies(
    connection: Connection, listener: Listener, way: str
) -> None:
    held = await running(connection, crash_count=4)
    await listener.heard()
    if way == "sweep":
        await sweep(connection, "1 hour")
    else:
        await call(connection, way, job_id=held["id"], reason="x")

    assert await changes(listener) == [("running", "failed")]


@pytest.mark.parametrize("state", ["waiting", "pending"])
async def test_a_job_that_is_completed_by_force(
    connection: Connection, listener: Listener, state: str
) -> None:
    job_id = await insert(connection, status=state)
    await listener.heard()
    await call(connection, "force_complete_job", job_id=job_id, reason="x")

    assert await changes(listener) == [(state, "completed")]


async def test_a_retry_by_hand(connection: Connection, listener: Listener) -> None:
    held = await running(connection)
    await call(connection, "fail_job", **pair(held), retryable=False)
    await listener.heard()
    await call(connection, "retry_job", job_id=held["id"])
    assert await changes(listener) == [("failed", "pending")]
    await call(connection, "cancel_job", job_id=held["id"])
    await call(connection, "retry_job", job_id=held["id"])

    assert await changes(listener) == [
        ("pending", "cancelled"),
        ("cancelled", "pending"),
    ]


async def test_what_changes_nothing_tells_nothing(
    connection: Connection, listener: Listener
) -> None:
    held = await running(connection)
    await call(connection, "complete_job", **pair(held))
    await listener.heard()
    for function in ("complete_jobs", "extend_leases", "release_jobs", "fail_jobs"):
        await call(connection, function, **pairs(held))
    await set_clock(connection, "1 hour")
    await call(connection, "maintain")

    assert await changes(listener) == []


@pytest.mark.parametrize("policy", [None, "never"])
async def test_other_queues_tell_nothing(
    connection: Connection, listener: Listener, policy: str | None
) -> None:
    if policy:
        await set_queue(connection, "other", status_events=policy)
    held = await running(connection, queue="other")
    await call(connection, "fail_job", **pair(held), retry_in=timedelta(0))
    (held,) = await claim(connection, queue="other")
    await call(connection, "fail_job", **pair(held), retryable=False)
    await call(connection, "retry_job", job_id=held["id"])
    await call(connection, "cancel_job", job_id=held["id"])

    assert await listener.heard() == []


async def test_a_switch_holds_at_once(
    connection: Connection, listener: Listener
) -> None:
    await set_queue(connection, status_events="never")
    await insert(connection)
    assert await changes(listener) == []
    await set_queue(connection, status_events="always")
    await claim(connection)

    assert await changes(listener) == [("pending", "running")]


async def test_with_notify_off_nothing_is_told(
    connection: Connection, listener: Listener
) -> None:
    await connection.execute("set pgwake.notify = off")
    held = await running(connection)
    await call(connection, "complete_job", **pair(held))

    assert await changes(listener) == []


async def test_the_longest_names_fit(
    connection: Connection, listener: Listener
) -> None:
    name = "\x01" * 128  # six bytes each in JSON
    await set_queue(connection, name, status_events="always")
    await insert(connection, name, queue=name)

    (event,) = await listener.events()
    assert (event["kind"], event["queue"]) == (name, name)
