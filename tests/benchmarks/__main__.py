"""python -m tests.benchmarks: what pgwake does on the server it is given.

Without --database-url it starts an embedded PostgreSQL with its default settings
(fsync on). Everything else is as a user has it: `pgwake run` with default settings, in
processes of its own; figures come from the database's own rows.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import asyncpg
import typer
from rich.console import Console
from rich.table import Table

from pgwake.embedded import EmbeddedServer
from pgwake.install import install

CHECKOUT = Path(__file__).resolve().parents[2]
RESET = """
truncate pgwake.jobs_live, pgwake.jobs_failed, pgwake.jobs_finished, pgwake.tallies
"""
ENQUEUE = """
insert into pgwake.jobs (kind, payload)
select 'noop', jsonb_build_object('number', i) from generate_series(1, {jobs}) as i
"""
DRAINED = """
select count(*) as jobs,
  extract(epoch from max(finished_at) - min(started_at))::float8 as seconds
from pgwake.jobs_finished where status = 'completed'
"""
ENQUEUE_NOW = """
insert into pgwake.jobs (kind, payload)
values ('wakeup', jsonb_build_object('at', extract(epoch from clock_timestamp())))
"""
WAKE_UPS = """
select result::float8 as milliseconds from pgwake.jobs_finished order by id
"""

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
Url = Annotated[str | None, typer.Option("--database-url", help="A scratch database.")]
Json = Annotated[bool, typer.Option("--json")]


@app.command()
def drain(
    jobs: int = 50_000,
    slots: int = 10,
    processes: int = 1,
    repeats: int = 5,
    database_url: Url = None,
    as_json: Json = False,
) -> None:
    """Jobs a second of no-op jobs that are all there before the worker starts."""
    rates = []
    with _database(database_url) as url:
        for _ in range(repeats):
            asyncio.run(_execute(url, RESET, ENQUEUE.format(jobs=jobs), "analyze"))
            with _worker(url, slots, processes):
                rows = asyncio.run(_wait_until_done(url, DRAINED))
            assert rows[0]["jobs"] == jobs, "every job is completed exactly once"
            rates.append(jobs / rows[0]["seconds"])
    _report(
        f"drain of {jobs:,} jobs, {slots} slots, {processes} process(es), jobs/s",
        rates,
        as_json=as_json,
    )


@app.command()
def wakeup(
    jobs: int = 100,
    pause_ms: float = 50.0,
    database_url: Url = None,
    as_json: Json = False,
) -> None:
    """Milliseconds from an INSERT's start to its handler's first line."""
    with _database(database_url) as url:
        asyncio.run(_execute(url, RESET))
        with _worker(url, 10, 1):
            asyncio.run(_insert_one_by_one(url, jobs + 5, pause_ms / 1000))
            rows = asyncio.run(_wait_until_done(url, WAKE_UPS))
    _report(
        f"wake-up of an idle worker, {jobs} inserts, ms",
        [row["milliseconds"] for row in rows[5:]],  # the first ones warm up
        as_json=as_json,
    )


@contextmanager
def _database(url: str | None) -> Iterator[str]:
    if url is not None:
        asyncio.run(install(url))
        yield url
    else:
        with EmbeddedServer() as server:
            asyncio.run(install(server.url))
            yield server.url


@contextmanager
def _worker(url: str, slots: int, processes: int) -> Iterator[None]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pgwake", "run", "--http-port", "0"),
            *("--import", "tests.benchmarks.handlers", "--queue", f"default:{slots}"),
            *("--processes", str(processes)),
        ],
        cwd=CHECKOUT,
        env={**os.environ, "PGWAKE_DATABASE_URL": url},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement, timeout=600)
    await connection.close()


async def _insert_one_by_one(url: str, jobs: int, pause: float) -> None:
    connection = await asyncpg.connect(url)
    while not await connection.fetchval(
        "select exists (select from pg_stat_activity where query like 'LISTEN%')"
    ):
        await asyncio.sleep(0.05)
    for _ in range(jobs):
        await connection.execute(ENQUEUE_NOW)
        await asyncio.sleep(pause)
    await connection.close()


async def _wait_until_done(url: str, query: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    while await connection.fetchval("select exists (select from pgwake.jobs_live)"):
        await asyncio.sleep(0.05)
    rows: list[asyncpg.Record] = await connection.fetch(query)
    await connection.close()
    return rows


def _report(title: str, values: list[float], *, as_json: bool) -> None:
    values = sorted(values)
    figures = {
        "count": len(values),
        "min": values[0],
        "median": statistics.median(values),
        "p95": values[int(0.95 * (len(values) - 1))],
        "max": values[-1],
    }
    if as_json:
        print(json.dumps({"title": title, **figures}))  # noqa: T201
        return
    table = Table("count", "min", "median", "p95", "max", title=title, box=None)
    table.add_row(
        str(len(values)), *(f"{value:,.1f}" for value in list(figures.values())[1:])
    )
    Console().print(table)


if __name__ == "__main__":
    app()
