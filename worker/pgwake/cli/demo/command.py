"""`pgwake demo`: real jobs on a real PostgreSQL, and a summary that checks itself."""

import asyncio
import json
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from statistics import median
from time import monotonic
from typing import Annotated, Any

import typer
from pydantic import SecretStr
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pgwake.cli.demo.jobs import stdlib_digests
from pgwake.cli.own_worker import WorkerChild, started, until_signal
from pgwake.cli.shared.output import Url
from pgwake.cli.shared.tables import printable
from pgwake.database.connection import FAULTS, Connection, connect
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.database.statements import demo
from pgwake.doctor.connect import without_password
from pgwake.settings import Settings

COMMAND = "run --import pgwake.cli.demo.jobs --queue demo:10 --processes 2"
FLAGS = "--http-port 0 --log-format human --grace 5"
PING_COUNT = 20
PING_PAUSE_SECONDS = 0.02  # in which the worker falls asleep again
PING_SECONDS = 60.0
RUN_SECONDS = 120.0
POLL_SECONDS = 0.1
WIDTH = 72

LOOK_AROUND = """\
select * from pgwake.get_queue_stats('demo');
select id, kind, errors from pgwake.jobs_failed where queue = 'demo';
select kind, status, attempt, crash_count, errors from pgwake.jobs
  where queue = 'demo' and kind not in ('demo_file', 'demo_ping');
select payload ->> 'path' as path, result from pgwake.jobs
  where queue = 'demo' and kind = 'demo_file'
  order by (result ->> 'lines')::int desc limit 5;"""
INSERT_HELLO = (
    "insert into pgwake.jobs (queue, kind, payload)"
    r""" values ('demo', 'hello', '{\"name\": \"you\"}')"""
)
IN_A_PROJECT = "In your project: pip install pgwake; then pgwake init on its database."
RETENTION = "The jobs stay in the database, by default for 7 days, dead letters for 90."


def command(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the database and the worker running.")
    ] = False,
    database_url: Url = None,
) -> None:
    """Watch real jobs being done, on a database of its own where none is given."""
    settings = Settings.load(database_url=database_url)
    sys.exit(run(settings, keep=keep, console=Console()))


def run(settings: Settings, *, keep: bool, console: Console) -> int:
    """Run the demo.

    Args:
        settings: Whose database is used; if they name none, the demo starts one.
        keep: Go on after the summary, until a signal.
        console: Where to show it.

    Returns:
        The exit code: 0 if all of the summary holds, 1 if not, 128 and the signal's
        number if it was stopped before.

    Raises:
        PgwakeError: The server or the worker did not start, or has ended.
        asyncpg.PostgresError: The database refused something.
        OSError: The database can't be reached.
    """
    show = Display(console)
    work = _run(settings, show, keep=keep)
    return asyncio.run(until_signal(work, lambda: show.title("Stopped.")))


class Display:
    """Writes to the console. Everything is data: no markup is read from it.

    Args:
        console: Where to write.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: str, style: str = "", indent: str = "  ") -> None:
        """Write a line, never wrapped: people copy from it."""
        self.console.print(Text(indent + printable(text), style), soft_wrap=True)

    def title(self, text: str) -> None:
        """Write a heading with room above it."""
        self.console.print()
        self.line(text, "bold")

    def fact(self, name: str, text: str) -> None:
        """Write a line about what is being done."""
        self.line(f"{name:<10}{text}")

    def code(self, text: str) -> None:
        """Write lines to copy."""
        self.console.print()
        for line in text.splitlines():
            self.line(line, "cyan", indent="    " if line else "")


def frame(counts: Mapping[str, int]) -> Padding:
    """Draw the counts, and how far the jobs are."""
    table = Table(box=None, width=WIDTH, header_style="dim", padding=0, pad_edge=False)
    for name in counts:
        table.add_column(name, justify="right", ratio=1)
    table.add_row(*(f"{count:,}" for count in counts.values()), style="bold")
    ended = counts["completed"] + counts["failed"] + counts["cancelled"]
    total = ended + counts["pending"] + counts["running"]
    return Padding(Group(table, ProgressBar(total, ended, width=WIDTH)), (1, 0, 1, 2))


async def _run(settings: Settings, show: Display, *, keep: bool) -> int:
    """Set the stage, play, and clear it."""
    server = EmbeddedServer() if settings.database_url is None else None
    async with AsyncExitStack() as stack:
        show.title("pgwake demo")
        if server is not None:
            place = f"PostgreSQL {server.version} of its own in {server.directory}"
            show.fact("database", place)
            await stack.enter_async_context(started(server))
            url = SecretStr(server.url)
            new = {"database_url": url, "listen_url": url}
            settings = settings.model_copy(update=new)
        await install(settings.dsn)
        connection = await connect(settings.dsn, "pgwake:demo", settings.query_timeout)
        stack.callback(connection.terminate)
        ids: list[int] = []
        if server is None:
            show.fact("database", f"as set: {without_password(settings.dsn)}")
            stack.push_async_callback(_leave, connection, ids, show)
        digests = await asyncio.to_thread(stdlib_digests)
        words = ("-m", "pgwake", *COMMAND.split(), *FLAGS.split())
        worker = stack.enter_context(WorkerChild(settings, words))
        show.fact("worker", f"pgwake {COMMAND}")

        await _wake_up(connection, ids, worker, show)
        all_hold = await _play(connection, ids, digests, worker, show)
        psql = psql_words(settings, server)
        if keep:
            await _keep(worker, psql, show)
        else:
            how = "To look around in psql, run pgwake demo --keep; then:"
            show.title(how if server else f"Look around with {psql}:")
            show.code(LOOK_AROUND)
        show.title(IN_A_PROJECT)
    return 0 if all_hold else 1


async def _wake_up(
    connection: Connection, ids: list[int], worker: WorkerChild, show: Display
) -> None:
    """Insert jobs that find the worker asleep, and show how soon they are begun."""
    took: list[float] = []

    async def has_run() -> bool:
        ms = await demo.ping_ms(connection, ids[-1])
        took.extend([] if ms is None else [ms])
        return ms is not None

    for _ in range(1 + PING_COUNT):
        ids.append(await demo.ping(connection, monotonic()))
        if not await worker.wait_until(has_run, PING_SECONDS, PING_PAUSE_SECONDS):
            raise worker.error(f"has not run a job within {PING_SECONDS:.0f} s")
        await asyncio.sleep(PING_PAUSE_SECONDS)
    show.fact(
        "wake-up",  # the first has waited for the worker's start
        f"{median(took[1:]):.1f} ms from INSERT to the handler's first line, "
        f"the median of {PING_COUNT}",
    )


async def _play(
    connection: Connection,
    ids: list[int],
    digests: Mapping[str, str],
    worker: WorkerChild,
    show: Display,
) -> bool:
    """Insert the jobs, show what becomes of them; whether all came as promised."""
    ids[:] = await demo.insert(connection, list(digests))
    special = len(ids) - len(digests)
    await demo.cancel(connection, ids[special - 1 : special])
    version = ".".join(platform.python_version_tuple()[:2])
    show.fact(
        "jobs",
        f"{len(digests):,} files of Python {version}'s library, "
        f"{special} that fail, crash or wait",
    )

    async def are_done() -> bool:
        counts = await demo.counts(connection, ids)
        live.update(frame(counts), refresh=True)
        return counts["pending"] == counts["running"] == 0

    with Live(console=show.console, auto_refresh=False, transient=True) as live:
        await worker.wait_until(are_done, RUN_SECONDS, POLL_SECONDS)
    last = await demo.counts(connection, ids)
    del last["jobs/s"]  # of the last second: no figure of the run
    show.console.print(frame(last))
    all_hold = True
    outcomes = await demo.outcomes(connection, ids)
    for name, holds, finding in _checks(outcomes, list(digests.values())):
        style = "green" if holds else "bold red"
        show.line(f"{'ok' if holds else 'FAILED':<8}{name:<10}{finding}", style)
        all_hold = all_hold and holds
    if not all_hold:
        show.title("The worker's log ends with:")
        show.code("\n".join(worker.log_tail()))
    return all_hold


def _checks(
    outcomes: Sequence[Mapping[str, Any]], digests: Sequence[str]
) -> Iterator[tuple[str, bool, str]]:
    """Yield each thing that the demo promises: whether it holds, what was found."""
    flaky, doomed, killer, delayed, cancelled, *files = outcomes
    done = [job for job in files if job["status"] == "completed"]
    crashed = sum(job["crashes"] > 0 for job in files)
    seconds = max((job["seconds"] for job in done), default=0)
    told = f"{len(done):,} of {len(digests):,} completed in {seconds:.1f} s, {crashed} "
    yield "files", len(done) == len(digests) > 0, f"{told}of them given back by a crash"
    results = [json.loads(job["result"]) for job in files]
    equal = sum(
        one.get("sha256") == digest
        for one, digest in zip(results, digests, strict=True)
    )
    told = f"{equal:,} hold the sha256 that the demo has computed itself"
    yield "results", equal == len(digests), told
    for name, job, state, also, told in (
        ("flaky", flaky, "completed at attempt 3", True, "{failures} had failed"),
        (
            *("doomed", doomed, "failed at attempt 3", doomed["failures"] == 3),
            "a dead letter with its {failures} errors",
        ),
        (
            *("killer", killer, "completed at attempt 1", killer["crashes"] == 1),
            "killed its process, was begun again {late_ms} ms after",
        ),
        (
            *("delayed", delayed, "completed at attempt 1", delayed["late_ms"] >= 0),
            "due after 3 s, started {late_ms} ms later",
        ),
        ("cancelled", cancelled, "cancelled at attempt 0", True, "before it was due"),
    ):
        found = "{status} at attempt {attempt}".format_map(job)
        yield name, found == state and also, f"{found}: {told.format_map(job)}"


def psql_words(settings: Settings, server: EmbeddedServer | None) -> str:
    """Return the shell's words that open psql on the demo's database.

    A database that was given is named by its variable, so that no password is shown.
    """
    if server is not None:
        own = shutil.which("psql", path=server.binaries)
        return shlex.join(
            ["psql" if shutil.which("psql") else own or "psql", server.url]
        )
    for name in ("PGWAKE_DATABASE_URL", "DATABASE_URL"):
        if os.environ.get(name) == settings.dsn:
            return f'psql "${name}"'
    return shlex.join(["psql", without_password(settings.dsn)])


async def _keep(worker: WorkerChild, psql: str, show: Display) -> None:
    """Show how to look around and what the worker logs, until a signal."""
    show.title("Look around:")
    show.code(f"{psql}\n\n{LOOK_AROUND}")
    show.title("Insert a job of your own:")
    show.code(f'{psql} -c "{INSERT_HELLO}"')
    show.title("The worker logs what it does with it below. Ctrl-C stops the demo.")
    with worker.log_path.open(errors="replace") as log:
        log.seek(0, 2)

        async def follow() -> bool:
            for line in log:
                show.line(line.rstrip("\n"))
            return False

        with suppress(asyncio.CancelledError):  # the signal that it waits for
            await worker.wait_until(follow, float("inf"), POLL_SECONDS)


async def _leave(connection: Connection, ids: Sequence[int], show: Display) -> None:
    """Cancel what is left after an early end: nobody would run it any more."""
    with suppress(*FAULTS):
        if cancelled := await demo.cancel(connection, ids):
            show.title(f"{cancelled:,} jobs had not run and are cancelled.")
    show.title(RETENTION)
