"""No function reads a table of jobs from end to end, whatever the statistics say."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.fixtures import fixture
from support.sql.helpers import (
    ABSENT,
    Row,
    call,
    claim,
    insert_many,
    job_in,
    pair,
    pairs,
    row_count,
    set_clock,
)
from support.sql.plans import Explained, nodes

pytestmark = pytest.mark.own_database  # no statistics of other tests

SCANNED = """
select relname, seq_tup_read from pg_stat_xact_user_tables
where schemaname = 'pgwake' and relname like 'jobs\\_%' and seq_tup_read > 0
"""
RANK: dict[str, dict[str, Any]] = {
    "complete_job": {},
    "fail_job": {},
    "set_progress": {"progress": 1},
    "snooze_job": {"delay": timedelta(0)},
}
BATCHES = ["complete_jobs", "fail_jobs", "release_jobs", "extend_leases"]


async def scanned(db: Connection, function: str, **arguments: Any) -> list[str]:
    """Call the function; the tables that were scanned for it."""
    async with db.transaction():
        # What transactions before have read is counted too, until it is sent.
        before = await db.fetch(SCANNED)
        await row_count(db, function, **arguments)
        after = await db.fetch(SCANNED)
    return [table for table, _ in {*after} - {*before}]


@fixture
async def held(db: Connection) -> list[Row]:
    """Three running jobs in a table that looks small enough to be scanned."""
    await insert_few(db)
    return await claim(db, 3, worker="w1")


async def insert_few(db: Connection) -> None:
    await insert_many(db, 30)
    await db.execute("analyze pgwake.jobs_live, pgwake.jobs_failed")


@pytest.mark.usefixtures("held")
async def test_claims_ride_an_index(db: Connection) -> None:
    for function in ("claim_batch", "claim_jobs"):
        assert await scanned(db, function, queue="default", count=9) == []
    assert await scanned(db, "claim_next_job") == []
    arguments = {"queue": "default", "count": 9, "suspects": True}
    assert await scanned(db, "claim_batch", **arguments) == []
    assert await scanned(db, "next_run_at") == []
    assert await scanned(db, "next_run_ats", queues=["default", "a"]) == []
    assert await scanned(db, "next_suspect_run_at", queues=["default"]) == []


@pytest.mark.parametrize("function", RANK)
async def test_the_end_of_a_job_rides_an_index(
    db: Connection, held: list[Row], function: str
) -> None:
    arguments = {**pair(held[0]), **RANK[function]}

    assert await scanned(db, function, **arguments) == []


@pytest.mark.parametrize("function", BATCHES)
async def test_a_batch_rides_an_index(
    db: Connection, held: list[Row], function: str
) -> None:
    absent = {"id": ABSENT, "lease_id": held[0]["lease_id"]}

    assert await scanned(db, function, **pairs(*held, absent)) == []


@pytest.mark.parametrize("function", ["force_complete_job", "force_fail_job"])
async def test_a_forced_end_rides_an_index(
    db: Connection, held: list[Row], function: str
) -> None:
    arguments = {"job_id": held[0]["id"], "reason": "x"}

    assert await scanned(db, function, **arguments) == []


@pytest.mark.parametrize("function", ["cancel_job", "get_job"])
@pytest.mark.parametrize("state", ["pending", "running", "completed", "failed"])
async def test_one_job_is_found_by_an_index(
    db: Connection, function: str, state: str
) -> None:
    job_id = await job_in(db, state)
    await insert_few(db)

    assert await scanned(db, function, job_id=job_id) == []


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_a_retry_rides_an_index(db: Connection, state: str) -> None:
    job_id = await job_in(db, state)
    await insert_few(db)

    assert await scanned(db, "retry_job", job_id=job_id) == []


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("on_conflict", ["return", "replace"])
async def test_a_unique_key_is_found_by_an_index(
    db: Connection, on_conflict: str
) -> None:
    arguments = {"kind": "a", "unique_key": "k", "on_conflict": on_conflict}
    await call(db, "enqueue", **arguments)

    assert await scanned(db, "enqueue", **arguments) == []


@pytest.mark.usefixtures("held")
async def test_crashes_are_found_by_an_index(db: Connection) -> None:
    assert await scanned(db, "release_worker_jobs", worker="w1") == []
    await claim(db, 3)
    await set_clock(db, "1 hour")
    assert await scanned(db, "sweep_expired_leases") == []


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("claim_batch", {"queue": "default", "count": 10}),
        ("claim_batch", {"queue": "default", "count": 10, "suspects": True}),
        ("claim_jobs", {"queue": "default", "count": 10}),
        ("claim_next_job", {}),
        ("next_run_at", {}),
        ("sweep_expired_leases", {}),
        ("release_worker_jobs", {"worker": "w1"}),
        ("complete_jobs", {"job_ids": [], "lease_ids": []}),
        ("get_queue_stats", {}),
    ],
)
async def test_a_call_that_finds_nothing_takes_no_transaction_id(
    db: Connection, function: str, arguments: dict[str, Any]
) -> None:
    async with db.transaction():
        await row_count(db, function, **arguments)
        xid = await db.fetchval("select pg_current_xact_id_if_assigned()::text")
    assert xid is None


async def test_retention_looks_at_no_dead_letter_that_is_to_be_kept(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, status, finished_at)"
        " select 'a', 'failed', now() - n * interval '1 day'"
        " from generate_series(1, 89) as n"
    )
    fetched = (
        "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables"
        " where relname = 'jobs_failed'"
    )
    async with db.transaction():
        before = await db.fetchval(fetched)
        assert await call(db, "apply_retention") == 0
        assert await db.fetchval(fetched) == before


@pytest.mark.parametrize("days", [0, 6, 40])
async def test_retention_reads_no_leaf_from_end_to_end(
    db: Connection, held: list[Row], days: int
) -> None:
    await call(db, "complete_jobs", **pairs(*held))
    await job_in(db, "failed", queue="other")
    await set_clock(db, f"{days} days")

    assert await scanned(db, "apply_retention") == []


async def test_a_completion_meets_its_jobs_in_the_order_of_their_ids(
    admin_url: str, connect: Connect, held: list[Row]
) -> None:
    explained = await Explained.start(await connect(admin_url))
    await explained.connection.execute("set enable_mergejoin = off")
    ids, leases = (
        ",".join(str(row[key]) for row in held) for key in ("id", "lease_id")
    )
    statements = await explained.run(
        f"select pgwake.complete_jobs('{{{ids}}}', '{{{leases}}}')"
    )
    (ends,) = [s for s in statements if "delete from pgwake.jobs_live" in s.text]
    (moved,) = [n for n in nodes(ends.plan) if n.get("Operation") == "Delete"]
    types = {node["Parent Relationship"]: node["Node Type"] for node in moved["Plans"]}
    assert types["Outer"] == "Merge Join"
