"""The kinds of the mix; and what only a worker process can see of itself.

The workers import it beside the chaos engine's handlers. Each process keeps a file that
says how much it has now.
"""

import asyncio
import gc
import json
import os
import sys
import threading
from pathlib import Path
from time import sleep

from pgwake import Job, Retry, job

LOOK_SECONDS = 5.0
FOLDER = Path(os.environ["PGWAKE_CHAOS_JOURNAL"]).parent / "looks"


@job("soak")
async def soak(
    seconds: float = 0,
    text: str = "",  # noqa: ARG001, two kilobytes that come along
    *,
    fails: bool = False,
    job: Job,
) -> str:
    """Take that long; once in vain if asked to."""
    await asyncio.sleep(seconds)
    job.report_progress({"seconds": seconds})
    if fails and job.attempt == 1:
        raise Retry(delay=1)
    return "x" * 100


@job("soak.thread")
def soak_thread() -> None:
    """Run in a thread."""


def look() -> dict[str, int]:
    """Count the blocks that the interpreter has allocated, and tasks.

    Tasks that have ended too: those that somebody still holds are what a leak of them
    would be made of. Not what waits for the collector, which a worker runs seldom.
    """
    gc.collect()
    tasks = sum(type(one) is asyncio.Task for one in gc.get_objects())
    return {"blocks": sys.getallocatedblocks(), "tasks": tasks}


def _keep_looking() -> None:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / str(os.getpid())
    new = path.with_suffix(".new")
    while True:
        new.write_text(json.dumps(look()))
        new.rename(path)
        sleep(LOOK_SECONDS)


threading.Thread(target=_keep_looking, name="soak-looks", daemon=True).start()
