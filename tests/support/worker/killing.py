"""Runs an order of the example approval, killed before every line of that module.

Each worker is a fork, since a start from nothing takes a second: it dies before the
first line at which none has died. What time or a person would do comes when the job
sleeps or waits: the arguments are the order's number, a file for the lines, and these
acts, `+SECONDS` for the clock, else an answer.
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import asyncpg

import approval
from pgwake import Queue, Worker
from pgwake.database.statements.testing import move_clock
from pgwake.jobs.registry import registry
from support.worker.helpers import sessions, settings

URL = os.environ["BANK_URL"]
_STATE = """
select case when j.status = 'waiting' then w.name
  when j.status = 'pending' and j.run_at > pgwake.now() then 'sleep'
  when j.status in ('running', 'pending') then 'busy' else j.status end
from pgwake.jobs as j left join pgwake.waits as w on w.job_id = j.id
where j.id = $1
"""
# What time would do: the lease runs out, and its crashes are not counted against it.
_EXPIRE = """
update pgwake.jobs_live set lease_expires_at = pgwake.now() - interval '1 second'
where id = $1 and status = 'running'
"""
_SWEEP = "select count(*) from pgwake.sweep_expired_leases()"
_FORGIVE = """
update pgwake.jobs_live set run_at = pgwake.now(), crash_count = 0, attempt = 0
where id = $1 and status = 'pending' and crash_count > 0
"""


def main(number: str, died_at: str, *acts: str) -> None:
    """Run an order to its end; fail if that is another than completed."""
    left, acted, state = list(acts), "busy", "busy"
    with asyncio.Runner() as loop:
        connection = loop.run(asyncpg.connect(URL))
        order = approval.order.using(Queue(connection))
        job_id = loop.run(order.enqueue(number=int(number)))
        for _ in range(100):
            pid = _fork_worker(Path(died_at))
            # Until a claim has looked, it waits for what has just come.
            while (state := loop.run(connection.fetchval(_STATE, job_id))) in {
                "busy",
                acted,
            }:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    loop.run(_until_gone(connection))
                    loop.run(connection.execute(_EXPIRE, job_id))
                    loop.run(connection.execute(_SWEEP))
                    loop.run(connection.execute(_FORGIVE, job_id))
                    break
                time.sleep(0.01)
            else:
                os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
                loop.run(_until_gone(connection))
            if state == "completed":
                return
            if state not in {"busy", acted}:
                acted = state
                loop.run(_act(connection, number, left.pop(0)))
        raise RuntimeError(state)


async def _until_gone(connection: Any) -> None:
    """Let a dead worker's last claim end: later it could take the job once more."""
    while await sessions(connection):
        await asyncio.sleep(0.01)


async def _act(connection: Any, number: str, act: str) -> None:
    if act.startswith("+"):
        await move_clock(connection, timedelta(seconds=float(act)))
    else:
        answer = {"yes": act == "yes"}
        await Queue(connection).emit(f"order:{number}:approved", answer)


def _fork_worker(died_at: Path) -> int:
    pid = os.fork()
    if pid == 0:
        _die_at_new_lines(died_at)
        asyncio.run(Worker(settings(URL, queues="orders"), registry).run())
        os._exit(0)
    return pid


def _die_at_new_lines(died_at: Path) -> None:
    lines = set(died_at.read_text().split())

    def on_line(frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and str(frame.f_lineno) not in lines:
            with died_at.open("a") as file:
                file.write(f"{frame.f_lineno}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    def on_call(frame: FrameType, _: str, __: object) -> Any:
        return on_line if frame.f_code.co_filename == approval.__file__ else None

    sys.settrace(on_call)


if __name__ == "__main__":
    main(*sys.argv[1:])
