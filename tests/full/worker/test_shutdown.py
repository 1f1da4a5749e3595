"""Signals: what runs may end, what has not begun goes back, nothing is left running."""

import signal
from pathlib import Path

import pytest

from support import Connect, Connection, wait_for
from support.sql.helpers import insert, job
from support.worker.helpers import ended, in_status, insert_some, sessions
from support.worker.processes import Diary, StartProcess


async def running_count(connection: Connection) -> int:
    count: int = await connection.fetchval(
        "select count(*) from pgwake.jobs_live where status = 'running'"
    )
    return count


async def test_a_signal_lets_running_jobs_end_and_starts_no_more(
    connection: Connection,
    start_worker: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    worker = await start_worker("--queue", "default:2")
    go = tmp_path / "go"
    ids = [await insert(connection, "hold", payload={"until": str(go)}) for _ in "abcd"]
    await diary.has(2, event="start")
    worker.send(signal.SIGINT)  # SIGTERM is what the other tests send
    await worker.logged("worker stopping", running=2)
    go.touch()

    assert await worker.exit_code() == 0
    rows = [await job(connection, job_id) for job_id in ids]
    assert [row["status"] for row in rows] == ["completed"] * 2 + ["pending"] * 2
    assert [row["attempt"] for row in rows] == [1, 1, 0, 0]
    assert len(diary.entries(event="start")) == 2


async def test_jobs_that_were_claimed_ahead_go_back_at_once(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker("--queue", "default:1")
    # Quick ones, so that it claims ahead of its slot, then one to wait for.
    await connection.execute(
        "insert into pgwake.jobs (kind, payload)"
        " select 'note', '{}'::jsonb from generate_series(1, 300)"
        " union all select 'nap', '{\"seconds\": 30}'"
        " union all select 'note', '{}' from generate_series(1, 300)"
    )
    await diary.has(kind="nap", event="start")
    worker.send(signal.SIGTERM)
    await worker.logged("worker stopping")

    async def only_the_nap_is_held() -> bool:
        return await running_count(connection) == 1

    await wait_for(only_the_nap_is_held)  # well before the nap is over
    assert not await connection.fetchval(
        "select count(*) from pgwake.jobs_live where status = 'pending'"
        " and (attempt <> 0 or bounce_count <> 0 or errors is not null)"
    )


async def test_what_is_not_done_within_the_grace_goes_back_unburnt(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker("--queue", "default:10", grace=1)
    ids = [
        await insert(connection, kind, payload={"seconds": 60}, max_attempts=1)
        for kind in ["nap", "thread", "stubborn"] * 2 + ["nap"] * 14
    ]
    await diary.has(10, event="start")
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    assert await running_count(connection) == 0
    rows = [await job(connection, job_id) for job_id in ids]
    assert {row["status"] for row in rows} == {"pending"}
    assert [row["attempt"] for row in rows] == [0] * 20
    assert [row["bounce_count"] for row in rows] == [1] * 10 + [0] * 10
    assert [row["crash_count"] for row in rows] == [0] * 20
    # Each handler that can hear has heard it.
    assert {entry["reason"] for entry in diary.entries(event="cancelled")} == {
        "shutdown"
    }
    for job_id in ids[:3]:  # of those that did not hear, too
        (line,) = worker.log("job released", job=job_id)
        assert line["execution_ms"] >= 1000


async def test_a_second_signal_does_not_wait_for_the_grace(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker(grace=600)
    job_id = await insert(connection, "nap", payload={"seconds": 600})
    await diary.has(event="start")
    worker.send(signal.SIGTERM)
    await worker.logged("worker stopping", running=1)
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    row = await job(connection, job_id)
    assert (row["status"], row["attempt"], row["bounce_count"]) == ("pending", 0, 1)


async def test_a_blocked_loop_does_not_outlast_the_grace(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker("--queue", "default:2", grace=1)
    beside = await insert(connection, "nap", payload={"seconds": 600})
    await diary.has(job=beside, event="start")
    blocked = await insert(connection, "block", payload={"seconds": 600})
    await diary.has(job=blocked, event="start")
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    for job_id in (blocked, beside):
        row = await job(connection, job_id)
        assert (row["status"], row["attempt"]) == ("pending", 0)
        assert (row["bounce_count"], row["crash_count"]) == (1, 0)


async def test_shutdowns_do_not_use_up_the_attempts(
    connection: Connection,
    start_worker: StartProcess,
    start_application: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    job_id = await insert(
        connection, "hold", payload={"until": str(go)}, max_attempts=2
    )
    for deploys in range(1, 3):
        worker = await start_worker(grace=0.1)
        await diary.has(deploys, event="start")
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0
    go.touch()
    await start_application()
    row = await ended(connection, job_id)

    assert (row["status"], row["attempt"]) == ("completed", 1)
    assert (row["bounce_count"], row["errors"]) == (2, None)


async def test_leases_are_kept_up_while_a_worker_waits_for_its_jobs(
    connection: Connection,
    start_worker: StartProcess,
    start_application: StartProcess,
    diary: Diary,
) -> None:
    worker = await start_worker(lease=1, grace=600)
    job_id = await insert(connection, "nap", payload={"seconds": 5})
    await diary.has(event="start")
    worker.send(signal.SIGTERM)
    await start_application(lease=1)  # who would take what the other lets go
    row = await ended(connection, job_id)

    assert (row["status"], row["crash_count"]) == ("completed", 0)
    assert len(diary.entries(event="start")) == 1
    assert await worker.exit_code() == 0


async def test_nothing_is_left_running_by_a_stop_at_any_moment(
    connection: Connection, start_worker: StartProcess
) -> None:
    worker = await start_worker("--queue", "default:20")
    for _ in range(20):  # so that claims and ends are always under way
        await insert_some(connection, "noop", 1000)
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0

    assert await running_count(connection) == 0
    assert not await connection.fetchval(
        "select count(*) from pgwake.jobs where crash_count > 0 or attempt > 1"
    )
    row = await in_status(connection, 20_000, "pending")
    assert row["attempt"] == 0


async def claims_wait(connection: Connection, statement: str = "claim_rows") -> bool:
    """Whether a statement of a worker's waits for a lock."""
    waiting: bool = await connection.fetchval(
        "select exists (select from pg_stat_activity where wait_event_type = 'Lock'"
        " and application_name like 'pgwake:%' and query like $1)",
        f"%{statement}%",
    )
    return waiting


@pytest.mark.parametrize("is_supervised", [True, False])
async def test_what_a_claim_takes_that_is_answered_after_the_stop_goes_back_unburnt(
    connection: Connection,
    connect: Connect,
    start_worker: StartProcess,
    start_application: StartProcess,
    is_supervised: bool,
) -> None:
    worker = await (start_worker if is_supervised else start_application)()
    await connection.execute(
        "insert into pgwake.jobs (kind, payload, run_at)"
        " select 'noop', '{}', now() + interval '1 s' from generate_series(1, 50)"
    )
    other = await connect()
    async with other.transaction():
        await other.execute("lock table pgwake.queues")
        await wait_for(lambda: claims_wait(connection))
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0

    async def all_sessions_are_gone() -> bool:
        return not await sessions(connection)

    await wait_for(all_sessions_are_gone)  # what waited for the lock is over
    assert (
        await connection.fetchval(
            "select count(*) from pgwake.jobs_live where status = 'pending'"
            " and attempt = 0 and crash_count = 0"
        )
        == 50
    )


async def test_a_signal_is_heard_while_the_kinds_are_declared(
    connection: Connection,
    connect: Connect,
    start_process: StartProcess,
    database: str,
) -> None:
    other = await connect()
    async with other.transaction():
        await other.execute("lock table pgwake.kinds")
        worker = await start_process("-m", "pgwake", "run", database_url=database)
        await wait_for(lambda: claims_wait(connection, "declare_kinds"))
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0
    assert not worker.log("process died")


async def test_a_handler_that_takes_the_signals_for_itself_does_not_keep_the_worker(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker(imports="support.worker.rude_handlers", grace=0.5)
    job_id = await insert(connection, "override SIGTERM")
    await diary.has(event="start")
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    assert not worker.log("process died")
    row = await job(connection, job_id)
    assert (row["status"], row["attempt"]) == ("pending", 0)
    # It says how long the handler has run until then.
    assert worker.log("job released", job=job_id)[0]["execution_ms"] >= 500
