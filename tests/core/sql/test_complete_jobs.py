"""complete_jobs, and complete_job which is a batch of one."""

from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    ABSENT,
    Row,
    blocking,
    call,
    claim,
    insert_many,
    job,
    leaf,
    pair,
    pairs,
    refused,
    running,
    set_clock,
    sweep,
)


async def claimed(connection: Connection, count: int) -> list[Row]:
    await insert_many(connection, count)
    return await claim(connection, count, worker="w1")


async def test_a_completed_job_moves_to_the_ring_of_finished_ones(
    connection: Connection,
) -> None:
    held = await running(connection)
    await call(connection, "complete_job", **pair(held))

    ended = await job(connection, held["id"])
    assert ended["status"] == "completed"
    assert await leaf(connection, held["id"]) == (
        f"jobs_finished_{ended['finished_slot']}"
    )


async def test_it_keeps_all_it_had_but_the_end_of_its_lease(
    connection: Connection,
) -> None:
    columns: dict[str, Any] = {
        "payload": {"a": 1},
        "metadata": {"m": 1},
        "errors": [{"attempt": 1}],
    }
    columns |= {"priority": 3, "unique_key": "k", "max_attempts": 7, "attempt": 1}
    columns |= {"crash_count": 1, "bounce_count": 2}
    held = await running(connection, **columns)
    await call(connection, "cancel_job", job_id=held["id"])
    before = await job(connection, held["id"])
    async with connection.transaction():
        await call(connection, "complete_job", **pair(held), result={"r": [1]})
        now = await call(connection, "now")
        slot = await call(connection, "finished_slot", at=now)

    assert await job(connection, held["id"]) == before | {
        "status": "completed",
        "lease_expires_at": None,
        "finished_at": now,
        "finished_slot": slot,
        "result": {"r": [1]},
    }


async def test_outcomes_come_in_the_order_asked(connection: Connection) -> None:
    a, b, lost = await claimed(connection, 3)
    await call(connection, "release_jobs", **pairs(lost))
    absent = {"id": ABSENT, "lease_id": a["lease_id"]}

    outcomes = await call(connection, "complete_jobs", **pairs(b, absent, lost, a))
    assert outcomes == ["completed", "no_such_job", "lease_lost", "completed"]


async def test_each_result_goes_to_its_own_job(connection: Connection) -> None:
    jobs = await claimed(connection, 3)
    jobs = [jobs[1], jobs[2], jobs[0]]
    results: list[Any] = [{"n": held["id"]} for held in jobs]
    await call(connection, "complete_jobs", **pairs(*jobs), results=results)

    for held in jobs:
        assert (await job(connection, held["id"]))["result"] == {"n": held["id"]}


async def test_a_job_may_have_no_result(connection: Connection) -> None:
    with_result, without = await claimed(connection, 2)
    both = pairs(with_result, without)
    await call(connection, "complete_jobs", **both, results=[{"n": 1}, None])

    assert (await job(connection, with_result["id"]))["result"] == {"n": 1}
    assert (await job(connection, without["id"]))["result"] is None


@pytest.mark.parametrize("results", [[], [None], [None] * 3])
async def test_results_that_do_not_pair_up_are_refused(
    connection: Connection, results: list[None]
) -> None:
    jobs = await claimed(connection, 2)

    with refused("PW003"):
        await call(connection, "complete_jobs", **pairs(*jobs), results=results)


async def test_a_result_that_is_too_large_changes_nothing(
    connection: Connection,
) -> None:
    jobs = await claimed(connection, 2)

    with refused("23514", by="jobs_result_is_at_most_1_mib"):
        await call(
            connection, "complete_jobs", **pairs(*jobs), results=[1, "x" * 1048576]
        )
    assert await call(connection, "extend_leases", **pairs(*jobs)) == ["extended"] * 2


async def test_the_same_end_repeated_is_answered_as_the_first_time(
    connection: Connection,
) -> None:
    held = await running(connection)
    await call(connection, "complete_job", **pair(held), result=[1])
    before = await job(connection, held["id"])

    await call(connection, "complete_job", **pair(held), result=[2])
    assert await call(connection, "complete_jobs", **pairs(held)) == ["completed"]
    assert await job(connection, held["id"]) == before


async def test_a_repeat_counts_nothing_twice(connection: Connection) -> None:
    held = await running(connection)
    for _ in range(2):
        await call(connection, "complete_job", **pair(held))

    count = "select sum(completed) from pgwake.tallies"
    assert await connection.fetchval(count) == 1


async def test_a_job_that_ended_otherwise_can_not_be_completed(
    connection: Connection,
) -> None:
    held = await running(connection)
    await call(connection, "fail_job", **pair(held), retryable=False)

    with refused("PW002"):
        await call(connection, "complete_job", **pair(held))


async def test_completion_beats_a_request_to_cancel(connection: Connection) -> None:
    held = await running(connection)
    await call(connection, "cancel_job", job_id=held["id"])

    assert await call(connection, "complete_jobs", **pairs(held)) == ["completed"]
    assert (await job(connection, held["id"]))["cancel_requested_at"] is not None


async def test_a_lease_that_ran_out_is_still_held_until_it_is_swept(
    connection: Connection,
) -> None:
    held = await running(connection)
    await set_clock(connection, "1 hour")

    assert await call(connection, "complete_jobs", **pairs(held)) == ["completed"]
    assert await sweep(connection) == 0


async def test_two_who_complete_the_same_job_are_both_told_it_is_done(
    connection: Connection, other: Connection
) -> None:
    held = await running(connection)
    async with blocking(
        connection, other, call(other, "complete_jobs", **pairs(held))
    ) as task:
        await call(connection, "complete_job", **pair(held))

    assert await task == ["completed"]
    counts = "select count(*), sum(completed) from pgwake.tallies where completed > 0"
    assert tuple(await connection.fetchrow(counts) or ()) == (1, 1)


async def test_what_is_claimed_in_a_transaction_can_be_completed_in_it(
    connection: Connection,
) -> None:
    async with connection.transaction():
        held = await running(connection)
        await call(connection, "complete_job", **pair(held))

    assert (await job(connection, held["id"]))["status"] == "completed"


async def test_a_users_hook_joins_the_transaction_of_the_end(
    connection: Connection,
) -> None:
    await connection.execute("""
        create table done (id bigint);
        create function on_end() returns trigger language plpgsql
        set search_path = public as $$
        begin insert into done values (new.id); return null; end $$;
        create trigger on_end after insert on pgwake.jobs_finished
        for each row execute function on_end();
    """)
    jobs = await claimed(connection, 3)
    await call(connection, "complete_jobs", **pairs(*jobs))

    assert await connection.fetchval("select count(*) from done") == 3
