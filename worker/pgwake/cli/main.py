"""The command line: pgwake init, run, demo, version, and those about jobs and queues.

Exit codes: 0 done, 1 failed, or for a part of what was named (the message says why),
2 wrong usage, 75 a drain or a wait that was not over in time, 78 wrong settings; those
of doctor are its own.
"""

import asyncio
import json
import sys
from typing import Annotated

import asyncpg
import typer
from rich.console import Console

from pgwake import names
from pgwake.cli import adopt, bulk, doctor, jobs, queues, schedules, serve, wait
from pgwake.cli.bench import command as bench
from pgwake.cli.output import Json, Url, describe, fail
from pgwake.database import install
from pgwake.database import statements as queue
from pgwake.database.connection import LOST
from pgwake.errors import EXIT_CONFIG, ConfigurationError, PgwakeError
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.supervise.supervisor import Supervisor
from pgwake.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A job queue in PostgreSQL. Settings come from flags, PGWAKE_* variables "
    "and .env.",
)

Seconds = Annotated[float | None, typer.Option(metavar="SECONDS")]


def main() -> None:
    """Run the command line; errors become one line and an exit code."""
    try:
        app()
    except ConfigurationError as error:
        fail(str(error), EXIT_CONFIG)
    except PgwakeError as error:
        fail(str(error), 1)
    except asyncpg.PostgresError as error:
        fail(describe(error), 1)
    except LOST as error:
        reason = str(error) or type(error).__name__
        fail(f"the database can't be reached: {reason}", 1)


@app.command()
def init(
    roles: Annotated[
        bool,
        typer.Option(
            "--roles", help="Make pgwake_producer, pgwake_worker and pgwake_admin."
        ),
    ] = False,
    environment: adopt.Environment = None,
    database_url: Url = None,
) -> None:
    """Install the schema, or bring it up to date. Safe to run again, at any time."""
    settings = Settings.load(database_url=database_url, environment=environment)
    before, after = asyncio.run(install.install(settings.dsn, roles=roles))
    print(f"pgwake schema {after} is installed{_told(before, after)}")
    adopt.note_environment(settings)


def _told(before: int | None, after: int) -> str:
    if before is None:
        return ""
    if before == after:
        return ", as before"
    done = ", ".join(map(str, range(before + 1, after + 1)))
    return f": it was {before}, migrated by {done}"


@app.command()
def run(
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="Module with handlers; may be repeated."),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", help="Queue to work on, with its slots (emails:20); repeatable."
        ),
    ] = None,
    http_handlers: Annotated[
        list[str] | None,
        typer.Option(
            "--http",
            metavar="KIND=URL",
            help="Kind whose jobs are posted to a URL; may be repeated.",
        ),
    ] = None,
    exec_handlers: Annotated[
        list[str] | None,
        typer.Option(
            "--exec",
            metavar="KIND=COMMAND",
            help="Kind whose jobs a command does; may be repeated.",
        ),
    ] = None,
    webhooks: Annotated[
        bool | None, typer.Option("--webhooks", help="Deliver webhooks.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
    poll_interval: Seconds = None,
    lease: Seconds = None,
    grace: Seconds = None,
    http_port: Annotated[int | None, typer.Option(help="0: no HTTP.")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, human or json.")] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.")
    ] = None,
    database_url: Url = None,
) -> None:
    """Run jobs, until SIGTERM or Ctrl-C: then running jobs may end within the grace."""
    settings = Settings.load(
        imports=tuple(imports) if imports else None,
        queues=tuple(queues) if queues else None,
        http_handlers=http_handlers or None,
        exec_handlers=exec_handlers or None,
        webhooks=webhooks,
        processes=processes,
        poll_interval=poll_interval,
        lease=lease,
        grace=grace,
        http_port=http_port,
        log_format=log_format,
        log_level=log_level,
        database_url=database_url,
    )
    if not (settings.imports or settings.names_handlers):
        raise ConfigurationError(
            "no handlers: name the modules that have them (--import MODULE, or "
            "PGWAKE_IMPORTS), or kinds with --http or --exec"
        )
    logs.configure(settings, worker=f"supervisor:{names.new_worker_name()}")
    sys.exit(asyncio.run(Supervisor(settings).run()))


app.command()(adopt.adopt)
app.command()(serve.serve)
app.command()(bench.bench)


@app.command()
def demo(
    keep: Annotated[
        bool, typer.Option(help="Leave the database and the worker running.")
    ] = False,
    database_url: Url = None,
) -> None:
    """Watch real jobs being done, on a database of its own where none is given."""
    settings = Settings.load(database_url=database_url)
    # Here, since no other command needs what the demo imports.
    from pgwake.cli.demo import command as demonstration  # noqa: PLC0415

    sys.exit(demonstration.run(settings, keep=keep, console=Console()))


@app.command()
def version(as_json: Json = False) -> None:
    """Show the versions of pgwake and of the schema it needs."""
    if as_json:
        print(json.dumps({"pgwake": __version__, "schema": queue.SCHEMA_VERSION}))
    else:
        print(f"pgwake {__version__}, schema {queue.SCHEMA_VERSION}")


JOBS, QUEUES = "Jobs", "Queues and workers"
for _command, _name, _panel in (
    (jobs.enqueue, "enqueue", JOBS),
    (jobs.list_jobs, "list", JOBS),
    (jobs.show_job, "show", JOBS),
    (jobs.explain, "explain", JOBS),
    (wait.wait, "wait", JOBS),
    (jobs.peek, "peek", JOBS),
    (bulk.failed, "failed", JOBS),
    (bulk.retry, "retry", JOBS),
    (bulk.cancel, "cancel", JOBS),
    (bulk.purge, "purge", JOBS),
    (queues.stats, "stats", QUEUES),
    (queues.queues, "queues", QUEUES),
    (queues.pause, "pause", QUEUES),
    (queues.resume, "resume", QUEUES),
    (queues.drain, "drain", QUEUES),
    (queues.limit, "limit", QUEUES),
    (queues.workers, "workers", QUEUES),
    (queues.kinds, "kinds", QUEUES),
    (doctor.doctor, "doctor", QUEUES),
):
    app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(schedules.app, name="schedule", rich_help_panel=JOBS)
