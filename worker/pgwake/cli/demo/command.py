"""`pgwake demo`: real jobs on a real PostgreSQL, and a summary that checks itself."""

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial

from pydantic import SecretStr
from rich.console import Console

from pgwake.cli.demo.display import Display
from pgwake.cli.demo.run import DemoRun, stdlib_digests
from pgwake.cli.demo.stage import (
    COMMAND,
    FLAGS,
    WorkerChild,
    psql_words,
    started,
    until_signal,
)
from pgwake.database.connection import FAULTS, connect
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.doctor.connect import without_password
from pgwake.settings import Settings

PING_COUNT = 20
PING_PAUSE_SECONDS = 0.02  # in which the worker falls asleep again
PING_SECONDS = 60.0
RUN_SECONDS = 120.0
POLL_SECONDS = 0.1

LOOK_AROUND = """\
select * from pgwake.get_queue_stats('demo');
select id, kind, errors from pgwake.jobs_failed where queue = 'demo';
select kind, status, attempt, crash_count, errors from pgwake.jobs
  where queue = 'demo' and kind not in ('demo_file', 'demo_ping');
select payload ->> 'path' as path, result from pgwake.jobs
  where queue = 'demo' and kind = 'demo_file'
  order by (result ->> 'functions')::int desc nulls last limit 5;"""
INSERT_HELLO = (
    "insert into pgwake.jobs (queue, kind, payload)"
    r""" values ('demo', 'hello', '{\"name\": \"you\"}')"""
)
RETENTION = "The jobs stay in the database, by default for 7 days, dead letters for 90."


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
    display = Display(console)
    return asyncio.run(
        until_signal(
            _run(settings, display, keep=keep), lambda: display.title("Stopped.")
        )
    )


async def _run(settings: Settings, display: Display, *, keep: bool) -> int:
    """Set the stage, play, and clear it."""
    server = EmbeddedServer() if settings.database_url is None else None
    async with AsyncExitStack() as stack:
        display.title("pgwake demo")
        if server is not None:
            place = f"PostgreSQL {server.version} of its own in {server.directory}"
            display.fact("database", place)
            await stack.enter_async_context(started(server))
            url = SecretStr(server.url)
            settings = settings.model_copy(
                update={"database_url": url, "listen_url": url}
            )
        psql = psql_words(settings, server)
        await install(settings.dsn)
        connection = await connect(settings.dsn, "pgwake:demo", settings.query_timeout)
        stack.callback(connection.terminate)
        if server is None:
            display.fact("database", f"as set: {without_password(settings.dsn)}")
        jobs = DemoRun(connection, await asyncio.to_thread(stdlib_digests))
        if server is None:
            stack.push_async_callback(_leave, jobs, display)
        worker = stack.enter_context(
            WorkerChild(settings, ("-m", "pgwake", *COMMAND, *FLAGS))
        )
        display.fact("worker", f"pgwake {' '.join(COMMAND)}")

        all_hold = await _play(jobs, worker, display)
        if keep:
            await _keep(worker, psql, display)
        else:
            _say_how_to_look(psql, display, is_given=server is None)
    return 0 if all_hold else 1


async def _play(jobs: DemoRun, worker: WorkerChild, display: Display) -> bool:
    """Insert the jobs, show what becomes of them; whether all came as promised."""
    for _ in range(1 + PING_COUNT):
        is_completed = partial(jobs.is_completed, await jobs.ping())
        if not await worker.wait_until(is_completed, PING_SECONDS, PING_PAUSE_SECONDS):
            raise worker.error(f"has not run a job within {PING_SECONDS:.0f} s")
        await asyncio.sleep(PING_PAUSE_SECONDS)
    wake_up_ms = await jobs.wake_up_ms()
    display.fact(
        "wake-up",
        f"{wake_up_ms:.1f} ms from INSERT to the handler's first line, "
        f"the median of {PING_COUNT}",
    )
    display.fact("jobs", jobs.description)
    await jobs.enqueue()
    with display.live(wake_up_ms) as show:

        async def is_done() -> bool:
            counts = await jobs.counts()
            show(counts)
            return counts.ended == counts.total

        await worker.wait_until(is_done, RUN_SECONDS, POLL_SECONDS)
    checks = await jobs.checks()
    display.summary(await jobs.files(), checks)
    if all(check.holds for check in checks):
        return True
    display.title("The worker's log ends with:")
    display.code(*worker.log_tail())
    return False


def _say_how_to_look(psql: str, display: Display, *, is_given: bool) -> None:
    if is_given:
        display.title(f"Look around with {psql}:")
    else:
        display.title("To look around in psql, run pgwake demo --keep; then:")
    display.code(*LOOK_AROUND.splitlines())


async def _keep(worker: WorkerChild, psql: str, display: Display) -> None:
    """Show how to look around and what the worker logs, until a signal."""
    display.title("Look around:")
    display.code(psql, "", *LOOK_AROUND.splitlines())
    display.title("Insert a job of your own:")
    display.code(f'{psql} -c "{INSERT_HELLO}"')
    display.title("The worker logs what it does with it below. Ctrl-C stops the demo.")
    with worker.log_path.open(errors="replace") as log:
        log.seek(0, 2)

        async def follow() -> bool:
            for line in log:
                display.line(line.rstrip("\n"))
            return False

        with suppress(asyncio.CancelledError):  # the signal that it waits for
            await worker.wait_until(follow, float("inf"), POLL_SECONDS)


async def _leave(jobs: DemoRun, display: Display) -> None:
    """Cancel what is left after an early end: nobody would run it any more."""
    with suppress(*FAULTS):
        if cancelled := await jobs.cancel_rest():
            display.title(f"{cancelled:,} jobs had not run and are cancelled.")
    display.title(RETENTION)
