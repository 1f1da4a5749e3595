"""The commands about many jobs: failed, retry, cancel, purge."""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import asyncpg
import typer

from pgwake.cli.shared.batches import (
    BATCH,
    Counts,
    Ids,
    Limit,
    check_choice,
    counted,
    in_batches,
    is_asked,
    said,
    told_if_stopped,
)
from pgwake.cli.shared.output import (
    ConcurrencyKey,
    DryRun,
    Json,
    Kind,
    Queue,
    UniqueKey,
    Url,
    Yes,
    ask,
    bar,
    confirm,
    describe,
    has_bar,
    instant,
    json_object,
    note,
    print_json,
    read,
    say,
    show,
    wrong_usage,
)
from pgwake.cli.shared.tables import Row, cut_short
from pgwake.database.connection import Connection
from pgwake.database.statements import operate, produce
from pgwake.database.statements.operate import (
    cancel_jobs,
    list_failed,
    retry_failed,
)

Filters: TypeAlias = tuple[str | None, str | None, str | None]

MAX_RETRIES = 100_000  # that retry_failed takes at once

Fingerprint = Annotated[
    str | None,
    typer.Option(
        "--fingerprint", metavar="TEXT", help="Only of this group of `pgwake failed`."
    ),
]


class LiveStatus(StrEnum):
    """The states of jobs that have not ended."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"


class EndedStatus(StrEnum):
    """The states of jobs that have ended."""

    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


def failed(
    queue_name: Queue = None,
    kind: Kind = None,
    fingerprint: Fingerprint = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Groups at most.")
    ] = 50,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show the dead letters, grouped by error."""
    rows = read(
        database_url,
        lambda connection: list_failed(
            connection, queue_name, kind, fingerprint, limit
        ),
    )
    if as_json:
        show(rows, as_json=True)
        return
    for row in rows:
        row["message"] = cut_short((row["message"] or "").split("\n")[0], 80)
        row["jobs"] = row.pop("job_count")
    spare = ("first_failed_at", "reason", "last_failed_at", "last_job_id")
    show(rows, as_json=False, spare=spare, cut="message")
    if not rows:
        note("no matching dead letters")


def retry(
    ids: Ids = None,
    queue_name: Queue = None,
    kind: Kind = None,
    fingerprint: Fingerprint = None,
    limit: Limit = 1000,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Jobs a second, to spread them; not for IDs."),
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
    check_choice(ids, filters, (rate, patch), dry_run=dry_run)
    if ids:
        _each(ids, produce.retry_job, as_json=as_json, database_url=database_url)
        return
    merged = None if patch is None else json_object("--patch", patch)
    if (rate, patch) != (None, None) and limit > MAX_RETRIES:
        wrong_usage(f"--limit {limit}: with --rate or --patch at most {MAX_RETRIES}.")
    if dry_run:
        rows = ask(
            database_url,
            lambda c: retry_failed(
                c, *filters, min(limit, MAX_RETRIES), rate, merged, dry_run=True
            ),
        )
    else:
        total = 0
        if is_asked(yes) or has_bar(quiet=as_json):
            groups = ask(database_url, lambda c: list_failed(c, *filters, None))
            total = min(sum(group["job_count"] for group in groups), limit)
        confirm(f"{said(total, limit)}dead letters are retried.", yes=yes)
        with bar("retrying", total, quiet=as_json) as advance:
            rows = _redrive(filters, limit, rate, merged, database_url, advance)
    if as_json:
        show(rows, as_json=True)
        return
    if dry_run:
        show(rows[:20], as_json=False)
    counts = Counter(row["outcome"] for row in rows)
    say(counted(counts))
    if counts["conflict"]:
        note("conflict: a live job has its unique key; it stays a dead letter")
    if len(rows) == (min(limit, MAX_RETRIES) if dry_run else limit):
        note(
            f"there may be more: these are the {len(rows)} that failed first (--limit)"
        )


def _redrive(
    filters: Filters,
    limit: int,
    rate: float | None,
    patch: str | None,
    database_url: str | None,
    advance: Callable[[int], None],
) -> list[Row]:
    """Retry a batch after the other; a row a job."""
    done: dict[int, Row] = {}

    async def run(connection: Connection) -> None:
        # Spread as one, and refused as one where the patch makes a payload too long.
        batch = BATCH if (rate, patch) == (None, None) else limit
        while len(done) < limit:
            # A conflict stays where it was, before all that is left.
            stuck = sum(row["outcome"] == "conflict" for row in done.values())
            count = min(batch, limit - len(done)) + stuck
            rows = await retry_failed(
                connection,
                *filters,
                min(count, MAX_RETRIES),
                rate,
                patch,
                dry_run=False,
            )
            before = len(done)
            done.update((row["job_id"], row) for row in rows)
            advance(len(done) - before)
            if len(rows) < count:
                return

    told_if_stopped(lambda: ask(database_url, run), lambda: f"{len(done)} were retried")
    return list(done.values())


def cancel(
    ids: Ids = None,
    queue_name: Queue = None,
    kind: Kind = None,
    concurrency_key: ConcurrencyKey = None,
    unique_key: UniqueKey = None,
    status: Annotated[
        LiveStatus | None, typer.Option(help="Only in this state.")
    ] = None,
    limit: Limit = 10_000,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Cancel jobs, by id or all that match; running ones are asked to stop."""
    filters = (queue_name, kind, concurrency_key, unique_key, status)
    check_choice(ids, filters, (), dry_run=dry_run)
    if ids:
        _each(ids, produce.cancel_job, as_json=as_json, database_url=database_url)
        return

    async def some(connection: Connection, count: int, dry_run: bool) -> Counts:
        found = await cancel_jobs(connection, *filters, count, dry_run=dry_run)
        return Counter(found)

    words = "jobs are cancelled.", "cancelling", "were cancelled"
    counts = in_batches(
        *(some, words, limit, database_url), dry_run=dry_run, yes=yes, quiet=as_json
    )
    if as_json:
        print_json(dict(counts))
        return
    say(("would be: " if dry_run else "") + counted(counts))
    if counts.total() >= limit:
        note(f"there may be more: these are the first {limit} (--limit)")


def purge(
    status: Annotated[
        EndedStatus, typer.Option(help="Jobs that ended like this.")
    ] = EndedStatus.FAILED,
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

    async def some(connection: Connection, count: int, dry_run: bool) -> Counts:
        which = (status, queue_name, kind, fingerprint, ended_before)
        deleted = await operate.purge(connection, *which, count, dry_run=dry_run)
        return Counter(deleted=deleted)

    words = f"{status} jobs are deleted for good.", "deleting", "were deleted"
    counts = in_batches(
        *(some, words, limit, database_url), dry_run=dry_run, yes=yes, quiet=as_json
    )
    count = counts.total()
    if as_json:
        print_json({"would_delete" if dry_run else "deleted": count})
        return
    say(f"{count} would be deleted" if dry_run else f"{count} deleted")
    if count == limit:
        note(f"there may be more: these are {count} (--limit)")


def _each(
    ids: list[int],
    action: Callable[[int], produce.Query[Any]],
    *,
    as_json: bool,
    database_url: str | None,
) -> None:
    """Do it to one job after the other, whatever becomes of the others."""

    async def run(connection: Connection) -> list[Row]:
        rows: list[Row] = []
        for job_id in ids:
            try:
                outcome = await produce.answer(connection, action(job_id))
                rows.append({"id": job_id, "outcome": outcome or "retried"})
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
