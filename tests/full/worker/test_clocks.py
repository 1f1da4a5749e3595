"""A worker whose clock is wrong: only the database's counts."""

import asyncio
import sys
from datetime import datetime
from pathlib import Path

import pytest

from support import Connection
from support.sql.helpers import insert
from support.tools import need
from support.worker.helpers import all_ended
from support.worker.processes import Diary, StartProcess

# By libfaketime; clocks that only run, and are never set, go on as they are. By its
# FORCE_MONOTONIC_FIX, which is on unless told otherwise, no wait for such a clock would
# wait: each thread that wants the GIL would spin, and a busy machine stand still.
WRONG_CLOCK = """#!/bin/sh
export FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_FORCE_MONOTONIC_FIX=0
exec faketime -f {offset} {python} "$@"
"""

# The same, by what a file says at each look.
JUMPING_CLOCK = """#!/bin/sh
export FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_FORCE_MONOTONIC_FIX=0
export FAKETIME_NO_CACHE=1
exec faketime -f +0 env -u FAKETIME FAKETIME_TIMESTAMP_FILE={file} {python} "$@"
"""


async def test_a_wrong_clock_moves_no_lease_and_no_due_time(
    connection: Connection,
    start_worker: StartProcess,
    diary: Diary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("faketime")
    workers = [await start_worker("--queue", "default:3", lease=4)]
    for offset in ("+10m", "-10m"):
        program = tmp_path / offset
        program.write_text(WRONG_CLOCK.format(offset=offset, python=sys.executable))
        program.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(program))
            workers.append(await start_worker("--queue", "default:3", lease=4))
    # More at once than two of them have slots for.
    await connection.execute(
        "insert into pgwake.jobs (kind, payload, run_at)"
        " select 'nap', '{\"seconds\": 5}', now() + n % 2 * interval '2 seconds'"
        " from generate_series(1, 8) as n"
    )
    await all_ended(connection)
    await connection.execute(
        "insert into pgwake.jobs (kind, payload)"
        " select 'nap', '{\"seconds\": 0.01}' from generate_series(1, 100)"
    )
    await all_ended(connection)

    jobs = await connection.fetch(
        "select id, claimed_by, status, attempt, crash_count, errors,"
        " started_at >= run_at as in_time, finished_at >= started_at as in_order"
        " from pgwake.jobs"
    )
    assert len({job["claimed_by"] for job in jobs}) == 3
    for job in jobs:
        assert (job["status"], job["attempt"], job["crash_count"]) == (
            "completed",
            1,
            0,
        )
        assert (job["errors"], job["in_time"], job["in_order"]) == (None, True, True)
    assert len(diary.entries(event="start")) == len(jobs)
    lines = [line for worker in workers for line in worker.log("job completed")]
    assert len(lines) == len(jobs)
    assert all(0 <= line["queue_ms"] < 60_000 for line in lines)
    assert all(0 <= line["execution_ms"] < 60_000 for line in lines)
    # They were wrong indeed: the log's own times show it.
    right, ahead, behind = [
        datetime.fromisoformat(worker.lines[0]["timestamp"]) for worker in workers
    ]
    assert behind < right < ahead


async def test_a_clock_that_jumps_stops_nothing_and_ends_nothing(
    connection: Connection,
    start_worker: StartProcess,
    diary: Diary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, program = tmp_path / "clock", tmp_path / "python"
    clock.write_text("+0")
    need("faketime")
    program.write_text(JUMPING_CLOCK.format(file=clock, python=sys.executable))
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(program))
        worker = await start_worker("--queue", "default:9", lease=4, poll_interval=3600)

    # Jobs that run over all jumps, longer than their lease, and one that sleeps.
    await connection.execute(
        "insert into pgwake.jobs (kind, payload, run_at)"
        " select 'nap', '{\"seconds\": 6}', now() + n * interval '1 second'"
        " from generate_series(0, 1) as n"
    )
    await diary.has(event="start")
    for number, jump in enumerate(("+1d", "-1d", "+0")):
        clock.write_text(jump)
        await asyncio.sleep(0.5)
        await insert(connection, "noop")
        await worker.logged("job completed", number + 1, kind="noop")
    await all_ended(connection)

    jobs = await connection.fetch("select * from pgwake.jobs")
    assert {(job["status"], job["attempt"], job["errors"]) for job in jobs} == {
        ("completed", 1, None)
    }
    days = {line["timestamp"][:10] for line in worker.log("job completed")}
    assert len(days) == 3  # it did jump
