"""python -m tests.chaos.kills: kill -9, once a second, while jobs are inserted and run.

Two supervisors with two worker processes each, and two workers without (lease 3 s),
which the harness starts again itself. At the end the database and the lines that the
handlers left must tell the same story: every job completed exactly once, and every
execution beyond the first explained by the kill of the process that ran it before.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import asyncpg
import typer

from pgwake.embedded import EmbeddedServer
from pgwake.install import install

CHECKOUT = Path(__file__).resolve().parents[2]
SUPERVISED = [
    *("-m", "pgwake", "run", "--import", "tests.chaos.handlers"),
    *("--queue", "chaos:10", "--processes", "2", "--http-port", "0"),
]
EMBEDDED = ["-m", "tests.chaos.embedded"]

INSERT = """
insert into pgwake.jobs (queue, kind, payload)
select 'chaos', 'chaos', jsonb_build_object(
  'seconds', random() * case when random() < 0.3 then 0.3 else 0.02 end)
from generate_series(1, $1)
"""
ENDED = """
select
  count(*) filter (where status = 'completed') as completed,
  count(distinct id) filter (where status = 'completed') as distinct_completed,
  count(*) filter (where status <> 'completed') as others,
  max(crash_count) as max_crash_count
from pgwake.jobs where queue = 'chaos'
"""


@dataclass(frozen=True, slots=True)
class Account:
    """What came of it.

    Attributes:
        jobs: How many were inserted.
        completed: How many the database has as completed, each once.
        others: How many it has in any other state.
        executions: How often a handler began.
        explained: Executions beyond a job's first, after the kill of the one before.
        unexplained: (job, process) of executions that were followed by another one
            though their process was not killed.
        kills: How many processes were killed.
        max_crash_count: The most crashes that one job was in.
        seconds: From the first insert to the last end.
    """

    jobs: int
    completed: int
    others: int
    executions: int
    explained: int
    unexplained: list[tuple[int, int]]
    kills: int
    max_crash_count: int
    seconds: float

    @property
    def closes(self) -> bool:
        """Whether nothing was lost, failed, doubled or is unexplained."""
        return (
            self.completed == self.jobs
            and self.others == 0
            and not self.unexplained
            and self.executions == self.jobs + self.explained
        )


class Workers:
    """The processes under chaos."""

    def __init__(self, url: str, log: Path, output: Path) -> None:
        self._environment = {
            **os.environ,
            "PGWAKE_DATABASE_URL": url,
            "PGWAKE_CHAOS_LOG": str(log),
        }
        self._output = output
        self._supervisors = [self._start(SUPERVISED) for _ in range(2)]
        self._embedded = [self._start(EMBEDDED) for _ in range(2)]
        self.killed: dict[int, float] = {}

    def _start(self, arguments: list[str]) -> "subprocess.Popen[bytes]":
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=CHECKOUT,
                env=self._environment,
                stderr=output,
            )

    @property
    def output(self) -> str:
        """What they have logged."""
        return self._output.read_text()

    def kill_one(self, dice: random.Random) -> None:
        """Kill a worker process; start an embedded one again."""
        children = [pid for one in self._supervisors for pid in _children(one.pid)]
        victim = dice.choice([*children, *(one.pid for one in self._embedded)])
        os.kill(victim, signal.SIGKILL)
        self.killed[victim] = time.time()
        for index, one in enumerate(self._embedded):
            if one.pid == victim:
                one.wait()
                self._embedded[index] = self._start(EMBEDDED)

    def stop(self) -> list[int]:
        """Stop all as a deploy would; the supervisors' exit codes."""
        everyone = [*self._supervisors, *self._embedded]
        for one in everyone:
            one.terminate()
        codes = [one.wait(timeout=90) for one in everyone]
        return codes[: len(self._supervisors)]


async def run(url: str, *, jobs: int, seconds: float, seed: int) -> Account:
    """Do it, on a database with the schema; the account."""
    dice = random.Random(seed)  # noqa: S311
    with TemporaryDirectory(prefix="pgwake-chaos-") as folder:
        log = Path(folder, "executions")
        workers = Workers(url, log, Path(folder, "workers.log"))
        connection = await asyncpg.connect(url)
        try:
            began = time.monotonic()
            batches = max(int(seconds * 10), 1)
            for batch in range(batches):
                count = jobs * (batch + 1) // batches - jobs * batch // batches
                await connection.execute(INSERT, count)
                if batch % 10 == 9:
                    workers.kill_one(dice)
                pause = began + (batch + 1) / 10 - time.monotonic()
                await asyncio.sleep(max(pause, 0))
            while await connection.fetchval(
                "select exists (select from pgwake.jobs_live where queue = 'chaos')"
            ):
                await asyncio.sleep(0.1)
            took = time.monotonic() - began
            row = await connection.fetchrow(ENDED)
        finally:
            await connection.close()
            codes = workers.stop()
            if any(codes):
                print(workers.output[-4000:])  # noqa: T201
        assert not any(codes), f"exit codes {codes}"
        executions = _read(log)
    assert row is not None
    explained, unexplained = _explain(executions, workers.killed)
    return Account(
        jobs=jobs,
        completed=row["distinct_completed"]
        if row["completed"] == row["distinct_completed"]
        else -1,
        others=row["others"],
        executions=sum(map(len, executions.values())),
        explained=explained,
        unexplained=unexplained,
        kills=len(workers.killed),
        max_crash_count=row["max_crash_count"],
        seconds=took,
    )


def _read(log: Path) -> dict[int, list[tuple[float, int]]]:
    """Return the executions of each job: when, and by which process."""
    executions: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for line in log.read_text().splitlines():
        job_id, pid, at = line.split()
        executions[int(job_id)].append((float(at), int(pid)))
    return {job_id: sorted(runs) for job_id, runs in executions.items()}


def _explain(
    executions: dict[int, list[tuple[float, int]]], killed: dict[int, float]
) -> tuple[int, list[tuple[int, int]]]:
    explained = 0
    unexplained = []
    for job_id, runs in executions.items():
        for (at, pid), (next_at, _) in pairwise(runs):
            if at <= killed.get(pid, 0) <= next_at:
                explained += 1
            else:
                unexplained.append((job_id, pid))
    return explained, unexplained


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def main(
    jobs: int = 20_000,
    seconds: float = 60,
    seed: int = 1,
    database_url: Annotated[str | None, typer.Option(help="A scratch one.")] = None,
) -> None:
    """Run it and print the account; exit code 1 if it does not close."""
    if database_url is None:
        with EmbeddedServer() as server:
            asyncio.run(install(server.url))
            account = asyncio.run(
                run(server.url, jobs=jobs, seconds=seconds, seed=seed)
            )
    else:
        asyncio.run(install(database_url))
        account = asyncio.run(run(database_url, jobs=jobs, seconds=seconds, seed=seed))
    for name in Account.__slots__:
        print(f"{name:16} {getattr(account, name)}")  # noqa: T201
    print("the account closes" if account.closes else "THE ACCOUNT DOES NOT CLOSE")  # noqa: T201
    sys.exit(not account.closes)


if __name__ == "__main__":
    typer.run(main)
