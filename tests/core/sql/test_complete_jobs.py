"""complete_jobs, and complete_job which is a batch of one."""

from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    ABSENT,
    Row,
    blocking,
    call,
    claim,
    insert,
    insert_many,
    job,
    job_in,
    leaf,
    pair,
    pairs,
    refused,
    rows,
    running,
    set_queue,
)


async def claimed(db: Connection, count: int) -> list[Row]:
    await insert_many(db, count)
    return await claim(db, count, worker="w1")


async def test_it_moves_to_the_ring_with_all_it_had_but_its_lease(
    db: Connection,
) -> None:
    columns: dict[str, Any] = {
        "payload": {"a": 1},
        "metadata": {"m": 1},
        "errors": [{"attempt": 1}],
    }
    columns |= {"priority": 3, "unique_key": "k", "max_attempts": 7, "attempt": 1}
    columns |= {"crash_count": 1, "bounce_count": 2}
    held = await running(db, **columns)
    await call(db, "cancel_job", job_id=held["id"])
    before = await job(db, held["id"])
    async with db.transaction():
        await call(db, "complete_job", **pair(held), result={"r": [1]})
        now = await call(db, "now")
        slot = await call(db, "finished_slot", at=now)

    assert await job(db, held["id"]) == before | {
        "status": "completed",
        "lease_expires_at": None,
        "finished_at": now,
        "finished_slot": slot,
        "result": {"r": [1]},
    }
    assert await leaf(db, held["id"]) == f"jobs_finished_{slot}"


async def test_each_result_goes_to_its_own_job_that_may_have_none(
    db: Connection,
) -> None:
    a, b, without = await claimed(db, 3)
    jobs = [b, without, a]
    results = {a["id"]: {"n": 1}, b["id"]: {"n": 2}, without["id"]: None}
    ordered: list[Any] = [results[held["id"]] for held in jobs]
    await call(db, "complete_jobs", **pairs(*jobs), results=ordered)

    assert {i: (await job(db, i))["result"] for i in results} == results


@pytest.mark.parametrize("results", [[], [None], [None] * 3])
async def test_results_that_do_not_pair_up_are_refused(
    db: Connection, results: list[None]
) -> None:
    jobs = await claimed(db, 2)

    with refused("PW003"):
        await call(db, "complete_jobs", **pairs(*jobs), results=results)


async def test_a_result_that_is_too_large_changes_nothing(db: Connection) -> None:
    jobs = await claimed(db, 2)

    with refused("23514", by="jobs_result_is_at_most_1_mib"):
        await call(db, "complete_jobs", **pairs(*jobs), results=[1, "x" * 1048576])
    assert await call(db, "extend_leases", **pairs(*jobs)) == ["extended"] * 2


async def test_the_same_end_repeated_is_answered_as_the_first_time(
    db: Connection,
) -> None:
    held = await running(db)
    await call(db, "complete_job", **pair(held), result=[1])
    before = await job(db, held["id"])

    await call(db, "complete_job", **pair(held), result=[2])
    assert await call(db, "complete_jobs", **pairs(held)) == ["completed"]
    assert await job(db, held["id"]) == before
    assert await db.fetchval("select sum(completed) from pgwake.counts") == 1


async def test_a_job_that_ended_otherwise_can_not_be_completed(db: Connection) -> None:
    held = await running(db)
    await call(db, "fail_job", **pair(held), retryable=False)

    with refused("PW002"):
        await call(db, "complete_job", **pair(held))


async def test_completion_beats_a_request_to_cancel(db: Connection) -> None:
    held = await running(db)
    await call(db, "cancel_job", job_id=held["id"])

    assert await call(db, "complete_jobs", **pairs(held)) == ["completed"]
    assert (await job(db, held["id"]))["cancel_requested_at"] is not None


async def test_two_who_complete_the_same_job_are_both_told_it_is_done(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    async with blocking(db, other, call(other, "complete_jobs", **pairs(held))) as task:
        await call(db, "complete_job", **pair(held))

    assert await task == ["completed"]
    counts = "select count(*), sum(completed) from pgwake.counts where completed > 0"
    assert tuple(await db.fetchrow(counts) or ()) == (1, 1)


async def test_what_is_claimed_in_a_transaction_can_be_completed_in_it(
    db: Connection,
) -> None:
    async with db.transaction():
        held = await running(db)
        await call(db, "complete_job", **pair(held))

    assert (await job(db, held["id"]))["status"] == "completed"


async def test_a_users_hook_joins_the_transaction_of_the_end(db: Connection) -> None:
    await db.execute("""
        create table done (id bigint);
        create function on_end() returns trigger language plpgsql
        set search_path = public as $$
        begin insert into done values (new.id); return null; end $$;
        create trigger on_end after insert on pgwake.jobs_finished
        for each row execute function on_end();
    """)
    jobs = await claimed(db, 3)
    await call(db, "complete_jobs", **pairs(*jobs))

    assert await db.fetchval("select count(*) from done") == 3


async def test_it_answers_and_keeps_the_same_whomever_ends_concern(
    db: Connection, connect: Connect
) -> None:
    async def outcomes_and_rows(queue: str, **columns: Any) -> tuple[list[str], Any]:
        held = [await running(db, queue=queue, **columns) for _ in range(6)]
        await call(db, "complete_job", **pair(held[0]))
        await call(db, "fail_job", **pair(held[1]), retryable=False)
        await call(db, "release_jobs", **pairs(held[2]))
        await call(db, "cancel_job", job_id=held[3]["id"])
        absent = {**held[0], "id": ABSENT}
        results = [*range(6), None]
        outcomes = await call(
            db, "complete_jobs", **pairs(*held, absent), results=results
        )
        kept = [await job(db, row["id"]) for row in held]
        (stats,) = await rows(db, "get_queue_stats", queue=queue)
        numbers = [v for k, v in stats.items() if k.endswith(("_count", "_total"))]
        return outcomes, (
            [(row["status"], row["result"], row["finished_slot"]) for row in kept],
            numbers,
        )

    plain = await outcomes_and_rows("plain")
    done = ["completed", "lease_lost", "lease_lost"] + ["completed"] * 3
    assert plain[0] == [*done, "no_such_job"]
    assert await outcomes_and_rows("hooked", webhook="https://example.com") == plain
    await set_queue(db, "limited", max_running=10)
    assert await outcomes_and_rows("limited") == plain
    await call(await connect(), "watch")
    assert await outcomes_and_rows("watched") == plain


async def test_payloads_are_dropped_of_completed_jobs_of_a_queue_that_says_so(
    db: Connection,
) -> None:
    await set_queue(db, "brief", drop_payloads=True)
    given = {"payload": {"a": 1}}
    forced = await insert(db, queue="brief", **given)
    await call(db, "force_complete_job", job_id=forced, reason="done by hand")
    held = [await running(db, queue=name, **given) for name in ("brief", "default")]
    await call(db, "complete_jobs", **pairs(*held))
    dropped, kept = (one["id"] for one in held)

    for job_id in (forced, dropped):
        shown = await call(db, "get_job", job_id=job_id)
        assert (shown["payload"], shown["is_payload_dropped"]) == (None, True)
        explained = await call(db, "explain_job", job_id=job_id)
        assert "Its payload was dropped when it completed." in explained
        with refused("PW003") as caught:
            await call(db, "retry_job", job_id=job_id)
        assert "and its payload was dropped" in str(caught.value)
    others = [
        await job_in(db, state, queue="brief", **given)
        for state in ("running", "failed", "cancelled")
    ]
    for job_id in (kept, *others):
        shown = await call(db, "get_job", job_id=job_id)
        assert (shown["payload"], shown["is_payload_dropped"]) == ({"a": 1}, None)
