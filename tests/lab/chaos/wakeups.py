"""python -m tests.lab.chaos.wakeups: transactions of all lengths, without polls.

Eight worker processes that only a notification or a second look can wake; sixteen
producers whose transactions take from nothing to two seconds, some rolled back. A lost
wake-up would leave a job lying there for an hour. Prints how long the jobs have waited
beyond their commit.
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Annotated

import asyncpg
import typer

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install

from .run import executions

CHECKOUT = Path(__file__).resolve().parents[3]
WORKERS = [
    *("-m", "pgwake", "run", "--import", "tests.lab.chaos.handlers"),
    *("--queue", "chaos:2", "--processes", "8", "--http-port", "0"),
]
PRODUCERS = 16
ASLEEP = """
select count(*) from pg_stat_activity as a
where a.datname = current_database() and a.pid <> pg_backend_pid()
  and a.query ~ '^select$|pgwake.(park|unmute|open_writers)'
"""
INSERT = """
insert into pgwake.jobs (queue, kind, payload)
select 'chaos', 'chaos', '{"seconds": 0.001}' from generate_series(1, $1) returning id
"""


@dataclass(frozen=True, slots=True)
class Account:
    """What came of it. Waits are in seconds, from the commit to the handler's start.

    Attributes:
        jobs: How many were committed.
        completed: How many the database has as completed.
        rolled_back: How many transactions came to nothing.
        seconds: From the first insert to the last end.
        median, p99, longest: Of the waits.
        excess: The longest wait beyond a tenth of the job's own transaction, which is
            what one may take that was open when the notify lock was taken.
    """

    jobs: int
    completed: int
    rolled_back: int
    seconds: float
    median: float
    p99: float
    longest: float
    excess: float


class Producers:
    """They insert until there are enough jobs.

    Attributes:
        commits: Of each job, when its commit was answered, and how long its
            transaction was open.
    """

    def __init__(self, url: str, jobs: int, seed: int) -> None:
        self._url = url
        self._jobs = jobs
        self._seed = seed
        self.commits: dict[int, tuple[float, float]] = {}
        self.rolled_back = 0

    async def run(self) -> None:
        """Insert them all."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(PRODUCERS):
                tasks.create_task(self._produce(random.Random(self._seed + number)))  # noqa: S311

    async def _produce(self, dice: random.Random) -> None:
        connection = await asyncpg.connect(self._url)
        while len(self.commits) < self._jobs:
            transaction = connection.transaction()
            await transaction.start()
            began = time.time()
            rows = await connection.fetch(INSERT, dice.randint(1, 9))
            await asyncio.sleep(2 if dice.random() < 0.02 else dice.expovariate(50))
            if dice.random() < 0.2:
                await transaction.rollback()
                self.rolled_back += 1
            else:
                await transaction.commit()
                now = time.time()
                self.commits.update((row["id"], (now, now - began)) for row in rows)
            # Now and then all are quiet, so that the workers go to sleep.
            await asyncio.sleep(dice.choice([0, 0, 0.01, 0.05, 0.2]))
        await connection.close()


async def run(url: str, *, jobs: int, seed: int) -> Account:
    """Do it, on a database with the schema; the account."""
    with TemporaryDirectory(prefix="pgwake-chaos-") as folder:
        journal = Path(folder, "journal")
        environment = {
            **os.environ,
            "PGWAKE_DATABASE_URL": url,
            "PGWAKE_CHAOS_JOURNAL": str(journal),
            "PGWAKE_POLL_INTERVAL": "3600",
            "PGWAKE_LOG_LEVEL": "warning",
        }
        workers = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, *WORKERS], cwd=CHECKOUT, env=environment
        )
        connection = await asyncpg.connect(url)
        try:
            while await connection.fetchval(ASLEEP) < 8:
                await asyncio.sleep(0.1)
            producers = Producers(url, jobs, seed)
            began = time.monotonic()
            await producers.run()
            while await connection.fetchval(
                "select exists (select from pgwake.jobs_live where queue = 'chaos')"
            ):
                await asyncio.sleep(0.1)
            took = time.monotonic() - began
            completed = await connection.fetchval(
                "select count(*) from pgwake.jobs"
                " where queue = 'chaos' and status = 'completed'"
            )
        finally:
            await connection.close()
            workers.terminate()
            workers.wait()
        waits, excess = _waits(journal, producers.commits)
    cuts = quantiles(waits, n=100)
    return Account(
        jobs=len(producers.commits),
        completed=completed,
        rolled_back=producers.rolled_back,
        seconds=took,
        median=cuts[49],
        p99=cuts[98],
        longest=max(waits),
        excess=excess,
    )


def _waits(
    journal: Path, commits: dict[int, tuple[float, float]]
) -> tuple[list[float], float]:
    waits, excess = [], 0.0
    for execution in executions(journal):
        committed_at, open_for = commits[execution.job_id]
        waits.append(max(execution.began_at - committed_at, 0.0))
        excess = max(excess, waits[-1] - open_for / 10)
    return waits, excess


def main(
    jobs: int = 20_000,
    seed: int = 1,
    runs: Annotated[int, typer.Option(help="With a seed each.")] = 1,
    database_url: Annotated[str | None, typer.Option(help="A scratch one.")] = None,
) -> None:
    """Run it and print the account."""
    if database_url is None:
        with EmbeddedServer() as server:
            _repeat(server.url, jobs, seed, runs)
    else:
        _repeat(database_url, jobs, seed, runs)


def _repeat(url: str, jobs: int, seed: int, runs: int) -> None:
    asyncio.run(install(url))
    before = 0
    for number in range(runs):
        account = asyncio.run(run(url, jobs=jobs, seed=seed + number * PRODUCERS))
        before, completed = account.completed, account.completed - before
        for name in Account.__slots__:
            value = completed if name == "completed" else getattr(account, name)
            text = f"{value:.4f}" if isinstance(value, float) else value
            print(f"{name:12} {text}")  # noqa: T201
        if completed != account.jobs:
            sys.exit("JOBS ARE MISSING, OR TOO MANY")


if __name__ == "__main__":
    typer.run(main)
