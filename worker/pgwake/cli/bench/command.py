"""pgwake bench: how fast pgwake is on a server, and whether it has changed."""

import asyncio
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pgwake.cli.bench.measure import OTHERS, QUEUE, measure_round
from pgwake.cli.bench.results import BenchRun, read, rows, write
from pgwake.cli.bench.scratch import scratch_queue
from pgwake.cli.bench.worker import LATENCY, NOOP
from pgwake.cli.own_worker import started, until_signal
from pgwake.cli.shared.output import (
    InProduction,
    Url,
    bar,
    note,
    say,
    show,
    wrong_usage,
)
from pgwake.cli.shared.tables import cell
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.database.statements.install import get_adoption
from pgwake.doctor.connect import without_password
from pgwake.errors import InvalidArgumentError, PgwakeError
from pgwake.settings import Settings
from pgwake.version import __version__

QUICK_JOBS, QUICK_REPEATS = 500, 2
WAL_BYTES_A_JOB = 2_000  # put in, run and removed: 1,500 without full pages


def bench(
    jobs: Annotated[
        int,
        typer.Option(
            metavar="N", min=100, max=10_000_000, help="Jobs drained in each round."
        ),
    ] = 10_000,
    repeats: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=100, help="Rounds; each measures everything."
        ),
    ] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="500 jobs and two rounds at most.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="What to compare with, written by --json; by default the last run "
            "with as many jobs on the same database.",
        ),
    ] = None,
    json_path: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", dir_okay=False, help="Write all figures there."
        ),
    ] = None,
    in_production: InProduction = False,
    database_url: Url = None,
) -> None:
    """Measure pgwake on a database, and compare with the last time.

    Without a database it starts an embedded PostgreSQL. On one of yours it uses a queue
    of its own, and removes it and its jobs at the end.
    """
    settings = Settings.load(database_url=database_url)
    if quick:
        jobs, repeats = min(jobs, QUICK_JOBS), min(repeats, QUICK_REPEATS)
    try:
        last = read(against) if against else None
    except InvalidArgumentError as error:
        wrong_usage(f"--against {error}")

    async def work() -> int:
        async with AsyncExitStack() as stack:
            record = await _measure(
                stack, settings, jobs, repeats, in_production=in_production
            )
            # Now, so that no fault of the removal loses it.
            compare(record, last)
            if json_path is not None:
                write(json_path, record)
        return 0

    sys.exit(asyncio.run(until_signal(work(), lambda: note("stopped"))))


async def _measure(
    stack: AsyncExitStack,
    settings: Settings,
    jobs: int,
    repeats: int,
    *,
    in_production: bool,
) -> BenchRun:
    server = EmbeddedServer() if settings.database_url is None else None
    if server is not None:
        await stack.enter_async_context(started(server))
        settings = Settings.load(database_url=server.url, listen_url=server.url)
        await install(settings.dsn)
    connection = await stack.enter_async_context(
        scratch_queue(settings, QUEUE, (NOOP, LATENCY), in_production=in_production)
    )
    version = connection.get_settings().server_version.partition(" ")[0]
    place = "an embedded server" if server else without_password(settings.dsn)
    megabytes = repeats * (jobs + OTHERS) * WAL_BYTES_A_JOB / 1e6
    say(
        f"pgwake {__version__} on {place} (PostgreSQL {version})\n"
        f"{repeats} rounds of {jobs + OTHERS:,} jobs in queue {QUEUE}, by one worker "
        f"process: about {megabytes:,.0f} MB of WAL. All goes at the end.\n"
        "The worker does the database's upkeep and fires its schedules, as each does. "
        "WAL and the server's CPU are the whole server's: other traffic counts, too.\n"
    )
    found = []
    with bar("rounds", repeats, quiet=False) as advance:
        for _ in range(repeats):
            found.append(await measure_round(settings, connection, jobs))
            advance(1)
    identity = (await get_adoption(connection)).present_identity
    return BenchRun(
        at=datetime.now(UTC),
        pgwake=__version__,
        server=version,
        database="embedded" if server else identity,  # one is as another: each is new
        jobs=jobs,
        figures={name: tuple(one[name] for one in found) for name in found[0]},
    )


def compare(record: BenchRun, last: BenchRun | None) -> None:
    """Show a run beside another one; None: beside the last, whose place it takes."""
    told = "Marked is a change beyond the range of both runs."
    try:
        last = last or read(record.path)
    except InvalidArgumentError as error:
        told = f"There is no run to compare with: {error}"
    show(rows(record, last), as_json=False)
    if last is not None:
        told = (
            f"last: {cell(last.at)}, {last.jobs:,} jobs, pgwake {last.pgwake}, "
            f"PostgreSQL {last.server}, database {last.database}. {told}"
        )
    say(f"\n{told}")
    try:
        write(record.path, record)
    except PgwakeError as error:
        note(f"The run is not kept: {error}")
