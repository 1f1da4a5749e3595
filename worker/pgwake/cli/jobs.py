"""The commands that add and show jobs: enqueue, emit, list, show, explain, peek."""

import json
import sys
from enum import StrEnum
from time import monotonic
from typing import Annotated, Any

import typer

from pgwake.cli.shared.options import takes_job_options
from pgwake.cli.shared.output import (
    Before,
    ConcurrencyKey,
    JobId,
    Json,
    Kind,
    Queue,
    UniqueKey,
    Url,
    ask,
    job_options,
    json_fields,
    json_object,
    json_value,
    note,
    print_json,
    print_json_text,
    read,
    say,
    show,
    show_jobs,
)
from pgwake.cli.shared.tables import Row
from pgwake.database.connection import Connection
from pgwake.database.statements import produce, stats
from pgwake.database.statements.claim import next_run_at
from pgwake.database.statements.operate import explain_job, peek_jobs
from pgwake.database.statements.stats import get_job
from pgwake.errors import InvalidValueError
from pgwake.jsontext import dumps
from pgwake.produce.new_job import NewJob
from pgwake.produce.options import OPTIONS
from pgwake.produce.queue import added

TELL_SECONDS = 1.0  # between notes of how far a list has come


class Status(StrEnum):
    """All states of jobs."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@takes_job_options(*OPTIONS)
def enqueue(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Which handler runs it.")],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="PAYLOAD",
            help="A JSON object, or - to read it from standard input.",
        ),
    ] = "{}",
    *,
    as_json: Json = False,
    database_url: Url = None,
    **options: Any,
) -> None:
    """Add a job; print its id, or that of the live one with the same unique key."""
    text = sys.stdin.read() if payload == "-" else payload
    fields = json_fields("the payload", text)
    job = NewJob(kind, fields, **job_options(options))
    job_id = ask(database_url, lambda c: produce.answer(c, added(job)))
    typer.echo(json.dumps({"id": job_id}) if as_json else job_id)


def emit(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The event: order:42:approved.")
    ],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="PAYLOAD", help="Any JSON, or - to read it from standard input."
        ),
    ] = "null",
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Emit an event, for the jobs that wait for it or will.

    The first of a name counts: another one changes nothing, and says so.
    """
    text = sys.stdin.read() if payload == "-" else payload
    try:
        event = {"name": name, "payload": json_value("the payload", text)}
    except InvalidValueError as error:
        raise typer.BadParameter(str(error)) from None
    question = produce.emit_event(dumps(event))
    is_first = ask(database_url, lambda c: produce.answer(c, question))
    if as_json:
        print_json({"name": name, "is_first": is_first})
    else:
        say("emitted" if is_first else "emitted before: that one counts")


def show_job(job_id: JobId, as_json: Json = False, database_url: Url = None) -> None:
    """Show one job."""
    text = read(database_url, lambda connection: get_job(connection, job_id))
    print_json_text(text, for_people=not as_json)


def explain(job_id: JobId, as_json: Json = False, database_url: Url = None) -> None:
    """Say in words why a job is not running, or what became of it."""
    text = read(database_url, lambda connection: explain_job(connection, job_id))
    if as_json:
        print_json({"id": job_id, "explanation": text})
    else:
        say(text)


def list_jobs(
    queue_name: Queue = None,
    kind: Kind = None,
    status: Annotated[Status | None, typer.Option(help="Only in this state.")] = None,
    concurrency_key: ConcurrencyKey = None,
    unique_key: UniqueKey = None,
    worker: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only of this worker, as in claimed_by."),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Only with these fields in the payload."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Rows at most.")
    ] = 50,
    before: Before = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """List jobs, the newest first."""
    fields = None if payload is None else json_object("--payload", payload)
    told_at = monotonic()

    def tell(job_id: int) -> None:
        nonlocal told_at
        if monotonic() - told_at > TELL_SECONDS:
            told_at = monotonic()
            note(f"looked at all jobs above {job_id}, goes on")

    rows = read(
        database_url,
        lambda connection: stats.list_jobs(
            connection,
            queue=queue_name,
            kind=kind,
            status=status,
            before=before,
            limit=limit,
            concurrency_key=concurrency_key,
            unique_key=unique_key,
            worker=worker,
            payload=fields,
            tell=tell,
        ),
    )
    show_jobs(rows, as_json=as_json)
    if not rows and not as_json:
        note("no matching jobs")
    if len(rows) == limit:
        note(f"for older ones add: --before {rows[-1]['id']}")


def peek(
    queue_name: Annotated[
        str, typer.Argument(metavar="QUEUE", help="Whose jobs.")
    ] = "default",
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000, help="Rows at most.")
    ] = 10,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show the jobs that are due, in the order of a claim, without claiming them."""

    async def look(connection: Connection) -> tuple[list[Row], Any]:
        rows = await peek_jobs(connection, queue_name, limit)
        return rows, None if rows else await next_run_at(connection, queue_name)

    rows, next_at = read(database_url, look)
    show(rows, as_json=as_json)
    if not rows and not as_json:
        next_one = f"the next is due at {next_at:%Y-%m-%d %H:%M:%SZ}" if next_at else ""
        note(f"no job of {queue_name} is due; {next_one or 'none is pending'}")
