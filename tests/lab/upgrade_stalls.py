"""python -m tests.lab.upgrade_stalls: how long does an upgrade hold up a busy queue?

Sessions insert, claim and complete as fast as they can, and somebody keeps a claim's
transaction open for --hold-seconds. Meanwhile psql, the one on PATH, runs
sql/install.sql: over the same version, without a migration; and that of a next version
that changes the hot leaf, over schema 1, with all migrations between. Told is how
long it took, and the longest that a call of each kind took, undisturbed and while it
went on.
"""

import asyncio
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import asyncpg
import typer

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install, sql_directory
from support.sql import release
from support.sql.next_schema import make_next_schema

INSERT = "insert into pgwake.jobs (kind) values ('noop')"
CLAIM = "select id, lease_id from pgwake.claim_jobs('default', 10, worker => 'w')"
COMPLETE = "select pgwake.complete_jobs($1, $2)"
FULL = 20_000  # that nobody claims, for the hot leaf to be no toy
WITHOUT = "without a migration"
WITH_ALL = "with the migrations from schema 1, the last of the hot leaf"


@dataclass
class Calls:
    """The longest that a call of each name took, in ms, and how many there were."""

    longest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    count: int = 0

    def note(self, name: str, began: float) -> None:
        self.longest[name] = max(self.longest[name], (monotonic() - began) * 1000)
        self.count += 1


class Load:
    """Two sessions that insert, and two that claim and complete."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.calls = Calls()
        self.is_over = False

    async def insert(self) -> None:
        connection = await asyncpg.connect(self._url)
        while not self.is_over:
            began = monotonic()
            await connection.execute(INSERT)
            self.calls.note("insert", began)
        await connection.close()

    async def work(self) -> None:
        connection = await asyncpg.connect(self._url)
        while not self.is_over:
            began = monotonic()
            jobs = await connection.fetch(CLAIM)
            self.calls.note("claim", began)
            if jobs:
                began = monotonic()
                await connection.fetch(
                    COMPLETE, [j[0] for j in jobs], [j[1] for j in jobs]
                )
                self.calls.note("complete", began)
            await asyncio.sleep(0)
        await connection.close()

    def watch(self) -> Calls:
        """Begin anew; what was noted since the last time."""
        seen, self.calls = self.calls, Calls()
        return seen


async def hold(url: str, seconds: float) -> None:
    """Keep a claim's transaction open."""
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.fetch("select pgwake.claim_jobs('held', 1)")
        await asyncio.sleep(seconds)
    await connection.close()


async def measure(url: str, directory: Path, seconds: float) -> tuple[Calls, float]:
    """Run a folder's install.sql by psql under load."""
    load = Load(url)
    tasks = [asyncio.create_task(load.insert()) for _ in range(2)]
    tasks += [asyncio.create_task(load.work()) for _ in range(2)]
    await asyncio.sleep(2)
    before = load.watch()
    say("  undisturbed", before, 2)
    holding = asyncio.create_task(hold(url, seconds))
    await asyncio.sleep(0.1)
    load.watch()
    began = monotonic()
    command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-f"]
    await asyncio.to_thread(
        subprocess.run, [*command, str(directory / "install.sql")], check=True
    )
    took = monotonic() - began
    seen = load.watch()
    await holding
    load.is_over = True
    await asyncio.gather(*tasks)
    return seen, took


def say(what: str, calls: Calls, seconds: float) -> None:
    longest = ", ".join(f"{n} {ms:.1f} ms" for n, ms in sorted(calls.longest.items()))
    print(f"{what}: {seconds:.2f} s, {calls.count} calls, longest {longest}")  # noqa: T201


async def run(url: str, way: str, seconds: float) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("drop schema if exists pgwake cascade")
    is_upgrade = way != WITHOUT
    if is_upgrade:
        await connection.execute(release.script(1))
    else:
        await install(url)
    await connection.execute(
        "insert into pgwake.jobs (queue, kind) values ('held', 'noop');"
        "insert into pgwake.jobs (queue, kind, payload)"
        " select 'full', 'noop', jsonb_build_object('text', repeat('x', 500))"
        f" from generate_series(1, {FULL})"
    )
    await connection.close()
    with tempfile.TemporaryDirectory() as folder:
        directory = make_next_schema(Path(folder)) if is_upgrade else sql_directory()
        say(f"{way}", *await measure(url, directory, seconds))


def main(rounds: int = 3, hold_seconds: float = 0) -> None:
    """Measure each way, so many times."""
    with EmbeddedServer() as server:
        for way in (WITHOUT, WITH_ALL):
            for _ in range(rounds):
                asyncio.run(run(server.url, way, hold_seconds))


if __name__ == "__main__":
    typer.run(main)
