"""pgwake bench: how fast pgwake is on a server, and whether it has changed."""

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.console import Console

from pgwake.cli.bench import history
from pgwake.cli.bench.history import Record
from pgwake.cli.bench.measure import Figures
from pgwake.cli.bench.report import table
from pgwake.cli.bench.rounds import CONNECTIONS, KINDS, QUEUE, Rounds, Size
from pgwake.cli.output import InProduction, Url, cell, console, note, say, wrong_usage
from pgwake.cli.scratch import scratch_queue
from pgwake.cli.stage import started, until_signal
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.database.statements.adoption import get_adoption
from pgwake.database.statements.bench import server_version
from pgwake.doctor.connect import without_password
from pgwake.errors import ConfigurationError, InvalidArgumentError, PgwakeError
from pgwake.settings import Settings
from pgwake.version import __version__

JOBS, QUICK_JOBS = 10_000, 500
REPEATS, QUICK_REPEATS = 5, 2
WAL_BYTES_A_JOB = 2_000  # put in, run and removed: 1,500 without full pages
EMBEDDED = "embedded"  # one is as another: each is new


def bench(
    jobs: Annotated[
        int | None,
        typer.Option(
            min=100,
            max=10_000_000,
            show_default=f"{JOBS:,}",
            help="Jobs that are drained in each round, and a tenth of them more.",
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            show_default=str(REPEATS),
            help="Rounds; each measures everything.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes and two rounds, for a look.")
    ] = False,
    against: Annotated[
        str,
        typer.Option(
            metavar="FILE|last|none",
            help="What to compare with: what --json wrote, or the last run of the same "
            "size on the same database.",
        ),
    ] = "last",
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all figures there."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the jobs there until the next run.")
    ] = False,
    in_production: InProduction = False,
    database_url: Url = None,
) -> None:
    """Measure pgwake on a database, and compare with the last time.

    Without a database it starts an embedded PostgreSQL. On one of yours it uses a queue
    of its own, and removes it and its jobs at the end.
    """
    settings = Settings.load(database_url=database_url)
    jobs = jobs or (QUICK_JOBS if quick else JOBS)
    size = Size(
        jobs=jobs,
        single_jobs=max(jobs // 10, CONNECTIONS),
        wake_ups=20 if quick else 120,
        rate=100,
        seconds=1 if quick else 3,
    )
    repeats = repeats or (QUICK_REPEATS if quick else REPEATS)
    if json_path is not None and (json_path.is_dir() or not json_path.parent.is_dir()):
        wrong_usage(f"--json {json_path}: it must name a file, in a folder that exists")
    try:
        given = None if against in ("last", "none") else history.one(Path(against))
    except InvalidArgumentError as error:
        wrong_usage(str(error))

    async def work() -> int:
        async with AsyncExitStack() as stack:
            record = await _measure(
                stack, settings, size, repeats, keep=keep, in_production=in_production
            )
            # Now, so that no fault of the removal loses it.
            last = last_run(record) if against == "last" else given
            _show(record, last, is_first=against == "last" and last is None)
            keep_run(record)
            if json_path is not None:
                try:
                    json_path.write_text(record.model_dump_json() + "\n")
                except OSError as error:
                    raise PgwakeError(f"--json {json_path}: {error.strerror}") from None
        return 0

    sys.exit(asyncio.run(until_signal(work(), lambda: note("stopped"))))


async def _measure(
    stack: AsyncExitStack,
    settings: Settings,
    size: Size,
    repeats: int,
    *,
    keep: bool,
    in_production: bool,
) -> Record:
    server = EmbeddedServer() if settings.database_url is None else None
    if server is not None:
        await stack.enter_async_context(started(server))
        url = SecretStr(server.url)
        settings = settings.model_copy(update={"database_url": url, "listen_url": url})
        await install(settings.dsn)
    connection = await stack.enter_async_context(
        scratch_queue(settings, QUEUE, KINDS, in_production=in_production, keep=keep)
    )
    version = await server_version(connection)
    place = (
        without_password(settings.dsn)
        if server is None
        else f"a PostgreSQL of its own in {server.directory}"
    )
    say(f"pgwake {__version__} on {place} (PostgreSQL {version})")
    _say_what_comes(size, repeats, keep=keep and server is None)
    figures = await _rounds(Rounds(settings, connection, size), repeats)
    identity = (await get_adoption(connection)).present_identity
    return Record(
        at=datetime.now(UTC),
        pgwake=__version__,
        server=version,
        database=EMBEDDED if server else identity,
        size=asdict(size),
        figures=figures,
    )


def _say_what_comes(size: Size, repeats: int, *, keep: bool) -> None:
    jobs = repeats * size.all_jobs
    say(
        f"{repeats} rounds of {size.all_jobs:,} jobs in queue {QUEUE}, from "
        f"{CONNECTIONS} connections to one worker process: about "
        f"{max(jobs * WAL_BYTES_A_JOB // 1_000_000, 1):,} MB of WAL. "
        f"{'The jobs stay until the next run' if keep else 'All goes at the end'}."
    )
    say(
        "The worker does the database's upkeep and fires its schedules, as each does. "
        "WAL and the server's CPU are the whole server's: other traffic counts, too."
    )


async def _rounds(rounds: Rounds, repeats: int) -> dict[str, tuple[float, ...]]:
    found: list[Figures] = []
    with Console(stderr=True).status("") as status:

        def tell(what: str) -> None:
            status.update(f"round {len(found) + 1} of {repeats}: {what}")

        while len(found) < repeats:
            found.append(await rounds.run(tell))
    names = [name for name in found[0] if all(name in one for one in found)]
    return {name: tuple(one[name] for one in found) for name in names}


def last_run(record: Record) -> Record | None:
    """Return the run to compare one with; say what is wrong with the history."""
    path = history.state_path()
    try:
        past = history.read(path)
    except OSError as error:
        note(f"{path} can't be read, so there is nothing to compare: {error.strerror}")
        return None
    if past.strange_lines:
        note(f"{path}: lines that are no runs are left out: {past.strange_lines}")
    return past.last(record.database, record.size)


def _show(record: Record, last: Record | None, *, is_first: bool) -> None:
    say("")
    console().print(table(record, last))
    if last is not None:
        say(
            f"\nlast: {cell(last.at)}, pgwake {last.pgwake}, PostgreSQL {last.server}. "
            "Marked is a change beyond the range of both runs."
        )
        if last.size != record.size:
            note("that run had another size: what depends on it can't be compared")
        if last.database != record.database:
            note("that run was on another database")
    elif is_first:
        say("\nthe first run of this size on this database: the next has it beside")


def keep_run(record: Record) -> None:
    """Add a run to the history; say why, if that can't be."""
    path = history.state_path()
    try:
        history.append(path, record)
    except (OSError, ConfigurationError) as error:
        reason = getattr(error, "strerror", None) or error
        note(f"the run is not kept in {path}: {reason}")
