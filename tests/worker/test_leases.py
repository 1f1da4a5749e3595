"""Leases: kept up while the worker lives, taken over when it does not."""

import asyncio
import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pgwake import Registry
from sql.helpers import insert, job, set_queue
from support import Connect, Connection, wait_for
from worker.helpers import (
    Diary,
    StartProcess,
    WorkerProcess,
    all_ended,
    embedded,
    ended,
    in_status,
    reasons,
)


@pytest.mark.timeout(60)
async def test_a_job_of_four_leases_is_started_once(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    await start_worker(lease=1)
    await start_worker(lease=1)
    # Of each way to run there is: on the loop, blocking it, and in a thread.
    ids = [
        await insert(connection, kind, payload={"seconds": 4})
        for kind in ("nap", "thread", "block")
    ]
    rows = [await ended(connection, job_id) for job_id in ids]

    assert [row["status"] for row in rows] == ["completed"] * 3
    assert [row["crash_count"] for row in rows] == [0] * 3
    assert sorted(entry["job"] for entry in diary.entries(event="start")) == ids


@pytest.mark.parametrize("lease", [1, 2])
async def test_a_lease_is_renewed_before_half_of_it_has_passed(
    connection: Connection, database: str, lease: int
) -> None:
    registry = Registry()
    stop = asyncio.Event()

    @registry.job("wait")
    async def wait() -> None:
        await stop.wait()

    await connection.execute(
        "insert into pgwake.jobs (kind) select 'wait' from generate_series(1, 100)"
    )
    shortest = timedelta.max
    async with embedded(database, registry, lease=lease, queues="default:100"):
        end = asyncio.get_running_loop().time() + 2.5 * lease
        while asyncio.get_running_loop().time() < end:
            left = await connection.fetchval(
                "select min(lease_expires_at) - clock_timestamp() from pgwake.jobs_live"
                " where status = 'running'"
            )
            shortest = min(shortest, left or shortest)
        stop.set()
        await all_ended(connection)

    # Half, and a tenth for a machine that is busy with other things.
    assert shortest > timedelta(seconds=lease) * 0.4


async def test_queues_with_different_leases_are_each_kept_by_their_own(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("sleep")
    async def sleep() -> None:
        await asyncio.sleep(3)

    await set_queue(connection, "short", lease=timedelta(seconds=1))
    await set_queue(connection, "long", lease=timedelta(minutes=10))
    queues = ("long", "short")
    ids = [await insert(connection, "sleep", queue=queue) for queue in queues]
    async with embedded(database, registry, queues=queues):
        row = await in_status(connection, ids[0], "running")
        assert row["lease_expires_at"] - row["started_at"] == timedelta(minutes=10)
        rows = [await ended(connection, job_id) for job_id in ids]

    assert [row["crash_count"] for row in rows] == [0, 0]


async def test_a_lease_that_is_shortened_meanwhile_is_not_lost(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    starts = 0

    @registry.job("sleep")
    async def sleep() -> None:
        nonlocal starts
        starts += 1
        await asyncio.sleep(6)

    await set_queue(connection, lease=timedelta(seconds=4))
    job_id = await insert(connection, "sleep")
    # The second worker would take over what the first one loses.
    async with embedded(database, registry), embedded(database, registry, lease=1):
        await in_status(connection, job_id, "running")
        await set_queue(connection, lease=timedelta(seconds=1))
        row = await ended(connection, job_id)

    assert (row["status"], row["crash_count"], starts) == ("completed", 0, 1)


async def kill(process: WorkerProcess) -> None:
    """End a process as a power cut would."""
    process.send(signal.SIGKILL)
    await process.exit_code()


async def test_the_jobs_of_a_dead_worker_run_again_after_their_lease(
    connection: Connection,
    start_application: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    first = await start_application(lease=1)
    ids = [
        await insert(connection, "hold", payload={"until": str(tmp_path / "go")})
        for _ in range(3)
    ]
    await diary.has(3, event="start")
    await kill(first)
    second = await start_application(lease=1)
    entries = await diary.has(3, event="start", pid=second.pid)
    (tmp_path / "go").touch()
    rows = [await ended(connection, job_id) for job_id in ids]

    assert {entry["job"] for entry in entries} == set(ids)
    for row in rows:
        assert (row["status"], row["attempt"]) == ("completed", 1)
        assert (row["crash_count"], reasons(row)) == (1, ["crashed"])
        assert "the lease ran out" in row["errors"][0]["message"]


async def test_a_worker_that_takes_the_name_of_a_dead_one_does_not_keep_its_jobs(
    connection: Connection,
    start_application: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    first = await start_application(lease=1, test_worker_name="twin")
    job_id = await insert(connection, "hold", payload={"until": str(tmp_path / "go")})
    await diary.has(event="start")
    await kill(first)
    second = await start_application(lease=1, test_worker_name="twin")
    await diary.has(event="start", pid=second.pid)
    (tmp_path / "go").touch()
    row = await ended(connection, job_id)

    assert (row["status"], row["claimed_by"]) == ("completed", "twin")
    assert reasons(row) == ["crashed"]


async def test_a_worker_of_other_queues_gives_back_what_a_dead_one_had(
    connection: Connection, start_application: StartProcess, diary: Diary, database: str
) -> None:
    first = await start_application(lease=1)
    job_id = await insert(connection, "nap", payload={"seconds": 60})
    await diary.has(event="start")
    await kill(first)

    registry = Registry()

    @registry.job("other", queue="other")
    async def other() -> None: ...

    async with embedded(database, registry, lease=1) as worker:
        row = await in_status(connection, job_id, "pending")
        assert worker.queues == {"other": 10}

    assert (row["attempt"], row["crash_count"]) == (0, 1)


async def test_jobs_whose_lease_ran_out_long_ago_run_when_a_worker_comes(
    connection: Connection, database: str
) -> None:
    await insert(connection, "quick")
    await connection.execute(
        "select pgwake.claim_next_job(worker => 'gone', lease => '1 second')"
    )
    await connection.execute(
        "update pgwake.jobs_live set lease_expires_at = now() - interval '1 hour'"
    )
    registry = Registry()

    @registry.job("quick")
    async def quick() -> None: ...

    async with embedded(database, registry, lease=1):
        await all_ended(connection)

    row = await job(connection, 1)
    assert (row["status"], row["crash_count"]) == ("completed", 1)


async def test_nobody_is_swept_right_after_a_worker_has_come_up(
    connection: Connection, database: str
) -> None:
    # As after an outage: others must have had the time to renew before.
    await insert(connection, "quick")
    await connection.execute("select pgwake.claim_next_job(worker => 'slow to return')")
    before = await connection.fetchval(
        "update pgwake.jobs_live set lease_expires_at = now() - interval '1 hour'"
        " returning clock_timestamp()"
    )
    registry = Registry()

    @registry.job("quick")
    async def quick() -> None: ...

    async with embedded(database, registry, lease=8):
        await all_ended(connection)

    (error,) = (await job(connection, 1))["errors"]
    # One renewal interval of 2 s, and the longest pause of a reconnect.
    assert datetime.fromisoformat(error["at"]) - before > timedelta(seconds=4)


async def test_the_kill_of_a_supervised_process_gives_its_jobs_back_at_once(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker()  # with the lease of five minutes
    job_id = await insert(connection, "nap", payload={"seconds": 60})
    await diary.has(event="start")
    os.kill(worker.children[0], signal.SIGKILL)
    await diary.has(2, within=10, event="start")

    row = await job(connection, job_id)
    assert (row["status"], row["attempt"], row["crash_count"]) == ("running", 1, 1)
    (error,) = row["errors"]
    assert error["reason"] == "crashed"
    assert f"the worker died; worker {error['worker']}" == error["message"]


async def test_what_is_given_back_to_a_queue_wakes_its_workers(
    connection: Connection, start_worker: StartProcess, diary: Diary, database: str
) -> None:
    worker = await start_worker()
    await insert(connection, "nap", payload={"seconds": 60})
    await diary.has(event="start")

    registry = Registry()

    @registry.job("nap")
    async def nap(seconds: float) -> None: ...

    # The other is idle, and polls once an hour.
    async with embedded(database, registry):
        os.kill(worker.pid, signal.SIGSTOP)  # so that no next child takes it
        os.kill(worker.children[0], signal.SIGKILL)
        name = await connection.fetchval("select claimed_by from pgwake.jobs_live")
        await connection.execute("select pgwake.release_worker_jobs($1)", name)
        await all_ended(connection, within=10)


async def test_a_lease_in_flight_is_not_mistaken_for_a_lost_one(
    connection: Connection, database: str
) -> None:
    # Ends and renewals of the same jobs meet all the time.
    registry = Registry()

    @registry.job("short")
    async def short() -> None:
        await asyncio.sleep(0.3)

    await connection.execute(
        "insert into pgwake.jobs (kind) select 'short' from generate_series(1, 400)"
    )
    async with embedded(database, registry, lease=1, queues="default:50") as worker:
        await all_ended(connection)
        text = worker.metrics.render().decode()

    assert "pgwake_leases_lost_total{" not in text


async def test_a_worker_that_waits_for_a_locked_row_loses_nothing(
    connection: Connection, database: str, connect: Connect
) -> None:
    registry, holder = Registry(), await connect()
    go = asyncio.Event()

    @registry.job("wait")
    async def wait() -> None:
        await go.wait()

    job_id = await insert(connection, "wait")
    async with embedded(database, registry, lease=1):
        await in_status(connection, job_id, "running")
        async with holder.transaction():
            await holder.execute("select from pgwake.jobs_live for update")
            go.set()

            async def is_waiting() -> bool:
                return bool(
                    await connection.fetchval(
                        "select count(*) from pg_stat_activity"
                        " where wait_event_type = 'Lock'"
                    )
                )

            await wait_for(is_waiting, 10)
        row = await ended(connection, job_id)

    assert (row["status"], row["crash_count"]) == ("completed", 0)
