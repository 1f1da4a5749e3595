"""The commands about jobs: enqueue, show, explain, list, peek, failed, retry, ..."""

import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Any

import asyncpg
import typer
from rich.console import Console

from pgwake import queue
from pgwake.connection import Connection
from pgwake.terminal import (
    DryRun,
    Json,
    Kind,
    Queue,
    Row,
    Url,
    Yes,
    ask,
    confirm,
    describe,
    duration,
    instant,
    json_object,
    note,
    print_json,
    say,
    show,
    show_jobs,
    wrong_usage,
)

Ids = Annotated[list[int] | None, typer.Argument(metavar="ID", show_default=False)]
Fingerprint = Annotated[
    str | None,
    typer.Option("--fingerprint", help="Only of this group of `pgwake failed`."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Jobs at most.")]


class Live(StrEnum):
    """The states of jobs that have not ended."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"


class Ended(StrEnum):
    """The states of jobs that have ended."""

    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


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
    concurrency_key: Annotated[
        str | None, typer.Option(help="Jobs with one key wait for each other.")
    ] = None,
    depends_on: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Wait for this job; may be given repeatedly."),
    ] = None,
    on_parent_failure: Annotated[
        OnParentFailure | None,
        typer.Option(help="When such a job does not complete; default cancel."),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An http(s) URL that hears how it ended."),
    ] = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Add a job; print its id, or that of the live one with the same unique key."""
    text = sys.stdin.read() if payload == "-" else payload

    async def add(connection: Connection) -> int:
        return await queue.enqueue(
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
        )

    job_id = ask(database_url, add)
    typer.echo(json.dumps({"id": job_id}) if as_json else job_id)


def show_job(job_id: int, as_json: Json = False, database_url: Url = None) -> None:
    """Show one job, wherever it lies."""
    text = ask(database_url, lambda connection: queue.get_job(connection, job_id))
    if as_json:
        typer.echo(text)
    else:
        Console().print_json(text)


def explain(job_id: int, as_json: Json = False, database_url: Url = None) -> None:
    """Say in words why a job is not running, or what became of it."""
    text = ask(database_url, lambda connection: queue.explain_job(connection, job_id))
    if as_json:
        print_json({"id": job_id, "explanation": text})
    else:
        say(text)


def list_jobs(
    queue_name: Queue = None,
    kind: Kind = None,
    status: Annotated[Status | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Rows at most.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only older ones than this job.")
    ] = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """List jobs, the newest first."""
    rows = ask(
        database_url,
        lambda connection: queue.list_jobs(
            connection,
            queue=queue_name,
            kind=kind,
            status=status,
            before=before,
            limit=limit,
        ),
    )
    show_jobs(rows, as_json=as_json)
    if not rows and not as_json:
        note("no such jobs")
    if len(rows) == limit:
        note(f"for older ones add: --before {rows[-1]['id']}")


def peek(
    queue_name: Annotated[str, typer.Argument(metavar="[QUEUE]")] = "default",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Rows at most.")] = 10,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show the jobs that are due, in the order of a claim, without claiming them."""

    async def look(connection: Connection) -> tuple[list[Row], Any]:
        rows = await queue.peek_jobs(connection, queue_name, limit)
        return rows, None if rows else await queue.next_run_at(connection, queue_name)

    rows, next_at = ask(database_url, look)
    show(rows, as_json=as_json)
    if not rows and not as_json:
        next_one = f"the next is due at {next_at:%Y-%m-%d %H:%M:%SZ}" if next_at else ""
        note(f"no job of {queue_name} is due; {next_one or 'none is pending'}")


def failed(
    queue_name: Queue = None,
    kind: Kind = None,
    fingerprint: Fingerprint = None,
    limit: Annotated[int, typer.Option(min=1, help="Groups at most.")] = 50,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show the dead letters, grouped by what they died of."""
    rows = ask(
        database_url,
        lambda connection: queue.list_failed(
            connection, queue_name, kind, fingerprint, limit
        ),
    )
    if as_json:
        show(rows, as_json=True)
        return
    for row in rows:
        row["message"] = (row["message"] or "").split("\n")[0][:80]
    show(rows, as_json=False)
    if not rows:
        note("no such dead letters")


def retry(
    ids: Ids = None,
    queue_name: Queue = None,
    kind: Kind = None,
    fingerprint: Fingerprint = None,
    limit: Limit = 1000,
    rate: Annotated[
        float | None, typer.Option(help="Jobs a second, to spread them; not for IDs.")
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Merged into each payload; null removes a field. Not for IDs.",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Run dead letters again: by id (cancelled jobs too), or all that match."""
    filters = (queue_name, kind, fingerprint)
    _check(ids, filters, (rate, patch), dry_run=dry_run)
    if ids:

        async def again(connection: Connection, job_id: int) -> str:
            await queue.retry_job(connection, job_id)
            return "retried"

        _each(ids, again, as_json=as_json, database_url=database_url)
        return
    merged = None if patch is None else json_object("--patch", patch)

    def redrive(*, dry_run: bool) -> list[Row]:
        return ask(
            database_url,
            lambda connection: queue.retry_failed(
                connection, *filters, limit, rate, merged, dry_run=dry_run
            ),
        )

    if not dry_run:
        count = len(redrive(dry_run=True)) if _asks(yes) else 0
        confirm(f"{_said(count)}dead letters are retried.", yes=yes)
    rows = redrive(dry_run=dry_run)
    if as_json:
        show(rows, as_json=True)
        return
    if dry_run:
        show(rows[:20], as_json=False)
    counts = Counter(row["outcome"] for row in rows)
    say(_counted(counts))
    if counts["conflict"]:
        note("conflict: a live job has its unique key; it stays a dead letter")
    if len(rows) == limit:
        note(f"there may be more: these are the {limit} that failed first (--limit)")


def cancel(
    ids: Ids = None,
    queue_name: Queue = None,
    kind: Kind = None,
    concurrency_key: Annotated[str | None, typer.Option()] = None,
    unique_key: Annotated[str | None, typer.Option()] = None,
    status: Annotated[Live | None, typer.Option(help="Only in this state.")] = None,
    limit: Limit = 10_000,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Cancel jobs, by id or all that match; running ones are asked to stop."""
    filters = (queue_name, kind, concurrency_key, unique_key, status)
    _check(ids, filters, (), dry_run=dry_run)
    if ids:
        _each(ids, queue.cancel_job, as_json=as_json, database_url=database_url)
        return

    def end(*, dry_run: bool) -> dict[str, int]:
        return ask(
            database_url,
            lambda connection: queue.cancel_jobs(
                connection, *filters, limit, dry_run=dry_run
            ),
        )

    if not dry_run:
        count = sum(end(dry_run=True).values()) if _asks(yes) else 0
        confirm(f"{_said(count)}jobs are cancelled.", yes=yes)
    counts = end(dry_run=dry_run)
    if as_json:
        print_json(counts)
        return
    say(("would be: " if dry_run else "") + _counted(counts))
    if sum(counts.values()) >= limit:
        note(f"there may be more: these are the first {limit} (--limit)")


def purge(
    status: Annotated[
        Ended, typer.Option(help="Jobs that ended like this.")
    ] = Ended.FAILED,
    queue_name: Queue = None,
    kind: Kind = None,
    fingerprint: Fingerprint = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Ended before; ISO 8601 with an offset."),
    ] = None,
    limit: Limit = 10_000,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Delete ended jobs for good, those that match."""
    filters = (queue_name, kind, fingerprint, before)
    if all(value is None for value in filters):
        wrong_usage("say which: --queue, --kind, --fingerprint or --before.")
    ended_before = instant("--before", before)

    def delete(*, dry_run: bool) -> int:
        return ask(
            database_url,
            lambda connection: queue.purge(
                connection,
                status,
                queue_name,
                kind,
                fingerprint,
                ended_before,
                limit,
                dry_run=dry_run,
            ),
        )

    if not dry_run:
        count = delete(dry_run=True) if _asks(yes) else 0
        confirm(f"{_said(count)}{status} jobs are deleted for good.", yes=yes)
    count = delete(dry_run=dry_run)
    if as_json:
        print_json({"would_delete" if dry_run else "deleted": count})
        return
    say(f"{count} would be deleted" if dry_run else f"{count} deleted")
    if count == limit:
        note(f"there may be more: these are {limit} (--limit)")


def _check(
    ids: list[int] | None,
    filters: tuple[object, ...],
    bulk_options: tuple[object, ...],
    *,
    dry_run: bool,
) -> None:
    """Refuse ids together with what is for filters, and neither of them."""
    has_filter = any(value is not None for value in filters)
    if not ids and not has_filter:
        wrong_usage("name jobs by their ids, or say which: --queue, --kind, ...")
    if ids and (
        has_filter or dry_run or any(value is not None for value in bulk_options)
    ):
        wrong_usage("with ids there are no filters, and nothing else to choose.")


def _asks(yes: bool) -> bool:
    """Whether a person is about to be asked, who should know how many."""
    return not yes and sys.stdin.isatty()


def _said(count: int) -> str:
    return f"{count} " if count else ""


def _each(
    ids: list[int],
    action: Callable[[Connection, int], Awaitable[str]],
    *,
    as_json: bool,
    database_url: str | None,
) -> None:
    """Do it to one job after the other, whatever becomes of the others."""

    async def run(connection: Connection) -> list[Row]:
        rows: list[Row] = []
        for job_id in ids:
            try:
                rows.append({"id": job_id, "outcome": await action(connection, job_id)})
            except asyncpg.PostgresError as error:
                if not str(error.sqlstate).startswith("PW"):
                    raise
                rows.append({"id": job_id, "error": describe(error)})
        return rows

    rows = ask(database_url, run)
    if as_json:
        print_json(rows)
    for row in rows:
        if "error" in row:
            note(f"pgwake: {row['error']}")
        elif not as_json:
            say(f"{row['id']} {row['outcome']}")
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {what}" for what, n in counts.items() if n) or "none"
