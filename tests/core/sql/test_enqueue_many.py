"""Many jobs by one statement."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import call, claim, insert, job, refused, set_queue


async def enqueue_many(db: Connection, *jobs: Any) -> list[int]:
    ids: list[int] = await call(db, "enqueue_many", jobs=list(jobs))
    return ids


async def kinds(db: Connection) -> list[str]:
    """The kinds of live jobs in order of id."""
    rows = await db.fetch("select kind from pgwake.jobs_live order by id")
    return [row[0] for row in rows]


async def test_the_ids_come_in_the_order_of_the_jobs(db: Connection) -> None:
    jobs = [
        {"kind": f"k{n}", **({"unique_key": str(-n)} if n % 3 else {})}
        for n in range(50)
    ]
    ids = await enqueue_many(db, *jobs)

    assert ids == sorted(ids)
    assert await kinds(db) == [one["kind"] for one in jobs]


async def test_no_jobs_have_no_ids(db: Connection) -> None:
    assert await enqueue_many(db) == []


async def test_every_field_lands_in_its_column(db: Connection) -> None:
    parent, job_id = await enqueue_many(
        db,
        {"kind": "parent"},
        {
            "kind": "k",
            "payload": {"a": [1, None]},
            "queue": "q",
            "priority": -7,
            "run_at": "2127-01-31T08:00:00+01:00",
            "max_attempts": 3,
            "unique_key": "u",
            "on_conflict": "raise",
            "metadata": {"m": 1},
            "concurrency_key": "c",
            "on_parent_failure": "run",
            "webhook": "https://example.org/",
        },
    )
    (child,) = await enqueue_many(db, {"kind": "child", "depends_on": [parent]})

    row = await job(db, job_id)
    assert row["payload"] == {"a": [1, None]}
    assert (row["queue"], row["priority"], row["max_attempts"]) == ("q", -7, 3)
    assert row["run_at"] == datetime(2127, 1, 31, 7, tzinfo=UTC)
    assert (row["unique_key"], row["metadata"]) == ("u", {"m": 1})
    assert (row["concurrency_key"], row["status"]) == ("c", "waiting")
    assert (row["on_parent_failure"], row["webhook"]) == ("run", "https://example.org/")
    assert (await job(db, child))["depends_on"] == [parent]


async def test_a_field_that_is_null_has_its_default(db: Connection) -> None:
    fields = dict.fromkeys(("payload", "queue", "priority", "run_at", "depends_on"))
    async with db.transaction():  # one clock for both
        (job_id,) = await enqueue_many(db, {"kind": "k", **fields})
        inserted = await job(db, await insert(db, "k"))

        assert await job(db, job_id) | {"id": 0} == inserted | {"id": 0}


async def test_a_delay_counts_from_now(db: Connection) -> None:
    (job_id,) = await enqueue_many(db, {"kind": "k", "delay": "90.5 seconds"})
    row = await job(db, job_id)

    assert row["run_at"] - row["created_at"] == timedelta(seconds=90.5)


@pytest.mark.parametrize(
    ("on_conflict", "payload"), [("return", {"n": 0}), ("replace", {"n": 2})]
)
async def test_a_live_job_with_the_key_is_found_or_replaced(
    db: Connection, on_conflict: str, payload: dict[str, int]
) -> None:
    first = await call(db, "enqueue", kind="k", unique_key="u", payload={"n": 0})
    twin = {"kind": "k", "unique_key": "u", "on_conflict": on_conflict}
    ids = await enqueue_many(
        db,
        {"kind": "a"},
        {**twin, "payload": {"n": 1}},
        {**twin, "payload": {"n": 2}},
        {"kind": "b"},
    )

    assert ids[1:3] == [first, first]
    assert (await job(db, first))["payload"] == payload
    assert await kinds(db) == ["k", "a", "b"]


async def test_of_two_with_the_same_key_the_first_is_added(db: Connection) -> None:
    twin = {"kind": "k", "unique_key": "u"}
    ids = await enqueue_many(
        db, {**twin, "payload": {"n": 1}}, {**twin, "payload": {"n": 2}}
    )

    assert ids[0] == ids[1]
    assert (await job(db, ids[0]))["payload"] == {"n": 1}


async def test_a_conflict_that_is_to_raise_adds_none(db: Connection) -> None:
    live = await call(db, "enqueue", kind="k", unique_key="u")
    with refused("PW005") as caught:
        await enqueue_many(
            db, {"kind": "a"}, {"kind": "k", "unique_key": "u", "on_conflict": "raise"}
        )

    assert caught.value.detail == f"job {live}"
    assert await kinds(db) == ["k"]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"payload": {}}, "job 2 of the array has no kind"),
        ({"kind": "k", "priorty": 1}, "job 2 of the array has a field 'priorty'"),
        ([], "job 2 of the array is not an object"),
        (None, "job 2 of the array is not an object"),
        ({"kind": "k", "priority": 101}, "job 2 of the array has priority 101"),
        ({"kind": "k", "delay": "-1 s"}, "job 2 of the array has delay -00:00:01"),
        ({"kind": "k", "delay": "101 years"}, "job 2 of the array has delay 101 years"),
        ({"kind": "k", "on_conflict": "x"}, "job 2 of the array has on_conflict 'x'"),
        (
            {"kind": "k", "delay": "1 s", "run_at": "2127-01-01T00:00Z"},
            "job 2 of the array has run_at and delay",
        ),
    ],
)
async def test_one_bad_job_is_named_and_none_is_added(
    db: Connection, bad: Any, problem: str
) -> None:
    with refused("PW003") as caught:
        await enqueue_many(db, {"kind": "good"}, bad, {"kind": "good"})

    assert str(caught.value).startswith(problem)
    assert await kinds(db) == []


@pytest.mark.parametrize("jobs", [{}, 1, None])
async def test_what_is_no_array_is_refused(db: Connection, jobs: Any) -> None:
    with refused("PW003"):
        await call(db, "enqueue_many", jobs=jobs)


async def test_many_jobs_are_one_statement_to_who_counts_and_wakes(
    db: Connection,
) -> None:
    await set_queue(db, "default", priority=7)
    await db.execute("delete from pgwake.counts")
    ids = await enqueue_many(db, *({"kind": "k"} for _ in range(500)))

    counts = await db.fetch("select enqueued, live_rows from pgwake.counts")
    assert [tuple(row) for row in counts] == [(500, 500)]
    assert (await job(db, ids[0]))["priority"] == 7
    assert [one["id"] for one in await claim(db, 2)] == ids[:2]


async def test_calls_with_the_same_keys_in_other_orders_do_not_deadlock(
    connect: Connect,
) -> None:
    sessions = [await connect() for _ in range(4)]
    jobs = [{"kind": "k", "unique_key": str(n)} for n in range(300)]

    async def add(session: Connection) -> list[int]:
        mine = random.sample(jobs, len(jobs))
        ids = await enqueue_many(session, *mine)
        return [job_id for _, job_id in sorted(zip(map(str, mine), ids, strict=True))]

    for _ in range(5):
        first, *others = await asyncio.gather(*map(add, sessions))
        assert others == [first] * 3
        await sessions[0].execute("truncate pgwake.jobs_live")
