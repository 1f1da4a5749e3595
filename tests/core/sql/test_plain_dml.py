"""What a partitioned table means for people's own SQL, and what holds them."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    blocking,
    call,
    claim,
    insert,
    job,
    leaf,
    pair,
    pairs,
    refused,
    running,
    status,
)

LONG = timedelta(hours=1)
COMPLETE_BY_HAND = (
    "update pgwake.jobs set status = 'completed', finished_at = now(),"
    " finished_slot = 3, lease_expires_at = null where id = $1"
)


async def test_an_insert_can_return_the_row(db: Connection) -> None:
    row = await db.fetchrow(
        "insert into pgwake.jobs (kind) values ('a') returning id, status, run_at"
    )

    assert row is not None
    assert (row["id"], row["status"]) == (1, "pending")


@pytest.mark.parametrize("target", ["(kind, unique_key)", "(id)"])
async def test_on_conflict_takes_no_target(db: Connection, target: str) -> None:
    with refused("42P10"):
        await db.execute(
            "insert into pgwake.jobs (kind, unique_key) values ('a', 'k')"
            f" on conflict {target} do nothing"
        )


async def test_on_conflict_do_nothing_without_a_target_skips_a_taken_key(
    db: Connection,
) -> None:
    answers = [
        await db.execute(
            "insert into pgwake.jobs (kind, unique_key) values ('a', 'k')"
            " on conflict do nothing"
        )
        for _ in range(2)
    ]

    assert answers == ["INSERT 0 1", "INSERT 0 0"]


async def test_no_foreign_key_can_point_at_a_job(db: Connection) -> None:
    with refused("42830"):
        await db.execute(
            "create table mine (job_id bigint references pgwake.jobs (id))"
        )


async def test_a_hand_made_end_moves_the_row(db: Connection) -> None:
    held = await running(db)

    assert await db.execute(COMPLETE_BY_HAND, held["id"]) == "UPDATE 1"
    assert await leaf(db, held["id"]) == "jobs_finished_3"
    assert await call(db, "complete_jobs", **pairs(held)) == ["completed"]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ("status = 'running'", "lease_matches_status"),
        ("status = 'failed'", "end_matches_status"),
        ("status = 'completed', finished_slot = 3", "end_matches_status"),
        ("lease_id = gen_random_uuid()", "lease_matches_status"),
        ("finished_at = now()", "end_matches_status"),
        ("started_at = now()", "lease_matches_status"),
        ("priority = 101", "priority_is_minus_100_to_100"),
    ],
)
async def test_a_hand_made_change_is_held_by_the_checks(
    db: Connection, change: str, check: str
) -> None:
    job_id = await insert(db)

    with refused("23514", by=f"jobs_{check}"):
        await db.execute(f"update pgwake.jobs set {change} where id = {job_id}")


async def test_a_row_leaves_its_leaf_only_by_the_parent(db: Connection) -> None:
    job_id = await insert(db)

    with refused("23514"):
        await db.execute(
            "update pgwake.jobs_live set status = 'failed', finished_at = now()"
            f" where id = {job_id}"
        )


@pytest.mark.parametrize("function", ["complete_jobs", "fail_jobs", "release_jobs"])
async def test_who_waited_for_a_row_that_was_moved_by_hand_must_repeat(
    db: Connection, other: Connection, function: str
) -> None:
    held = await running(db)
    async with blocking(db, other, call(other, function, **pairs(held))) as task:
        await db.execute(COMPLETE_BY_HAND, held["id"])

    with refused("40001") as caught:
        await task
    assert "moved to another partition" in str(caught.value)
    expected = "completed" if function == "complete_jobs" else "lease_lost"
    assert await call(other, function, **pairs(held)) == [expected]


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read"])
async def test_two_hand_made_changes_of_one_row_that_moves_conflict(
    db: Connection, other: Connection, isolation: Any
) -> None:
    held = await running(db)

    async def change() -> None:
        async with other.transaction(isolation=isolation):
            await other.execute("update pgwake.jobs set priority = 1")

    async with blocking(db, other, change()) as task:
        await db.execute(COMPLETE_BY_HAND, held["id"])

    with refused("40001"):
        await task


async def test_who_waited_for_a_row_that_a_function_ended_finds_it_gone(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    change = other.execute("update pgwake.jobs set priority = 1")
    async with blocking(db, other, change) as task:
        await call(db, "complete_job", **pair(held))

    assert await task == "UPDATE 0"
    assert (await job(db, held["id"]))["priority"] == 0


@pytest.mark.parametrize("function", ["complete_job", "fail_job", "snooze_job"])
async def test_in_repeatable_read_a_job_that_changed_is_a_serialization_failure(
    db: Connection, other: Connection, function: str
) -> None:
    held = await running(db)
    arguments = {"delay": LONG} if function == "snooze_job" else {}
    async with other.transaction(isolation="repeatable_read"):
        await other.fetch("select from pgwake.jobs")
        await call(db, "extend_leases", **pairs(held), lease=LONG)
        with refused("40001"):
            await call(other, function, **pair(held), **arguments)


@pytest.mark.parametrize("ended", [False, True])
async def test_a_delete_finds_a_job_wherever_it_lies(
    db: Connection, ended: bool
) -> None:
    held = await running(db)
    if ended:
        await call(db, "complete_job", **pair(held))

    statement = "delete from pgwake.jobs where id = $1"
    assert await db.execute(statement, held["id"]) == "DELETE 1"
    outcomes = await call(db, "complete_jobs", **pairs(held))
    assert outcomes == ["no_such_job"]


async def test_what_is_inserted_into_the_live_leaf_itself_is_claimed_too(
    db: Connection,
) -> None:
    await db.execute("insert into pgwake.jobs_live (kind) values ('a')")

    assert len(await claim(db)) == 1


async def test_a_reader_sees_a_job_once_while_it_moves(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    async with other.transaction(isolation="repeatable_read"):
        assert await status(other, held["id"]) == "running"
        await call(db, "complete_job", **pair(held))
        assert await status(other, held["id"]) == "running"
    rows = await other.fetch("select status from pgwake.jobs")
    assert [tuple(row) for row in rows] == [("completed",)]
