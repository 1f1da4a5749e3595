"""The claim's cursor: what dead entries cost, and what lies behind it."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.fixtures import fixture
from support.sql.helpers import (
    Row,
    call,
    claim,
    claim_batch,
    insert,
    insert_many,
    job_in,
    pairs,
    refused,
    row_count,
    row_locked,
    rows,
    set_clock,
)
from support.sql.plans import buffers

pytestmark = pytest.mark.own_database  # no dead entries of other tests

BATCH = {"queue": "default", "count": 100}
GARBAGE: list[Any] = [
    {"head_at": "soon"},
    {"head_at": 5},
    {"resume_points": 5},
    {"resume_points": [1]},
    {"resume_points": {"0": 5}},
    {"resume_points": {"x": ["2026-01-01", 1]}},
    {"resume_points": {"0": ["2026-01-01", "x"]}},
    {"resume_points": {"0": ["then", 1]}},
    {"resume_points": {"0": ["2026-01-01", 1, ["then", 1]]}},
    {"resume_points": {"0": ["2026-01-01", 1e30]}},
    {"next_at": ["soon"]},
]


async def insert_shuffled(db: Connection, count: int, queue: str = "default") -> None:
    """Insert due jobs in no order on the pages, so that each dead one is a buffer."""
    await db.execute(
        "insert into pgwake.jobs (kind, queue, run_at)"
        " select 'a', $2, now() - random() * interval '1 hour'"
        " from generate_series(1, $1::int)",
        count,
        queue,
    )


async def drain(db: Connection, count: int, **arguments: Any) -> None:
    """Claim and complete so many, from the head, in few large batches."""
    while count > 0:
        jobs = await claim(db, min(count, 5000), **arguments)
        await call(db, "complete_jobs", **pairs(*jobs))
        count -= len(jobs)


async def cursor_after(db: Connection, count: int = 100) -> Any:
    """The cursor that a worker has when it has claimed for some time."""
    cursor = None
    for _ in range(3):
        row = await claim_batch(db, count, cursor=cursor)
        cursor = row["cursor"]
    assert cursor is not None
    return lasting(cursor)


def lasting(cursor: Any) -> Any:
    """The same cursor, with the look from the head as far away as can be."""
    return cursor | {"head_at": (datetime.now().astimezone() + MINUTE).isoformat()}


def at_heads_turn(cursor: Any) -> Any:
    """The same cursor, when it is time to look from the head."""
    return cursor | {"head_at": "2000-01-01 00:00+00"}


MINUTE = timedelta(seconds=59)


@pytest.mark.usefixtures("old_snapshot")
async def test_a_claim_costs_the_same_however_many_are_dead(db: Connection) -> None:
    await insert_shuffled(db, 22_000)
    fresh = await buffers(db, "claim_batch", **BATCH)
    await drain(db, 20_000)
    headed = await buffers(db, "claim_batch", **BATCH)
    cursor = await cursor_after(db)

    costs = []
    for _ in range(8):
        costs.append(await buffers(db, "claim_batch", **BATCH, cursor=cursor))
        row = await claim_batch(db, 100, cursor=cursor)
        cursor = lasting(row["cursor"])
    assert max(costs) < fresh + 1000
    assert headed > fresh + 10_000


@pytest.mark.usefixtures("old_snapshot")
async def test_a_queue_that_was_emptied_costs_little_to_look_at(db: Connection) -> None:
    for priority in (-5, 0, 5):
        await db.execute(
            "insert into pgwake.jobs (kind, priority)"
            " select 'a', $1 from generate_series(1, 3000)",
            priority,
        )
    await drain(db, 9000)
    await set_clock(db, "2 seconds")  # none of these transactions is open
    cursor = await cursor_after(db)

    assert await buffers(db, "claim_batch", **BATCH, cursor=cursor) < 150
    assert await buffers(db, "claim_batch", **BATCH) > 150


@pytest.mark.usefixtures("old_snapshot")
async def test_a_priority_that_others_emptied_is_passed_over(db: Connection) -> None:
    await insert_many(db, 1000)
    await db.execute(
        "insert into pgwake.jobs (kind, priority)"
        " select 'a', 9 from generate_series(1, 3000)"
    )
    await drain(db, 3000)
    await set_clock(db, "2 seconds")
    cursor = await cursor_after(db, 10)
    arguments = {**BATCH, "count": 10, "cursor": cursor}

    assert "-9" in cursor["resume_points"]
    assert await buffers(db, "claim_batch", **arguments) < 300
    job_id = await insert(db, priority=9)
    assert (await claim_batch(db, cursor=cursor))["ids"] == [job_id]


@pytest.mark.usefixtures("old_snapshot")
async def test_what_crashed_and_was_cancelled_is_passed_over_too(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, crash_count)"
        " select 'a', 1 + n % 2 from generate_series(1, 6000) as n"
    )
    await db.execute("delete from pgwake.jobs_live")
    await set_clock(db, "2 seconds")
    for suspects in (False, True):
        arguments: dict[str, Any] = {**BATCH, "suspects": suspects}
        headed = await buffers(db, "claim_batch", **arguments)
        cursor = None
        for _ in range(3):
            row = await claim_batch(db, cursor=cursor, suspects=suspects)
            cursor = lasting(row["cursor"])
        cost = await buffers(db, "claim_batch", **arguments, cursor=cursor)
        assert cost < 100 < headed


@pytest.mark.usefixtures("old_snapshot")
async def test_jobs_cancelled_before_they_were_due_are_passed_over(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, run_at)"
        " select 'a', now() + interval '1 hour' from generate_series(1, 3000)"
    )
    await db.execute("delete from pgwake.jobs_live")
    run_at = await db.fetchval("select now() + interval '2 hours'")
    await insert(db, run_at=run_at)
    row = await claim_batch(db)
    assert row["next_run_at"] == run_at
    cursor = lasting(row["cursor"])

    assert await buffers(db, "claim_batch", **BATCH, cursor=cursor) < 200
    row = await claim_batch(db, cursor=cursor)
    assert row["next_run_at"] <= row["claimed_at"] + timedelta(minutes=1)
    row = await claim_batch(db, cursor=at_heads_turn(cursor))
    assert row["next_run_at"] == run_at


async def test_a_queue_without_dead_entries_has_no_cursor(db: Connection) -> None:
    await insert_many(db, 1000)
    for _ in range(3):
        assert (await claim_batch(db, 100))["cursor"] is None
    await db.execute("delete from pgwake.jobs_live")
    await db.execute("vacuum pgwake.jobs_live")
    assert (await claim_batch(db))["cursor"] is None


async def test_the_cursor_goes_when_vacuum_has_been_there(
    db: Connection, old_snapshot: Connection
) -> None:
    await insert_many(db, 4000)
    await drain(db, 3000)
    cursor = await cursor_after(db)
    await old_snapshot.execute("rollback")
    await db.execute("vacuum pgwake.jobs_live")

    row = await claim_batch(db, 100, cursor=at_heads_turn(cursor))
    assert row["cursor"] is None


@fixture
async def cursor(db: Connection, old_snapshot: Connection) -> Any:
    """A cursor past 3,000 dead entries; the queue is empty."""
    assert not old_snapshot.is_closed()
    await insert_many(db, 3600)
    await drain(db, 3000)
    cursor = await cursor_after(db)
    while (row := await claim_batch(db, 100, cursor=cursor))["ids"]:
        cursor = lasting(row["cursor"])
    return cursor


@pytest.mark.parametrize("priority", [-1, 0, 1])
@pytest.mark.parametrize("crash_count", [0, 1])
async def test_a_new_job_is_found_at_once(
    db: Connection, cursor: Any, priority: int, crash_count: int
) -> None:
    job_id = await insert(db, priority=priority, crash_count=crash_count)

    assert (await claim_batch(db, 100, cursor=cursor))["ids"] == [job_id]


async def test_a_job_that_is_committed_late_is_found_at_once(
    connect: Connect, db: Connection, old_snapshot: Connection
) -> None:
    assert not old_snapshot.is_closed()
    await insert_many(db, 3000)
    await drain(db, 3000)
    await insert_many(db, 300)
    late = await connect()
    async with late.transaction():
        job_id = await insert(late)
        await insert_many(db, 300)
        cursor = None
        while (row := await claim_batch(db, 100, cursor=cursor))["ids"]:
            cursor = lasting(row["cursor"])

    # It lies before the last hundreds that were claimed, which are looked at again.
    assert (await claim_batch(db, cursor=cursor))["ids"] == [job_id]


async def test_what_lies_behind_the_cursor_is_found_by_the_look_from_the_head(
    db: Connection, cursor: Any
) -> None:
    run_at = await db.fetchval("select now() - interval '1 hour'")
    job_id = await insert(db, run_at=run_at)
    row = await claim_batch(db, cursor=cursor)
    head_at = datetime.fromisoformat(cursor["head_at"])
    assert (row["ids"], row["next_run_at"]) == ([], head_at)

    row = await claim_batch(db, cursor=at_heads_turn(cursor))
    assert row["ids"] == [job_id]


async def test_a_claim_with_a_cursor_never_says_to_sleep_beyond_the_look(
    db: Connection, cursor: Any
) -> None:
    run_at = await db.fetchval("select now() + interval '1 hour'")
    soon = await db.fetchval("select now() + interval '20 seconds'")
    head_at = datetime.fromisoformat(cursor["head_at"])
    assert (await claim_batch(db, cursor=cursor))["next_run_at"] == head_at
    await insert(db, run_at=run_at)
    assert (await claim_batch(db, cursor=cursor))["next_run_at"] == head_at
    await insert(db, run_at=soon)
    assert (await claim_batch(db, cursor=cursor))["next_run_at"] == soon


async def test_the_look_from_the_head_is_told_by_the_queues_clock(
    db: Connection, cursor: Any
) -> None:
    await set_clock(db, "1 day")
    row = await claim_batch(db, cursor=cursor)

    head_at = datetime.fromisoformat(cursor["head_at"])
    assert row["next_run_at"] - head_at == timedelta(days=1)


async def test_a_look_from_the_head_that_would_be_far_away_is_now(
    db: Connection, cursor: Any
) -> None:
    run_at = await db.fetchval("select now() - interval '1 hour'")
    job_id = await insert(db, run_at=run_at)

    cursor |= {"head_at": (datetime.now().astimezone() + 2 * MINUTE).isoformat()}
    assert (await claim_batch(db, cursor=cursor))["ids"] == [job_id]


@pytest.mark.usefixtures("old_snapshot")
async def test_nothing_is_lost_or_doubled_by_claimers_with_cursors(
    connect: Connect, db: Connection
) -> None:
    await insert_many(db, 3000)
    await drain(db, 3000)
    claimers = [await connect() for _ in range(3)]
    cursors: list[Any] = [None] * 3
    wanted: set[int] = set()
    taken: list[int] = []
    for step in range(60):
        inserted = await db.fetch(
            "insert into pgwake.jobs (kind, priority, run_at)"
            " select 'a', n % 5 - 2, now() - n % 3 * interval '10 minutes'"
            " from generate_series(1, 90) as n returning id"
        )
        wanted |= {job_id for (job_id,) in inserted}
        for at in range(3):
            row = await claim_batch(claimers[at], 30 + step, cursor=cursors[at])
            taken += row["ids"]
            cursors[at] = row["cursor"]
    for cursor in cursors:
        for _ in range(9):
            looked = at_heads_turn(cursor or {})
            taken += (await claim_batch(db, 1000, cursor=looked))["ids"]

    assert any(cursors)
    assert len(taken) == len(set(taken))
    assert set(taken) == wanted


@pytest.mark.parametrize("cursor", GARBAGE)
async def test_what_is_no_cursor_is_an_invalid_argument(
    db: Connection, cursor: Any
) -> None:
    with refused("PW003"):
        await claim_batch(db, cursor=cursor)


@pytest.mark.parametrize("suspects", [False, True])
@pytest.mark.parametrize(
    "cursor",
    [{}, [], 5, "x", None, {"opaque": [1]}, {"resume_points": {}, "head_at": None}],
)
async def test_a_cursor_that_says_nothing_is_none(
    db: Connection, cursor: Any, suspects: bool
) -> None:
    await insert(db, crash_count=2 * suspects)
    row = await claim_batch(db, cursor=cursor, suspects=suspects)

    assert (row["ids"], row["cursor"]) == ([1], None)


@pytest.mark.parametrize("point", [[], [None, None], ["2026-01-01"], {"a": 1}, None])
async def test_a_resume_point_that_says_nothing_is_the_head(
    db: Connection, point: Any
) -> None:
    job_id = await insert(db)
    cursor = lasting({"resume_points": {"0": point, "7": point}})

    assert (await claim_batch(db, cursor=cursor))["ids"] == [job_id]
    setting = json.dumps({"default": cursor})
    await db.execute("select set_config('pgwake.cursor', $1, false)", setting)
    await insert(db)
    assert await call(db, "next_run_at") < await call(db, "now")


async def kept(db: Connection) -> Any:
    setting = await db.fetchval("select current_setting('pgwake.cursor', true)")
    return json.loads(setting) if setting else None


async def test_a_session_keeps_the_cursors_of_its_queues(
    db: Connection, old_snapshot: Connection
) -> None:
    for queue in ("a", "b"):
        await insert_shuffled(db, 3300, queue)
        await drain(db, 3000, queue=queue)
        await claim(db, 100, queue)
    assert set(await kept(db)) == {"a", "b"}
    cost = await buffers(db, "claim_jobs", queue="a", count=100)
    assert cost < await buffers(db, "claim_batch", queue="a", count=100) - 1000

    await old_snapshot.execute("rollback")
    await db.execute("vacuum pgwake.jobs_live")
    await keep(db, "a", at_heads_turn((await kept(db))["a"]))
    await claim(db, 100, "a")
    assert set(await kept(db)) == {"b"}


async def keep(db: Connection, queue: str, cursor: Any) -> None:
    setting = json.dumps((await kept(db) or {}) | {queue: cursor})
    await db.execute("select set_config('pgwake.cursor', $1, false)", setting)


async def test_a_session_that_needs_no_cursor_sets_none(db: Connection) -> None:
    await insert_many(db, 300)
    await claim(db, 100)
    await rows(db, "claim_next_job")

    assert await kept(db) is None


async def test_a_session_with_a_cursor_sleeps_until_its_next_look_at_most(
    db: Connection, cursor: Any
) -> None:
    await keep(db, "default", cursor)
    head_at = datetime.fromisoformat(cursor["head_at"])
    assert await call(db, "next_run_at") == head_at
    assert await buffers(db, "next_run_at") < 100
    soon = await db.fetchval("select now() + interval '20 seconds'")
    await insert(db, run_at=soon)
    assert await call(db, "next_run_at") == soon
    await insert(db, priority=3)
    assert await call(db, "next_run_at") < await call(db, "now")

    await keep(db, "default", cursor | {"next_at": [None]})
    assert await call(db, "next_run_at") == head_at
    await keep(db, "default", at_heads_turn(cursor))
    assert await call(db, "next_run_at") < await call(db, "now")


@pytest.mark.parametrize("setting", ["x", "[]", "5", "null", '{"default": 5', "{]"])
async def test_a_setting_that_is_no_object_is_an_invalid_argument(
    db: Connection, setting: str
) -> None:
    await db.execute("select set_config('pgwake.cursor', $1, false)", setting)
    for function in ("claim_next_job", "next_run_at"):
        with refused("PW003"):
            await row_count(db, function)


async def test_a_setting_without_a_cursor_is_an_invalid_argument(
    db: Connection,
) -> None:
    await keep(db, "default", GARBAGE[0])
    for function in ("claim_next_job", "next_run_at"):
        with refused("PW003"):
            await row_count(db, function)


@pytest.mark.parametrize("state", ["pending", "running"])
async def test_a_paused_queue_keeps_the_cursor(db: Connection, state: str) -> None:
    await job_in(db, state)
    await db.execute("insert into pgwake.queues values ('default', 'infinity')")
    cursor: Row = lasting({"resume_points": {}})

    assert (await claim_batch(db, cursor=cursor))["cursor"] == cursor


async def test_a_locked_job_before_the_cursors_end_is_told(
    db: Connection, other: Connection, cursor: Any
) -> None:
    job_id = await insert(db)
    async with row_locked(other, job_id):
        row = await claim_batch(db, 2, cursor=cursor)
        assert (row["ids"], row["next_run_at"] <= row["claimed_at"]) == ([], True)
        cost = await buffers(db, "claim_batch", **BATCH, cursor=cursor)
        assert cost < 150
