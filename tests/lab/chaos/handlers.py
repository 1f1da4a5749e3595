"""What the workers under chaos run; each execution leaves a line in the journal.

A process's lines stand in a file of its own, so that what a kill tears is the last one.
The line outlives the process: it is in the kernel's hands before the work begins.
"""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pgwake import Discard, Job, WaitTimeoutError, job

from .run import KIND, ON_PURPOSE, STEPS_KIND

SCHEMA = os.environ.get("PGWAKE_CHAOS_SCHEMA")
_EFFECT = f"insert into {SCHEMA}.effects (job_id, lease_id) values ($1, $2)"
_CHILD = """
insert into pgwake.jobs (queue, kind, payload)
select $1, $2, jsonb_build_object('serial', $3::bigint, 'fails', $4::int,
  'seconds', random() * 0.6, 'has_effect', true, 'event', $5::text)
returning id
"""


def _open(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / str(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


_folder = Path(os.environ["PGWAKE_CHAOS_JOURNAL"])
_journal, _calls = _open(_folder), _open(_folder.with_name("calls"))


def _note(journal: int, *words: object) -> None:
    os.write(journal, ("\t".join(map(str, words)) + "\n").encode())


def note_execution(job: Job, serial: int) -> None:
    """Note in the journal that an execution begins."""
    words = (job.id, job.attempt, job.lease_id, os.getpid(), time.time(), serial)
    _note(_journal, *words)


@job(KIND)
async def chaos(
    seconds: float,
    serial: int = 0,
    fails: int = 0,
    event: str | None = None,
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
        event: What is emitted with its effect.
        is_doomed: It fails for good.
        has_effect: A row of its own is committed with the job's end.
        job: The job.
    """
    note_execution(job, serial)
    await asyncio.sleep(seconds)
    if job.attempt <= fails:
        raise RuntimeError(ON_PURPOSE)
    if has_effect:
        async with job.transaction() as connection:
            await connection.execute(_EFFECT, job.id, job.lease_id)
            if event is not None:
                emit = "select pgwake.emit_event($1, to_jsonb($2::uuid))"
                await connection.execute(emit, event, job.lease_id)
            if is_doomed:
                raise Discard(ON_PURPOSE)
    if is_doomed:
        raise Discard(ON_PURPOSE)


@job(STEPS_KIND)
async def chaos_steps(
    seconds: float, serial: int, patience: float, *, job: Job
) -> dict[str, Any]:
    """Enqueue a child, sleep, and wait for the child's event and for its end.

    Args:
        seconds: How long it sleeps.
        serial: As of chaos(); the child has the same below zero.
        patience: Seconds that it waits for the event.
        job: The job.

    Returns:
        By name what this run has heard of each step: what is recorded, or the account
        finds fault with it.
    """
    note_execution(job, serial)
    event = f"{SCHEMA}:{serial}"
    heard: dict[str, Any] = {"nap": None, "event": None}
    async with job.step_transaction("child") as step:
        if not step.is_done:
            step.result = await step.connection.fetchval(
                _CHILD, job.queue, KIND, -serial, int(serial % 250 == 5), event
            )
    heard["child"] = step.result
    heard["call"] = await job.step("call", _call, job)
    await job.sleep("nap", seconds=seconds)
    with suppress(WaitTimeoutError):
        heard["event"] = await job.wait_for(event, timeout=patience, name="event")
    end = await job.wait_for_job(heard["child"], name="end")
    return {**heard, "end": end._asdict()}


def _call(job: Job) -> str:
    _note(_calls, job.id, job.lease_id)
    return str(job.lease_id)
