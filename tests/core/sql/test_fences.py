"""Whoever ends or keeps a running job must hold its present lease."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from support import Connection
from support.sql.helpers import (
    ABSENT,
    Row,
    blocking,
    call,
    claim,
    insert,
    insert_many,
    job,
    pair,
    pairs,
    refused,
    rows,
    running,
    set_clock,
    sweep,
)

SINGLE: dict[str, dict[str, Any]] = {
    "complete_job": {},
    "fail_job": {},
    "set_progress": {"progress": 1},
    "snooze_job": {"delay": timedelta(0)},
}
BATCH = ["complete_jobs", "fail_jobs", "release_jobs", "extend_leases"]

Loss = Callable[[Connection, Row], Awaitable[Any]]


async def swept(db: Connection, _job: Row) -> None:
    assert await sweep(db, "1 hour") == 1


async def claimed_again(db: Connection, old: Row) -> None:
    await swept(db, old)
    (again,) = await claim(db, worker="w1")  # the same name, another lease
    assert again["id"] == old["id"]


async def released(db: Connection, old: Row) -> None:
    assert await call(db, "release_jobs", **pairs(old)) == ["released"]


async def retried(db: Connection, old: Row) -> None:
    assert await call(db, "fail_job", **pair(old)) == "retry"


async def forced(db: Connection, old: Row) -> None:
    await call(db, "force_complete_job", job_id=old["id"], reason="x")


async def replaced(db: Connection, old: Row) -> None:
    await db.execute(
        "update pgwake.jobs_live set lease_id = gen_random_uuid() where id = $1",
        old["id"],
    )


LOSSES: list[Loss] = [swept, claimed_again, released, retried, forced, replaced]


@pytest.mark.parametrize("function", SINGLE)
@pytest.mark.parametrize("lose", LOSSES)
async def test_one_who_lost_the_lease_is_refused_and_changes_nothing(
    db: Connection, function: str, lose: Loss
) -> None:
    old = await running(db)
    await lose(db, old)
    before = await job(db, old["id"])

    with refused("PW002"):
        await call(db, function, **pair(old), **SINGLE[function])
    assert await job(db, old["id"]) == before


@pytest.mark.parametrize("function", BATCH)
@pytest.mark.parametrize("lose", LOSSES)
async def test_a_batch_answers_lease_lost_and_changes_nothing(
    db: Connection, function: str, lose: Loss
) -> None:
    old = await running(db)
    await lose(db, old)
    before = await job(db, old["id"])

    assert await call(db, function, **pairs(old)) == ["lease_lost"]
    assert await job(db, old["id"]) == before


@pytest.mark.parametrize("function", SINGLE)
async def test_a_job_that_is_not_there_is_no_such_job(
    db: Connection, function: str
) -> None:
    with refused("PW001"):
        await call(db, function, job_id=ABSENT, lease_id=uuid4(), **SINGLE[function])


@pytest.mark.parametrize("function", BATCH)
async def test_a_batch_answers_no_such_job(db: Connection, function: str) -> None:
    outcomes = await call(
        db, function, job_ids=[ABSENT, ABSENT - 1], lease_ids=[uuid4()] * 2
    )
    assert outcomes == ["no_such_job"] * 2


@pytest.mark.parametrize("function", SINGLE)
@pytest.mark.parametrize("missing", ["job_id", "lease_id"])
async def test_a_null_never_matches(
    db: Connection, function: str, missing: str
) -> None:
    claimed = await running(db)

    with refused("PW003"):
        await call(db, function, **{**pair(claimed), missing: None}, **SINGLE[function])


@pytest.mark.parametrize("function", BATCH)
@pytest.mark.parametrize("missing", ["job_ids", "lease_ids"])
@pytest.mark.parametrize("as_array", [False, True], ids=["null", "null in array"])
async def test_a_null_in_a_batch_is_an_invalid_argument(
    db: Connection, function: str, missing: str, as_array: bool
) -> None:
    claimed = await running(db)
    nothing = [None] if as_array else None

    with refused("PW003"):
        await call(db, function, **{**pairs(claimed), missing: nothing})


@pytest.mark.parametrize("function", BATCH)
async def test_a_batch_names_each_job_once(db: Connection, function: str) -> None:
    claimed = await running(db)

    with refused("PW003"):
        await call(db, function, **pairs(claimed, claimed))
    assert (await job(db, claimed["id"]))["status"] == "running"


@pytest.mark.parametrize("function", BATCH)
async def test_a_batch_is_no_array_of_arrays(db: Connection, function: str) -> None:
    leases = [uuid4()] * 2
    for job_ids, lease_ids in (
        ([[ABSENT], [ABSENT - 1]], leases),
        ([ABSENT, ABSENT - 1], [[lease] for lease in leases]),
    ):
        with refused("PW003"):
            await call(db, function, job_ids=job_ids, lease_ids=lease_ids)


@pytest.mark.parametrize("function", BATCH)
async def test_a_batch_wants_one_lease_a_job(db: Connection, function: str) -> None:
    claimed = await running(db)
    lease = claimed["lease_id"]

    for lease_ids in ([], [lease, lease]):
        with refused("PW003"):
            await call(db, function, job_ids=[claimed["id"]], lease_ids=lease_ids)


OUTCOMES = {
    "complete_jobs": "completed completed no_such_job lease_lost completed",
    "release_jobs": "cancel_requested released no_such_job lease_lost released",
    "extend_leases": "cancel_requested extended no_such_job lease_lost extended",
}  # of fail_jobs in test_fail_jobs.py


@pytest.mark.parametrize("function", OUTCOMES)
async def test_outcomes_come_in_the_order_asked(db: Connection, function: str) -> None:
    await insert_many(db, 4)
    a, b, lost, cancelled = await claim(db, 4)
    await call(db, "release_jobs", **pairs(lost))
    await call(db, "cancel_job", job_id=cancelled["id"])
    absent = {"id": ABSENT, "lease_id": a["lease_id"]}

    outcomes = await call(db, function, **pairs(cancelled, b, absent, lost, a))
    assert outcomes == OUTCOMES[function].split()


@pytest.mark.parametrize("function", ["complete_jobs", "extend_leases"])
async def test_a_lease_that_ran_out_is_still_held_until_it_is_swept(
    db: Connection, function: str
) -> None:
    held = await running(db)
    await set_clock(db, "1 hour")

    assert await call(db, function, **pairs(held)) in (["completed"], ["extended"])
    assert await sweep(db) == 0


@pytest.mark.parametrize("function", BATCH)
async def test_an_empty_batch_is_answered_by_an_empty_one(
    db: Connection, function: str
) -> None:
    assert await call(db, function, job_ids=[], lease_ids=[]) == []


@pytest.mark.parametrize("function", BATCH)
async def test_the_lease_of_one_job_is_no_good_for_another(
    db: Connection, function: str
) -> None:
    first, second = await running(db), await running(db)

    outcomes = await call(
        db,
        function,
        job_ids=[first["id"], second["id"]],
        lease_ids=[second["lease_id"], first["lease_id"]],
    )
    assert outcomes == ["lease_lost", "lease_lost"]
    assert (await job(db, first["id"]))["status"] == "running"


@pytest.mark.parametrize("function", [*SINGLE, *BATCH])
async def test_a_job_that_was_never_claimed_is_not_held(
    db: Connection, function: str
) -> None:
    never: Row = {"id": await insert(db), "lease_id": uuid4()}

    if function in SINGLE:
        with refused("PW002"):
            await call(db, function, **pair(never), **SINGLE[function])
    else:
        assert await call(db, function, **pairs(never)) == ["lease_lost"]
    assert (await job(db, never["id"]))["status"] == "pending"


@pytest.mark.parametrize(
    ("first", "outcomes"),
    [
        ("extend_leases", ["completed", "retry", "released"]),
        ("cancel_job", ["completed", "cancelled", "cancel_requested"]),
        ("release_jobs", ["lease_lost"] * 3),
        ("fail_jobs", ["lease_lost"] * 3),
    ],
)
async def test_an_end_sees_what_it_has_waited_for(
    db: Connection, other: Connection, first: str, outcomes: list[str]
) -> None:
    for function, outcome in zip(
        ("complete_jobs", "fail_jobs", "release_jobs"), outcomes, strict=True
    ):
        held = await running(db, queue=function)
        ends = call(other, function, **pairs(held))
        async with blocking(db, other, ends) as task:
            of_job = {"job_id": held["id"]} if first == "cancel_job" else pairs(held)
            await call(db, first, **of_job)
        assert await task == [outcome]
        (stats,) = await rows(db, "get_queue_stats", queue=function)
        assert stats["running_count"] == 0
