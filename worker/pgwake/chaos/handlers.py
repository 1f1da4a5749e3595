"""The handlers of a run under faults: each execution leaves a line in the journal.

A process's lines stand in a file of its own, so that what a kill tears is the last one.
The line outlives the process: it is in the kernel's hands before the work begins.
"""

import asyncio
import os
import time
from pathlib import Path

from pgwake.chaos import KIND, ON_PURPOSE
from pgwake.jobs.job import Job
from pgwake.jobs.outcomes import Discard
from pgwake.jobs.registry import job

_folder = Path(os.environ["PGWAKE_CHAOS_JOURNAL"])
_folder.mkdir(parents=True, exist_ok=True)
_journal = os.open(_folder / str(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_add_effect = (
    f"insert into {os.environ['PGWAKE_CHAOS_SCHEMA']}.effects (job_id, lease_id)"  # noqa: S608, a run's own name
    " values ($1, $2)"
)


@job(KIND)
async def chaos(
    serial: int,  # noqa: ARG001, the account's
    seconds: float,
    fails: int = 0,
    *,
    is_doomed: bool = False,
    has_effect: bool = False,
    job: Job,
) -> None:
    """Take that long, and then do or fail as the payload says.

    Args:
        serial: The job's number among those of the run.
        seconds: How long.
        fails: So many attempts fail.
        is_doomed: It fails for good.
        has_effect: A row of its own is committed with the job's end.
        job: The job.
    """
    line = (
        f"{job.id}\t{job.attempt}\t{job.lease_id}\t{os.getpid()}\t{time.time():.6f}\n"
    )
    os.write(_journal, line.encode())
    await asyncio.sleep(seconds)
    if job.attempt <= fails:
        raise RuntimeError(ON_PURPOSE)
    if has_effect:
        async with job.transaction() as connection:
            await connection.execute(_add_effect, job.id, job.lease_id)
            if is_doomed:
                raise Discard(ON_PURPOSE)
    if is_doomed:
        raise Discard(ON_PURPOSE)
