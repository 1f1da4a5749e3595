"""No function reads a table of jobs from end to end, whatever the statistics say."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
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


async def scanned(connection: Connection, function: str, **arguments: Any) -> list[str]:
    """Call the function; the tables that were scanned for it."""
    async with connection.transaction():
        # What transactions before have read is counted too, until it is sent.
        before = await connection.fetch(SCANNED)
        await row_count(connection, function, **arguments)
        after = await connection.fetch(SCANNED)
    return [table for table, _ in {*after} - {*before}]


@fixture
async def held(connection: Connection) -> list[Row]:
    """Three running jobs in a table that looks small enough to be scanned."""
    await insert_few(connection)
    return await claim(connection, 3, worker="w1")


async def insert_few(connection: Connection) -> None:
    await insert_many(connection, 30)
    await connection.execute("analyze pgwake.jobs_live, pgwake.jobs_failed")


@pytest.mark.usefixtures("held")
async def test_claims_ride_an_index(connection: Connection) -> None:
    for function in ("claim_batch", "claim_jobs"):
        assert await scanned(connection, function, queue="default", count=9) == []
    assert await scanned(connection, "claim_next_job") == []
    arguments = {"queue": "default", "count": 9, "suspects": True}
    assert await scanned(connection, "claim_batch", **arguments) == []
    assert await scanned(connection, "next_run_at") == []
    assert await scanned(connection, "next_suspect_at", queues=["default"]) == []


@pytest.mark.parametrize("function", RANK)
async def test_the_end_of_a_job_rides_an_index(
    connection: Connection, held: list[Row], function: str
) -> None:
    arguments = {**pair(held[0]), **RANK[function]}

    assert await scanned(connection, function, **arguments) == []


@pytest.mark.parametrize("function", BATCHES)
async def test_a_batch_rides_an_index(
    connection: Connection, held: list[Row], function: str
) -> None:
    absent = {"id": ABSENT, "lease_id": held[0]["lease_id"]}

    assert await scanned(connection, function, **pairs(*held, absent)) == []


@pytest.mark.parametrize("function", ["force_complete_job", "force_fail_job"])
async def test_a_forced_end_rides_an_index(
    connection: Connection, held: list[Row], function: str
) -> None:
    arguments = {"job_id": held[0]["id"], "reason": "x"}

    assert await scanned(connection, function, **arguments) == []


@pytest.mark.parametrize("function", ["cancel_job", "get_job"])
@pytest.mark.parametrize("state", ["pending", "running", "completed", "failed"])
async def test_one_job_is_found_by_an_index(
    connection: Connection, function: str, state: str
) -> None:
    job_id = await job_in(connection, state)
    await insert_few(connection)

    assert await scanned(connection, function, job_id=job_id) == []


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_a_retry_rides_an_index(connection: Connection, state: str) -> None:
    job_id = await job_in(connection, state)
    await insert_few(connection)

    assert await scanned(connection, "retry_job", job_id=job_id) == []


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("on_conflict", ["return", "replace"])
async def test_a_unique_key_is_found_by_an_index(
    connection: Connection, on_conflict: str
) -> None:
    arguments = {"kind": "a", "unique_key": "k", "on_conflict": on_conflict}
    await call(connection, "enqueue", **arguments)

    assert await scanned(connection, "enqueue", **arguments) == []


@pytest.mark.usefixtures("held")
async def test_crashes_are_found_by_an_index(connection: Connection) -> None:
    assert await scanned(connection, "release_worker_jobs", worker="w1") == []
    await claim(connection, 3)
    await set_clock(connection, "1 hour")
    assert await scanned(connection, "sweep_expired_leases") == []


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
    connection: Connection, function: str, arguments: dict[str, Any]
) -> None:
    async with connection.transaction():
        await row_count(connection, function, **arguments)
        xid = await connection.fetchval("select pg_current_xact_id_if_assigned()::text")
    assert xid is None


async def test_retention_looks_at_no_dead_letter_that_is_to_be_kept(
    connection: Connection,
) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind, status, finished_at)"
        " select 'a', 'failed', now() - n * interval '1 day'"
        " from generate_series(1, 89) as n"
    )
    fetched = (
        "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables"
        " where relname = 'jobs_failed'"
    )
    async with connection.transaction():
        before = await connection.fetchval(fetched)
        assert await call(connection, "apply_retention") == 0
        assert await connection.fetchval(fetched) == before


@pytest.mark.parametrize("days", [0, 6, 40])
async def test_retention_reads_no_leaf_from_end_to_end(
    connection: Connection, held: list[Row], days: int
) -> None:
    await call(connection, "complete_jobs", **pairs(*held))
    await job_in(connection, "failed", queue="other")
    await set_clock(connection, f"{days} days")

    assert await scanned(connection, "apply_retention") == []
