"""What the commands share: options, questions to the database, tables, answers."""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar, cast

import asyncpg
import typer
from rich.console import Console

from pgwake.cli.shared.options import job_id, setting
from pgwake.cli.shared.tables import Row, json_cell, printable, progress_cell, table
from pgwake.database.connection import LOST, Connection, connect
from pgwake.errors import (
    DOCTOR_HINT,
    EXIT_CONFIG,
    EXIT_USAGE,
    ROLES_HINT,
    ConfigurationError,
    InvalidValueError,
    PgwakeError,
)
from pgwake.jsontext import JsonText, dumps
from pgwake.produce.options import Options
from pgwake.settings import Settings

_ARGUMENT = re.compile(r"invalid input for query argument \$\d+: (.*) \((.*)\)")

T = TypeVar("T")

KEEP = object()  # what is not to be changed

# Columns of jobs that a narrow terminal does without, the least needed first.
SPARE_OF_JOBS = (
    "priority",
    "created_at",
    "claimed_by",
    "crash_count",
    "run_at",
    "started_at",
    "metadata",
    "concurrency_key",
    "finished_at",
)

Url = Annotated[str | None, setting("database_url", "--database-url", metavar="URL")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
InProduction = Annotated[
    bool,
    typer.Option("--in-production", help="Even where the environment is production."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", show_default=False, help="Its name.")
]
JobId = Annotated[
    int, typer.Argument(metavar="ID", parser=job_id, help="The job's id.")
]
Before = Annotated[
    int | None,
    typer.Option(
        "--before", metavar="ID", parser=job_id, help="Only older jobs than this one."
    ),
]
Queue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Only of this queue.")
]
ConcurrencyKey = Annotated[
    str | None, typer.Option(metavar="KEY", help="Only with this concurrency key.")
]
UniqueKey = Annotated[
    str | None, typer.Option(metavar="KEY", help="Only with this unique key.")
]
Kind = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Only of this kind.")
]


def ask(
    database_url: str | None,
    question: Callable[[Connection], Awaitable[T]],
    *,
    writes: bool = True,
) -> T:
    """Ask on a connection of its own."""
    settings = Settings.load(database_url=database_url)

    async def asking() -> T:
        connection = await connect(
            settings.dsn, "pgwake:cli", settings.query_timeout, writes=writes
        )
        try:
            return await question(connection)
        finally:
            connection.terminate()

    return asyncio.run(asking())


def read(database_url: str | None, question: Callable[[Connection], Awaitable[T]]) -> T:
    """Ask what changes nothing: of several hosts any will do, a standby too."""
    return ask(database_url, question, writes=False)


def console() -> Console:
    """Return standard output: a pipe has lines as long as they are."""
    return Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)


def show(
    rows: Iterable[Row],
    *,
    as_json: bool,
    spare: Sequence[str] = (),
    cut: str | None = None,
) -> None:
    """Print rows as a table with their own columns, or as a list of objects.

    Args:
        rows: The rows. All have the same names.
        as_json: Whether it is a list of objects.
        spare: As Wide has it.
        cut: As Wide has it.
    """
    rows = list(rows)
    if as_json:
        print_json([plain(row) for row in rows])
    elif rows:
        console().print(table(rows, spare=spare, cut=cut))


def show_jobs(rows: Iterable[Row], *, as_json: bool) -> None:
    """Print jobs as show() does; in a table, what is JSON is a bar or cut short."""
    if not as_json:
        rows = [
            {
                **row,
                "progress": progress_cell(row["progress"]),
                "metadata": json_cell(row["metadata"]),
            }
            for row in rows
        ]
    show(rows, as_json=as_json, spare=SPARE_OF_JOBS, cut="progress")


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    typer.echo(_escaped(_json(value)))


def _json(value: Any) -> str:
    match value:
        case JsonText():
            return value
        case dict():
            fields = (f"{dumps(name)}:{_json(item)}" for name, item in value.items())
            return f"{{{','.join(fields)}}}"
        case list():
            return f"[{','.join(map(_json, value))}]"
        case _:
            return dumps(value)


def print_json_text(text: str, *, for_people: bool) -> None:
    """Print a JSON text as it is, or in lines and colours, if Python reads it."""
    if for_people:
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    text = _escaped(text)
    if not (for_people and sys.stdout.isatty()):
        typer.echo(text)
        return
    from rich.highlighter import RegexHighlighter  # noqa: PLC0415, this needs it alone

    class Colours(RegexHighlighter):
        """Rich's own take quadratic time for some long texts of digits."""

        base_style = "json."
        highlights: ClassVar = [
            (
                r'(?P<key>"(?:[^"\\]++|\\.)*+")(?=:)|(?P<str>"(?:[^"\\]++|\\.)*+")'
                r"|(?P<number>-?[0-9]++(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)"
                r"|(?P<bool_true>true)|(?P<bool_false>false)|(?P<null>null)"
                r"|(?P<brace>[\[{}\]])"
            )
        ]

    Console(soft_wrap=True).print(Colours()(text))


def _escaped(text: str) -> str:
    """Return JSON text in which nothing drives a terminal: only strings could."""
    return "".join(
        c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text
    )


def json_value(what: str, text: str) -> Any:
    """Read any JSON.

    Raises:
        InvalidValueError: It is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(
            f'{what} is not JSON, such as {{"to": 1}}: {error}'
        ) from None


def json_object(what: str, text: str) -> str:
    """Read a JSON object; the same as JSON text that PostgreSQL takes.

    Raises:
        InvalidValueError: It is none.
    """
    value = json_value(what, text)
    if not isinstance(value, dict):
        raise InvalidValueError(f'{what} must be a JSON object, such as {{"to": 1}}')
    return dumps(value)


def json_fields(what: str, text: str) -> dict[str, Any]:
    """Read a JSON object as json_object does; its fields."""
    found: dict[str, Any] = json.loads(json_object(what, text))
    return found


def say(text: str) -> None:
    """Print a line for people, as it is but for control characters."""
    typer.echo("\n".join(map(printable, text.split("\n"))))


def note(text: str) -> None:
    """Say something beside the answer, on standard error."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=True)


def plain(row: Row) -> Row:
    """Return a row for JSON: intervals in seconds."""
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in row.items()
    }


def instant(option: str, text: str | None) -> datetime | None:
    """Read a time with an offset.

    Raises:
        InvalidValueError: It is none.
    """
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidValueError(
            f"{option}: {error}; use a time such as 2027-01-31T08:00:00Z"
        ) from None
    if found.tzinfo is None:
        raise InvalidValueError(f"{option} {text}: add an offset, such as {text}Z")
    return found


def duration(option: str, seconds: float | None) -> timedelta | None:
    """Read a number of seconds.

    Raises:
        InvalidValueError: It is out of range.
    """
    if seconds is None:
        return None
    try:
        return timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        raise InvalidValueError(f"{option} {seconds}: use seconds, 0 to 3e9") from None


def number_or_none(option: str, text: str | None, kind: type[int | float] = int) -> Any:
    """Read a number, or none; KEEP where it is not given."""
    if text is None:
        return KEEP
    if text == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        wrong_usage(f"{option} {text}: use a number, or none.")


def job_options(given: dict[str, Any]) -> Options:
    """Return options of a job as Python has them; what is not given is left out.

    Raises:
        InvalidValueError: One can't be meant.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for name in ("run_at", "expires_at", "unique_until"):
        if name in found:
            option = "--" + name.replace("_", "-")
            found[name] = instant(option, found[name])
    if "delay" in found:
        found["delay"] = duration("--delay", found["delay"])
    if "metadata" in found:
        found["metadata"] = json_fields("--metadata", found["metadata"])
    return cast("Options", found)


def confirm(text: str, *, yes: bool) -> None:
    """Have a person say yes to what can't be taken back; end the command if not.

    Without a terminal there is nobody to ask: that is wrong usage without --yes.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        wrong_usage(f"{text} Add --yes to do it, or --dry-run to see what it would do.")
    if not typer.confirm(printable(text) + " Go on?", err=True):
        raise typer.Exit(1)


def has_bar(*, quiet: bool) -> bool:
    """Whether somebody can see a bar: at a terminal, and not with --json."""
    return not quiet and sys.stdout.isatty() and sys.stderr.isatty()


@contextmanager
def bar(what: str, total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show how far a command is, on standard error, while it lasts.

    Yields:
        What to call with how many more are done.
    """
    if not has_bar(quiet=quiet):
        yield lambda _: None
        return
    from rich.progress import (  # noqa: PLC0415, as above, and it is dear
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


def wrong_usage(text: str) -> NoReturn:
    """End the command: it can't be meant like that."""
    fail(text, EXIT_USAGE)


def describe(error: asyncpg.PostgresError) -> str:
    """Return what the database refused, with its code, and what it advises to do."""
    advice = getattr(error, "hint", None)
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        advice = advice or ROLES_HINT
    is_missing = error.sqlstate in ("3F000", "42P01", "42883")
    if is_missing and "pgwake" in str(error.message):
        advice = "Run `pgwake init` on this database, with this version of pgwake."
    if error.sqlstate in ("28000", "28P01", "3D000"):  # login, password, database
        advice = advice or DOCTOR_HINT
    hint = f"\n{advice}" if advice else ""
    rule = _rule(error)
    if rule is not None:
        return f"that goes against the rule that {rule} ({error.sqlstate}){hint}"
    # No message of the server's: the driver has refused an argument.
    told = str(error.message or _ARGUMENT.sub(r"\1: \2", str(error)))
    return f"{told} ({error.sqlstate}){hint}"


def _rule(error: asyncpg.PostgresError) -> str | None:
    """Return what a check of pgwake's says: its constraint is named by a sentence."""
    name: str | None = getattr(error, "constraint_name", None)
    if not isinstance(error, asyncpg.CheckViolationError) or not name:
        return None
    if error.schema_name != "pgwake":
        return None
    for prefix in (error.table_name, "jobs"):
        name = name.removeprefix(f"{prefix}_")
    return name.replace("_", " ")


def fail_for(error: Exception) -> NoReturn:
    """End the command for an error; one that nobody has foreseen is raised."""
    if isinstance(error, ConfigurationError):
        fail(str(error), EXIT_CONFIG)
    if isinstance(error, PgwakeError):
        fail(str(error), 1)
    if isinstance(error, asyncpg.PostgresError):
        fail(describe(error), 1)
    if isinstance(error, LOST):
        reason = str(error) or type(error).__name__
        fail(f"the database can't be reached: {reason}. {DOCTOR_HINT}", 1)
    raise error


def fail(message: str, code: int) -> NoReturn:
    """End the command with a message."""
    Console(stderr=True, soft_wrap=True).print(
        "pgwake: " + "\n".join(map(printable, message.split("\n"))),
        style="red",
        markup=False,
        highlight=False,
    )
    sys.exit(code)
