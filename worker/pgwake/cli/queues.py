"""The commands about queues: stats, queues, pause, resume, drain, payloads."""

import asyncio
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from pgwake.cli.shared.output import (
    Json,
    QueueName,
    Url,
    ask,
    console,
    duration,
    instant,
    note,
    print_json,
    read,
    say,
    show,
    show_jobs,
    wrong_usage,
)
from pgwake.cli.shared.tables import (
    FittingTable,
    Row,
    cell,
    printable,
    progress_cell,
    table,
)
from pgwake.database.connection import Connection
from pgwake.database.statements.operate import (
    pause_queue,
    resume_queue,
    set_drop_payloads,
)
from pgwake.database.statements.stats import (
    get_queue_stats,
    jobs_in_progress,
    list_jobs,
    list_queues,
    unhandled_kinds,
)
from pgwake.database.statements.wake import open_writers
from pgwake.errors import EXIT_BUSY

LOOK_SECONDS = 0.2  # between the looks of a drain
PROGRESS_LINES = 10  # of running jobs under the statistics


def stats(
    queue_name: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Only this one.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh each second.")
    ] = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show the queues' counts of jobs by status, and their totals.

    scheduled: pending and not yet due, before the first attempt or after one.
    """
    nothing = "no queues yet: no job has been enqueued"
    if queue_name is not None:
        nothing = f"queue {queue_name} is not there: it has never had a job"

    async def look(connection: Connection) -> list[Row]:
        return await get_queue_stats(connection, queue_name)

    async def look_at_all(connection: Connection) -> Group:
        rows = await look(connection)
        kinds = await unhandled_kinds(connection)
        warning = [_unhandled(kinds)] if kinds else []
        jobs = await jobs_in_progress(connection, queue_name, PROGRESS_LINES)
        shown = _stats_table(rows) if rows else Text(printable(nothing))
        return Group(shown, *warning, *_progress_table(jobs))

    async def keep_looking(connection: Connection) -> None:
        from rich.live import Live  # noqa: PLC0415, dear, and only this needs it

        output = console()
        if as_json or not output.is_terminal:
            while True:
                if as_json:
                    show(await look(connection), as_json=True)
                else:
                    output.print(await look_at_all(connection), "")
                sys.stdout.flush()
                await asyncio.sleep(1)
        with Live(console=output, auto_refresh=False) as live:
            while True:
                live.update(await look_at_all(connection), refresh=True)
                await asyncio.sleep(1)

    if watch:
        with suppress(KeyboardInterrupt):
            read(database_url, keep_looking)
    elif as_json:
        show(read(database_url, look), as_json=True)
    else:
        console().print(read(database_url, look_at_all))


def queues(as_json: Json = False, database_url: Url = None) -> None:
    """Show the queues: their pauses, limits, other policy, and counts of jobs."""
    rows = read(database_url, list_queues)
    if as_json:
        print_json(rows)
        return
    show(
        (
            {
                "queue": row["name"],
                "paused": _pause(row["paused_until"]),
                "max running": row["max_running"],
                "rate": row["rate_limit"],
                "burst": row["rate_burst"],
                "key limit": row["key_limit"],
                "key rate": row["key_rate"],
                "key burst": row["key_burst"],
                "max pending": row["max_pending"],
                "policy": row["policy"] or None,
                "pending": row["pending_count"],
                "scheduled": row["scheduled_count"],
                "waiting": row["waiting_count"],
                "running": row["running_count"],
                "failed": row["failed_count"],
            }
            for row in rows
        ),
        as_json=False,
    )
    if not rows:
        note("no queue has jobs or policy")


def _pause(until: str | None) -> str | None:
    return "until resumed" if until == "infinity" else until


def pause(
    queue_name: QueueName,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="ISO 8601 with an offset."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="From now.")
    ] = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Pause a queue, until it is resumed or until a time."""
    if until is not None and seconds is not None:
        wrong_usage("--until and --for are both given: give one of them.")

    async def stop(connection: Connection) -> datetime | None:
        return await _pause_queue(
            connection,
            queue_name,
            until=instant("--until", until),
            duration=duration("--for", seconds),
        )

    paused_until = ask(database_url, stop)
    if as_json:
        print_json({"queue": queue_name, "paused_until": paused_until or "infinity"})
    elif paused_until is None:
        say(f"{queue_name} is paused until it is resumed")
    else:
        say(f"{queue_name} is paused until {cell(paused_until)}")


async def _pause_queue(
    connection: Connection,
    queue_name: str,
    *,
    until: datetime | None = None,
    duration: timedelta | None = None,
) -> datetime | None:
    """Pause a queue; one without a job, which may be mistyped, too, but say so."""
    rows = await get_queue_stats(connection, queue_name)
    if not any(row["enqueued_total"] for row in rows):
        note(f"no job was ever in {queue_name}; the queues' names: pgwake queues")
    return await pause_queue(connection, queue_name, until=until, duration=duration)


def resume(
    queue_name: QueueName, as_json: Json = False, database_url: Url = None
) -> None:
    """End the pause of a queue."""
    was_paused = ask(
        database_url, lambda connection: resume_queue(connection, queue_name)
    )
    if as_json:
        print_json({"queue": queue_name, "was_paused": was_paused})
    else:
        say(f"{queue_name} {'is resumed' if was_paused else 'was not paused'}")


def drain(
    queue_name: QueueName,
    timeout: Annotated[
        float,
        typer.Option(
            min=0, max=1e9, metavar="SECONDS", help="How long to wait at most."
        ),
    ] = 300.0,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Pause a queue, and wait until nothing of it runs. It stays paused.

    Exit code 75 if something still runs when the time is up.
    """
    try:
        left = ask(
            database_url,
            lambda connection: _drained(connection, queue_name, seconds=timeout),
        )
    except KeyboardInterrupt:
        note(f"{queue_name} stays paused; to end that: pgwake resume {queue_name}")
        raise
    if as_json:
        print_json({"queue": queue_name, "is_drained": left is None, "running": left})
    elif left is None:
        say(f"{queue_name} is drained: it is paused, and nothing of it runs")
    elif left:
        show_jobs(left, as_json=False)
        note(f"{queue_name} is paused, but {len(left)} of its jobs still run")
    else:
        note(f"{queue_name} is paused, but a transaction is open that may have claimed")
    if left is not None:
        raise typer.Exit(EXIT_BUSY)


async def _drained(
    connection: Connection, queue_name: str, *, seconds: float
) -> list[Row] | None:
    """Pause and wait; None, or what still runs when the time is up."""
    deadline = monotonic() + seconds
    await _pause_queue(connection, queue_name)
    # Who claimed before the pause may not have committed yet; who looked whether it is
    # paused just before may not have claimed yet: hence two looks.
    claims = await open_writers(connection)
    quiet_looks, told = 0, 0
    while True:
        claims &= await open_writers(connection)
        rows = await get_queue_stats(connection, queue_name)
        running = sum(row["running_count"] for row in rows)
        quiet_looks = 0 if running or claims else quiet_looks + 1
        if quiet_looks == 2:
            return None
        if monotonic() >= deadline:
            return await list_jobs(
                connection,
                queue=queue_name,
                kind=None,
                status="running",
                before=None,
                limit=1000,
            )
        if running != told:
            told = running
            note(f"{queue_name} is paused; of its jobs run: {running}")
        await asyncio.sleep(LOOK_SECONDS)


def payloads(
    queue_name: QueueName,
    drop: Annotated[
        bool | None,
        typer.Option("--drop/--keep", show_default=False, help="From now on."),
    ] = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show whether a queue drops the payloads of jobs that complete, or change that."""
    drops = ask(
        database_url,
        lambda connection: set_drop_payloads(connection, queue_name, drop=drop),
    )
    if as_json:
        print_json({"queue": queue_name, "drop_payloads": drops})
    else:
        done = "drops" if drops else "keeps"
        say(f"{queue_name} {done} the payloads of jobs that complete")


def _unhandled(kinds: list[str]) -> Text:
    return Text(
        "Kinds without a live worker, whose jobs came back within the hour: "
        f"{', '.join(map(printable, kinds[:20]))}"
        f"{' ...' if len(kinds) > 20 else ''}"
    )


def _stats_table(rows: list[Row]) -> FittingTable:
    counts = ("pending", "scheduled", "waiting", "running", "failed")
    shown = [
        {
            "queue": row["queue"],
            **{name: row[f"{name}_count"] for name in counts},
            "completed": row["completed_total"],
            "oldest": row["oldest_pending_age"],
            "queued ms": _milliseconds(row["avg_queue_time_ms"]),
            "run ms": _milliseconds(row["avg_execution_time_ms"]),
        }
        for row in rows
    ]
    if len(shown) > 1:
        ages = [row["oldest"] for row in shown if row["oldest"] is not None]
        sums = {n: sum(row[n] for row in shown) for n in (*counts, "completed")}
        oldest = max(ages, default=None)
        shown.append({**dict.fromkeys(shown[0]), "queue": "total", **sums})
        shown[-1]["oldest"] = oldest
    idle = [n for n in ("waiting", "scheduled") if not shown[-1][n]]
    for row in shown:
        row.update({n: f"{row[n]:,}" for n in (*counts, "completed")})
    for row, found in zip(shown, rows, strict=False):  # not the total
        if found["is_estimate"]:
            row.update({n: f"≈{row[n]}" for n in ("pending", "scheduled")})
    spare = (*idle, "run ms", "queued ms", "oldest", "waiting", "scheduled")
    return FittingTable(shown, right=[*shown[0]][1:], spare=spare)


def _progress_table(jobs: list[Row]) -> list[RenderableType]:
    """Return a table of jobs that say how far they are, below an empty line."""
    rows = [{**job, "progress": progress_cell(job["progress"])} for job in jobs]
    spare = ("claimed_by", "started_at")
    return ["", table(rows, spare=spare, cut="progress")] if rows else []


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
