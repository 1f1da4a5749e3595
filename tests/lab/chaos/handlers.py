"""What the workers under chaos run; each execution leaves a line in the journal.

A process's lines stand in a file of its own, so that what a kill tears is the last one.
The line outlives the process: it is in the kernel's hands before the work begins.
"""

import asyncio
import os
import time
from pathlib import Path

from pgwake import Discard, Job, job

from .run import KIND, ON_PURPOSE

_folder = Path(os.environ["PGWAKE_CHAOS_JOURNAL"])
_folder.mkdir(parents=True, exist_ok=True)
_journal = os.open(_folder / str(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@job(KIND)
async def chaos(
    seconds: float,
    serial: int = 0,
    fails: int = 0,
    *,
    is_doomed: bool = False,
    has_effect: bool = False,
    job: Job,
) -> None:
    """Take that long, and then do or fail as the payload says.

    Args:
        seconds: How long.
        serial: The job's number among those of the run: ids may repeat in a failover.
        fails: So many attempts fail.
        is_doomed: It fails for good.
        has_effect: A row of its own is committed with the job's end.
        job: The job.
    """
    words = (job.id, job.attempt, job.lease_id, os.getpid(), time.time(), serial)
    os.write(_journal, ("\t".join(map(str, words)) + "\n").encode())
    await asyncio.sleep(seconds)
    if job.attempt <= fails:
        raise RuntimeError(ON_PURPOSE)
    if has_effect:
        schema = os.environ["PGWAKE_CHAOS_SCHEMA"]
        async with job.transaction() as connection:
            await connection.execute(
                f"insert into {schema}.effects (job_id, lease_id) values ($1, $2)",
                *(job.id, job.lease_id),
            )
            if is_doomed:
                raise Discard(ON_PURPOSE)
    if is_doomed:
        raise Discard(ON_PURPOSE)
