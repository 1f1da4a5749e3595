"""The commands about single jobs: enqueue, show, explain, list, peek."""

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from pgwake.cli import options
from pgwake.cli.output import (
    Before,
    ConcurrencyKey,
    JobId,
    Json,
    Kind,
    Queue,
    UniqueKey,
    Url,
    ask,
    duration,
    instant,
    json_object,
    note,
    print_json,
    print_json_text,
    read,
    say,
    show,
    show_jobs,
)
from pgwake.cli.tables import Row
from pgwake.database.connection import Connection
from pgwake.database.statements import operate, stats
from pgwake.database.statements.claim import next_run_at
from pgwake.database.statements.operate import explain_job, peek_jobs
from pgwake.database.statements.stats import get_job


class OnParentFailure(StrEnum):
    """What becomes of a job when one that it depends on does not complete."""

    CANCEL = "cancel"
    RUN = "run"


class Status(StrEnum):
    """All states of jobs."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


def enqueue(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Which handler runs it.")],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="PAYLOAD",
            help="A JSON object, or - to read it from standard input.",
        ),
    ] = "{}",
    queue_name: Annotated[
        str,
        typer.Option("--queue", metavar="QUEUE", help="The queue that it is in."),
    ] = "default",
    priority: options.Priority = 0,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="From now.")
    ] = None,
    run_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="ISO 8601 with an offset: 2027-01-31T08:00+01:00"
        ),
    ] = None,
    max_attempts: options.MaxAttempts = None,
    unique_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Unique with the kind among live jobs."),
    ] = None,
    on_conflict: Annotated[
        str,
        typer.Option(
            metavar="ACTION",
            help="If a live job has the unique key: return its id, replace it, or "
            "raise.",
        ),
    ] = "return",
    concurrency_key: options.JobsConcurrencyKey = None,
    depends_on: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Wait for this job; may be repeated."),
    ] = None,
    on_parent_failure: Annotated[
        OnParentFailure | None,
        typer.Option(
            help="When such a job does not complete: cancel this one (the default), or "
            "run it."
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An http(s) URL that hears how it ended."),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="A JSON object for people and tools."),
    ] = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Add a job; print its id, or that of the live one with the same unique key."""
    text = sys.stdin.read() if payload == "-" else payload
    noted = None if metadata is None else json_object("--metadata", metadata)

    async def add(connection: Connection) -> int:
        return await operate.enqueue(
            connection,
            kind,
            json_object("the payload", text),
            queue=queue_name,
            priority=priority,
            run_at=instant("--run-at", run_at),
            delay=duration("--delay", delay),
            max_attempts=max_attempts,
            unique_key=unique_key,
            on_conflict=on_conflict,
            concurrency_key=concurrency_key,
            depends_on=depends_on or (),
            on_parent_failure=on_parent_failure,
            webhook=webhook,
            metadata=noted,
        )

    job_id = ask(database_url, add)
    typer.echo(json.dumps({"id": job_id}) if as_json else job_id)


def show_job(job_id: JobId, as_json: Json = False, database_url: Url = None) -> None:
    """Show one job, wherever it lies."""
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
        ),
    )
    show_jobs(rows, as_json=as_json)
    if not rows and not as_json:
        note("no such jobs")
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
