"""Handlers that leave their loop or their process no time keep their jobs."""

from support import Connection
from support.sql.helpers import insert
from support.worker.helpers import ended
from support.worker.processes import Diary, StartProcess

# Two threads that spin leave the lifeline little of the interpreter, and a busy machine
# leaves the process little of the processors: a lease of 1 s was too short for both.
LEASE = 4


async def test_a_job_that_is_busy_for_longer_than_its_lease_is_started_once(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    await start_worker("--queue", "default:2", lease=LEASE, stall_timeout=3)
    await start_worker("--queue", "other", lease=1)  # who gives back what has run out
    # By Python's default ten threads would keep a lifeline waiting 50 ms for each step.
    row = await ended(connection, await insert(connection, "switch interval"))
    assert row["result"] == 0.001
    ids = []
    for count, kind in enumerate(("spin in a thread", "spin"), 1):
        payload = {"seconds": 1.5 * LEASE}
        ids.append(await insert(connection, kind, payload=payload))
        await diary.has(count, event="start")  # the loop has to get its turn, too
    rows = [await ended(connection, job_id) for job_id in ids]

    assert {(row["status"], row["attempt"]) for row in rows} == {("completed", 1)}
    assert [row["errors"] for row in rows if row["errors"]] == []
    starts = [entry["job"] for entry in diary.entries(event="start")]
    assert sorted(starts) == ids
