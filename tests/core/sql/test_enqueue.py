from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    claim,
    insert,
    job,
    refused,
    rolled_back,
    set_clock,
    set_queue,
)


async def test_a_job_needs_no_more_than_its_kind(db: Connection) -> None:
    job_id = await call(db, "enqueue", kind="a")

    added = await job(db, job_id)
    assert added["status"] == "pending"
    assert (added["queue"], added["kind"], added["payload"]) == ("default", "a", {})
    assert (added["priority"], added["attempt"], added["max_attempts"]) == (0, 0, None)
    assert added["run_at"] == added["created_at"]


async def test_enqueue_and_a_plain_insert_make_the_same_row(db: Connection) -> None:
    async with db.transaction():  # one clock for both
        enqueued = await job(db, await call(db, "enqueue", kind="a"))
        inserted = await job(db, await insert(db, "a"))

    assert enqueued | {"id": 0} == inserted | {"id": 0}


async def test_every_argument_lands_in_its_column(db: Connection) -> None:
    arguments = {
        "kind": "k",
        "payload": {"a": 1},
        "queue": "q",
        "priority": -7,
        "max_attempts": 3,
        "unique_key": "u",
        "metadata": {"trace": "t"},
    }
    added = await job(db, await call(db, "enqueue", **arguments))

    assert {column: added[column] for column in arguments} == arguments


async def test_a_delay_is_counted_from_the_queues_clock(db: Connection) -> None:
    await set_clock(db, "1 day")
    job_id = await call(db, "enqueue", kind="a", delay=timedelta(hours=1))

    added = await job(db, job_id)
    assert added["run_at"] == added["created_at"] + timedelta(hours=1)


async def test_run_at_may_lie_in_the_past(db: Connection) -> None:
    run_at = await db.fetchval("select now() - interval '1 year'")
    job_id = await call(db, "enqueue", kind="a", run_at=run_at)

    assert (await job(db, job_id))["run_at"] == run_at


async def test_a_paused_queue_takes_jobs_but_gives_none(db: Connection) -> None:
    await db.execute("insert into pgwake.queues values ('default', 'infinity')")

    assert await call(db, "enqueue", kind="a")
    assert await claim(db) == []


async def test_it_belongs_to_the_callers_transaction(db: Connection) -> None:
    async with rolled_back(db):
        await call(db, "enqueue", kind="a")

    assert await claim(db) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": None},
        {"queue": None},
        {"payload": None},
        {"priority": None},
        {"priority": 101},
        {"priority": -101},
        {"priority": 40000},
        {"delay": timedelta(seconds=-1)},
        {"delay": timedelta(days=36001)},
        {"on_conflict": None},
        {"on_conflict": "ignore"},
    ],
)
async def test_what_can_not_be_meant_is_an_invalid_argument(
    db: Connection, arguments: dict[str, Any]
) -> None:
    with refused("PW003"):
        await call(db, "enqueue", **{"kind": "a", **arguments})


async def test_run_at_and_delay_exclude_each_other(db: Connection) -> None:
    with refused("PW003"):
        await db.execute(
            "select pgwake.enqueue('a', run_at => now(), delay => '1 second')"
        )


@pytest.mark.parametrize("delay", ["292271 years", "-178000000 years"])
async def test_no_delay_overflows(db: Connection, delay: str) -> None:
    with refused("PW003"):
        await db.execute(f"select pgwake.enqueue('a', delay => '{delay}')")


@pytest.mark.parametrize(
    ("arguments", "check"),
    [
        ({"kind": ""}, "kind_is_1_to_128_bytes"),
        ({"queue": "x" * 129}, "queue_is_1_to_128_bytes"),
        ({"unique_key": ""}, "unique_key_is_1_to_512_bytes"),
        ({"max_attempts": 0}, "max_attempts_is_1_to_10000"),
        ({"payload": [1]}, "payload_is_an_object"),
    ],
)
async def test_the_tables_checks_hold(
    db: Connection, arguments: dict[str, Any], check: str
) -> None:
    with refused("23514", by=f"jobs_{check}"):
        await call(db, "enqueue", **{"kind": "a", **arguments})


@pytest.mark.parametrize("run_at", ["infinity", "-infinity"])
async def test_a_job_can_not_be_due_never(db: Connection, run_at: str) -> None:
    with refused("23514", by="jobs_run_at_is_in_years_1_to_9999"):
        await db.execute(f"select pgwake.enqueue('a', run_at => '{run_at}')")


async def test_policy_of_the_queue_is_not_copied_into_the_job(db: Connection) -> None:
    await set_queue(db, max_attempts=3)
    job_id = await call(db, "enqueue", kind="a")

    assert (await job(db, job_id))["max_attempts"] is None
