"""The commands that change jobs which wait: update, run-now."""

from collections import Counter
from enum import StrEnum
from typing import Annotated

import typer

from pgwake.cli.shared.batches import (
    Counts,
    Ids,
    Limit,
    check_choice,
    counted,
    in_batches,
)
from pgwake.cli.shared.options import job_id
from pgwake.cli.shared.output import (
    KEEP,
    ConcurrencyKey,
    DryRun,
    Json,
    Kind,
    Queue,
    UniqueKey,
    Url,
    Yes,
    ask,
    instant,
    json_fields,
    note,
    number_or_none,
    print_json,
    say,
    wrong_usage,
)
from pgwake.cli.shared.tables import Row
from pgwake.database.connection import Connection
from pgwake.database.statements.operate import update_jobs
from pgwake.jsontext import dumps
from pgwake.produce.options import OPTIONS

NO_FILTERS = (None,) * 5
DONE = ("updated", "unchanged")


class WaitingStatus(StrEnum):
    """The states of jobs that have not begun."""

    WAITING = "waiting"
    PENDING = "pending"


def update(
    ids: Ids = None,
    queue_name: Queue = None,
    kind: Kind = None,
    concurrency_key: ConcurrencyKey = None,
    unique_key: UniqueKey = None,
    status: Annotated[
        WaitingStatus | None, typer.Option(help="Only in this state.")
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=OPTIONS["priority"].option.low,
            max=OPTIONS["priority"].option.high,
            help="Change: higher runs first; 0: by policy.",
        ),
    ] = None,
    run_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Change: when due; or now.")
    ] = None,
    to_queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Change: the queue to move to.")
    ] = None,
    max_attempts: Annotated[
        str | None,
        typer.Option(metavar="N", help="Change: attempts; or none: by policy."),
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Change: cancelled if not begun; or none."),
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Change: merged into the payload; null removes a field.",
        ),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Change: merged into the metadata."),
    ] = None,
    limit: Limit = 10_000,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Change jobs that wait, by id or all that match; running ones stay as is."""
    filters = (queue_name, kind, concurrency_key, unique_key, status)
    check_choice(ids, filters)
    if run_at not in (None, "now"):
        run_at = str(instant("--run-at", run_at))
    given: dict[str, object] = {
        "priority": priority,
        "run_at": run_at,
        "queue": to_queue,
        "payload": None if patch is None else json_fields("--patch", patch),
        "metadata": None if metadata is None else json_fields("--metadata", metadata),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    attempts = number_or_none("--max-attempts", max_attempts)
    if attempts is not KEEP:
        changes["max_attempts"] = attempts
    if expires_at is not None:
        changes["expires_at"] = (
            None if expires_at == "none" else str(instant("--expires-at", expires_at))
        )
    if not changes:
        wrong_usage("say what is to change: --priority, --run-at, --to-queue, ...")
    text = dumps(changes)
    if ids:
        _update(ids, text, dry_run=dry_run, as_json=as_json, database_url=database_url)
        return

    after: int | None = None

    async def some(connection: Connection, count: int, dry_run: bool) -> Counts:
        nonlocal after
        found = await update_jobs(
            connection, text, None, filters, after, count, dry_run=dry_run
        )
        if not dry_run:
            after = max((max(ids) for ids in found.values()), default=after)
        return Counter({outcome: len(ids) for outcome, ids in found.items()})

    words = (
        "jobs are changed; those that run are left.",
        "updating",
        "were looked at",
    )
    counts = in_batches(
        *(some, words, limit, database_url), dry_run=dry_run, yes=yes, quiet=as_json
    )
    if as_json:
        print_json(dict(counts))
        return
    say(("would be: " if dry_run else "") + counted(counts))
    if counts["running"]:
        note("running: a job that has begun is left as it is")
    if counts.total() >= limit:
        note(f"there may be more: these are the first {limit} (--limit)")


def run_now(
    ids: Annotated[
        list[int], typer.Argument(metavar="ID", parser=job_id, help="Jobs.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Make jobs that wait due now: update --run-at now."""
    changes = '{"run_at": "now"}'
    _update(ids, changes, dry_run=dry_run, as_json=as_json, database_url=database_url)


def _update(
    ids: list[int],
    changes: str,
    *,
    dry_run: bool,
    as_json: bool,
    database_url: str | None,
) -> None:
    """Change jobs by their ids, in one transaction; exit code 1 if one was left."""
    found = ask(
        database_url,
        lambda c: update_jobs(
            c, changes, ids, NO_FILTERS, None, len(ids), dry_run=dry_run
        ),
    )
    outcomes = {job_id: outcome for outcome, of in found.items() for job_id in of}
    rows: list[Row] = [{"id": job_id, "outcome": outcomes[job_id]} for job_id in ids]
    if as_json:
        print_json(rows)
    for row in rows:
        if row["outcome"] not in DONE:
            note(f"pgwake: {_left(row['id'], row['outcome'])}")
        elif not as_json:
            would_be = "would be " if dry_run else ""
            say(f"{row['id']} {would_be}{row['outcome']}")
    if any(row["outcome"] not in DONE for row in rows):
        raise typer.Exit(1)


def _left(job_id: int, outcome: str) -> str:
    """Say why a job was left, and what to do."""
    match outcome:
        case "no_such_job":
            return f"there is no job {job_id}"
        case "failed" | "cancelled":
            return f"job {job_id} is {outcome}: `pgwake retry {job_id}` runs it again"
        case _:
            return f"job {job_id} is {outcome}, and left as it is"
