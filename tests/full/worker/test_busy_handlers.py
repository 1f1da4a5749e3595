"""Handlers that leave their loop or their process no time keep their jobs."""

import pytest

from support import Connection
from support.sql.helpers import insert
from support.worker.helpers import ended
from support.worker.processes import Diary, StartProcess

# Two threads that spin leave the lifeline little of the interpreter, and a busy machine
# leaves the process little of the processors: a lease of 1 s was too short for both.
LEASE = 4


@pytest.mark.parametrize("kind", ["spin", "spin in a thread"])
async def test_a_job_that_is_busy_for_longer_than_its_lease_is_started_once(
    connection: Connection, start_worker: StartProcess, diary: Diary, kind: str
) -> None:
    for _ in range(2):
        await start_worker("--queue", "default:2", lease=LEASE, stall_timeout=3)
    # By Python's default ten threads would keep a lifeline waiting 50 ms for each step.
    row = await ended(connection, await insert(connection, "switch interval"))
    assert row["result"] == 0.001
    ids = [
        await insert(connection, kind, payload={"seconds": 1.5 * LEASE})
        for _ in range(4)
    ]
    rows = [await ended(connection, job_id, 40) for job_id in ids]

    assert {(row["status"], row["attempt"]) for row in rows} == {("completed", 1)}
    assert [row["errors"] for row in rows if row["errors"]] == []
    starts = [entry["job"] for entry in diary.entries(event="start")]
    assert sorted(starts) == ids
