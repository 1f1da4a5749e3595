"""Handlers that fork, for tests: --import support.worker.fork_handlers."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

from pgwake import Job, job
from support.worker.handlers import note


@job("pool")
def pool(method: str) -> list[int]:
    """Compute in two processes, by both of Python's pools."""
    context = multiprocessing.get_context(method)
    with context.Pool(2) as processes:
        numbers = processes.map(abs, [-1, -2])
    with ProcessPoolExecutor(2, context) as executor:
        return [*numbers, *executor.map(abs, [-3])]


@job("end forks at once")
def end_forks_at_once() -> list[int]:
    """Fork, and end each before it has run anything; their exit codes."""
    return [_end_fork_at_once() for _ in range(20)]


def _end_fork_at_once() -> int:
    pid = os.fork()
    if not pid:
        time.sleep(5)
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@job("read stdin")
def read_stdin() -> str:
    """Read standard input, as a program's and as this process's own."""
    output = subprocess.run(["cat"], check=True, stdout=subprocess.PIPE).stdout
    try:
        return output.decode() + input()
    except EOFError:
        return "end of file"


def _orphan(job: Job) -> int:
    """Fork a process that outlives this one; its pid."""
    if pid := os.fork():
        return pid
    links = _links()
    note(job, "orphan", links=links, default=_has_default_signals())
    time.sleep(120)
    os._exit(0)


def _links() -> list[str]:
    links = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # what lists them is closed by now
            links.append(str(path.readlink()))
    return links


def _has_default_signals() -> bool:
    return all(
        signal.getsignal(number) is signal.SIG_DFL
        for number in (signal.SIGTERM, signal.SIGINT)
    )


@job("leave an orphan")
async def leave_an_orphan(job: Job) -> None:
    """In a transaction fork a process, the first time, and wait to be killed."""
    async with job.transaction():
        if job.attempt == 1 and job.crash_count == 0:
            links = _links()
            note(job, "forked", links=links, orphan=_orphan(job))
            await asyncio.Event().wait()


@job("fork on the loop")
async def fork_on_the_loop(job: Job) -> None:
    """Fork, and let both return into the worker."""
    note(job, "forked", orphan=os.fork())


@job("fork in a thread")
def fork_in_a_thread(job: Job) -> None:
    """Fork, and let both return into the worker."""
    note(job, "forked", orphan=os.fork())


@job("fork in a process", process=True)
def fork_in_a_process(job: Job) -> None:
    """Fork, and let both return into the worker."""
    note(job, "forked", orphan=os.fork())
