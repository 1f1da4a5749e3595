"""The command line: pgwake init, run, enqueue, stats, show, demo, version.

Exit codes: 0 done, 1 failed (the message says why), 2 wrong usage, 78 wrong settings.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, NoReturn, TypeVar

import asyncpg
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from pgwake import install, logs, names, queue
from pgwake.connection import Connection, connect
from pgwake.errors import (
    EXIT_CONFIG,
    ConfigurationError,
    InvalidValueError,
    PgwakeError,
)
from pgwake.jsontext import dumps
from pgwake.settings import Settings
from pgwake.supervisor import Supervisor
from pgwake.version import __version__

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A job queue in PostgreSQL. Settings come from flags, PGWAKE_* variables "
    "and .env.",
)

Url = Annotated[
    str | None,
    typer.Option("--database-url", help="The database; default $PGWAKE_DATABASE_URL."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Seconds = Annotated[float | None, typer.Option(metavar="SECONDS")]


def main() -> None:
    """Run the command line; errors become one line and an exit code."""
    try:
        app()
    except ConfigurationError as error:
        _fail(str(error), EXIT_CONFIG)
    except PgwakeError as error:
        _fail(str(error), 1)
    except asyncpg.PostgresError as error:
        hint = f"\n{error.hint}" if getattr(error, "hint", None) else ""
        # No message of the server's: the driver has refused an argument.
        _fail(f"{error.message or error} ({error.sqlstate}){hint}", 1)
    except (OSError, TimeoutError, asyncpg.InterfaceError) as error:
        reason = str(error) or type(error).__name__
        _fail(f"the database can't be reached: {reason}", 1)


@app.command()
def init(database_url: Url = None) -> None:
    """Install the schema, or bring it up to date. Safe to run again, at any time."""
    settings = Settings.load(database_url=database_url)
    before, after = asyncio.run(install.install(settings.dsn))
    done = "is installed" if before is None else f"was at {before}, and is installed"
    print(f"pgwake schema {after} {done}")


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
        processes=processes,
        poll_interval=poll_interval,
        lease=lease,
        grace=grace,
        http_port=http_port,
        log_format=log_format,
        log_level=log_level,
        database_url=database_url,
    )
    if not settings.imports:
        raise ConfigurationError(
            "no handlers: name the modules that have them (--import MODULE, or "
            "PGWAKE_IMPORTS)"
        )
    logs.configure(settings, worker=f"supervisor:{names.new_worker_name()}")
    sys.exit(asyncio.run(Supervisor(settings).run()))


@app.command()
def enqueue(
    kind: str,
    payload: Annotated[
        str, typer.Argument(help="A JSON object, or - to read it from standard input.")
    ] = "{}",
    queue_name: Annotated[str, typer.Option("--queue")] = "default",
    priority: Annotated[
        int, typer.Option(min=-100, max=100, help="-100 to 100; higher first.")
    ] = 0,
    delay: Annotated[float | None, typer.Option(help="Seconds from now.")] = None,
    run_at: Annotated[
        str | None, typer.Option(help="ISO 8601 with an offset: 2027-01-31T08:00+01:00")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(min=1, max=10_000)] = None,
    unique_key: Annotated[
        str | None, typer.Option(help="Unique with the kind among live jobs.")
    ] = None,
    on_conflict: Annotated[
        str, typer.Option(help="return, replace or raise.")
    ] = "return",
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Add a job; print its id, or that of the live one with the same unique key."""
    settings = Settings.load(database_url=database_url)
    text = sys.stdin.read() if payload == "-" else payload

    async def add(connection: Connection) -> int:
        return await queue.enqueue(
            connection,
            kind,
            _payload(text),
            queue=queue_name,
            priority=priority,
            run_at=_instant(run_at),
            delay=_delay(delay),
            max_attempts=max_attempts,
            unique_key=unique_key,
            on_conflict=on_conflict,
        )

    job_id = _ask(settings, add)
    print(json.dumps({"id": job_id}) if as_json else job_id)


@app.command()
def stats(
    queue_name: Annotated[str | None, typer.Argument(metavar="[QUEUE]")] = None,
    watch: Annotated[bool, typer.Option(help="Refresh each second.")] = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show what stands in the queues, and what has gone through them."""
    settings = Settings.load(database_url=database_url)

    async def look(connection: Connection) -> list[dict[str, Any]]:
        return await queue.get_queue_stats(connection, queue_name)

    async def keep_looking(connection: Connection) -> None:
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                live.update(_stats_table(await look(connection)), refresh=True)
                await asyncio.sleep(1)

    if watch:
        try:
            _ask(settings, keep_looking)
        except KeyboardInterrupt:
            return
    rows = _ask(settings, look)
    if as_json:
        print(dumps([_plain(row) for row in rows]))
    else:
        Console().print(_stats_table(rows))


@app.command()
def show(job_id: int, as_json: Json = False, database_url: Url = None) -> None:
    """Show one job, wherever it lies."""
    settings = Settings.load(database_url=database_url)
    text = _ask(settings, lambda connection: queue.get_job(connection, job_id))
    if as_json:
        print(text)
    else:
        Console().print_json(text)


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
    from pgwake import demo as demonstration  # noqa: PLC0415

    sys.exit(demonstration.run(settings, keep=keep, console=Console()))


@app.command()
def version(as_json: Json = False) -> None:
    """Show the versions of pgwake and of the schema it needs."""
    if as_json:
        print(json.dumps({"pgwake": __version__, "schema": queue.SCHEMA_VERSION}))
    else:
        print(f"pgwake {__version__}, schema {queue.SCHEMA_VERSION}")


def _ask(settings: Settings, question: Callable[[Connection], Awaitable[T]]) -> T:
    """Ask one question on a connection of its own."""

    async def ask() -> T:
        connection = await connect(settings.dsn, "pgwake:cli", settings.query_timeout)
        try:
            return await question(connection)
        finally:
            connection.terminate()

    return asyncio.run(ask())


def _payload(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidValueError(f"the payload is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidValueError('the payload must be a JSON object, such as {"to": 1}')
    return dumps(value)


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidValueError(f"--run-at: {error}") from None
    if instant.tzinfo is None:
        raise InvalidValueError(f"--run-at {text}: add an offset, such as {text}Z")
    return instant


def _delay(seconds: float | None) -> timedelta | None:
    if seconds is None:
        return None
    try:
        return timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        raise InvalidValueError(f"--delay {seconds}: use seconds, 0 to 3e9") from None


def _stats_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("queue")
    for name in ("pending", "scheduled", "waiting", "running", "failed", "completed"):
        table.add_column(name, justify="right")
    for name in ("oldest", "queued ms", "run ms"):
        table.add_column(name, justify="right")
    for row in rows:
        age = row["oldest_pending_age"]
        table.add_row(
            _literal(row["queue"]),
            *(
                f"{row[f'{name}_count']:,}"
                for name in ("pending", "scheduled", "waiting", "running", "failed")
            ),
            f"{row['completed_total']:,}",
            "-" if age is None else f"{age.total_seconds():,.1f} s",
            _milliseconds(row["avg_queue_time_ms"]),
            _milliseconds(row["avg_execution_time_ms"]),
        )
    return table


def _literal(text: str) -> str:
    """A name as it is, without its control characters and without Rich's markup."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return plain.replace("[", "\\[")


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in row.items()
    }


def _fail(message: str, code: int) -> NoReturn:
    Console(stderr=True, soft_wrap=True).print(
        f"pgwake: {message}", style="red", markup=False, highlight=False
    )
    sys.exit(code)
