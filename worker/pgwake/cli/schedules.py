"""The commands about schedules: pgwake schedule list, add, remove, pause, ..."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from pgwake.cli.shared.options import takes_job_options
from pgwake.cli.shared.output import (
    Json,
    Url,
    ask,
    duration,
    instant,
    json_object,
    note,
    print_json,
    read,
    say,
    show,
    wrong_usage,
)
from pgwake.cli.shared.tables import Row
from pgwake.database.connection import Connection
from pgwake.database.statements import schedules
from pgwake.errors import InvalidValueError
from pgwake.ticks import next_ticks

app = typer.Typer(no_args_is_help=True, help="Recurring jobs.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", show_default=False, help="The schedule's.")
]
Cron = Annotated[
    str | None,
    typer.Option(
        metavar="CRON", help="Five fields, such as '30 2 * * 1-5', or @daily."
    ),
]


class Misfire(StrEnum):
    """What becomes of ticks that were missed."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@app.command("list")
def list_schedules(as_json: Json = False, database_url: Url = None) -> None:
    """Show the schedules, their next and last ticks, and what is wrong with them."""
    rows = read(database_url, schedules.list_schedules)
    if as_json:
        show(rows, as_json=True)
        return
    show(
        (
            {
                "name": row["name"],
                "ticks": row["cron"] or row["every"],
                "zone": row["timezone"] if row["cron"] else None,
                "kind": row["kind"],
                "queue": row["queue"],
                "next": "paused" if row["is_paused"] else row["next_at"],
                "last": row["last_at"],
                "last job": row["last_job_id"],
                "fired": row["fired_count"],
                "left out": row["left_out_count"] or None,
                "problem": row["problem"],
            }
            for row in rows
        ),
        as_json=False,
    )
    if not rows:
        note("there are no schedules; to add one: pgwake schedule add")


@app.command()
@takes_job_options("queue", "priority", "max_attempts", "metadata", "concurrency_key")
def add(
    name: Name,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="Which handler runs its jobs.")
    ],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="A JSON object.")
    ] = "{}",
    cron: Cron = None,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="The interval, instead of --cron."),
    ] = None,
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="Of --cron, such as Europe/Berlin.")
    ] = "UTC",
    no_overlap: Annotated[
        bool,
        typer.Option(
            "--no-overlap", help="Leave a tick out while the last job is live."
        ),
    ] = False,
    misfire: Annotated[
        Misfire, typer.Option(help="Of missed ticks, fire none, the last, or all.")
    ] = Misfire.ONCE,
    misfire_limit: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=10_000, help="With --misfire all: the newest N."
        ),
    ] = 100,
    starts_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="ISO 8601 with an offset.")
    ] = None,
    *,
    as_json: Json = False,
    database_url: Url = None,
    **options: Any,
) -> None:
    """Add a schedule, or replace the one of that name; the same again does nothing."""
    arguments = {
        "name": name,
        "kind": kind,
        "payload": json_object("the payload", payload),
        "cron": cron,
        "every": duration("--every", every),
        "timezone": timezone,
        "may_overlap": not no_overlap,
        "misfire": misfire,
        "misfire_limit": misfire_limit,
        "starts_at": instant("--starts-at", starts_at),
        **options,
    }
    if options["metadata"]:
        arguments["metadata"] = json_object("--metadata", options["metadata"])
    is_different = ask(database_url, lambda c: schedules.schedule(c, arguments))
    words = "is scheduled" if is_different else "was scheduled like that"
    _told(name, words, as_json=as_json, is_different=is_different)


def _told(name: str, words: str, *, as_json: bool, **fields: int | None) -> None:
    """Tell what became of a schedule."""
    if as_json:
        print_json({"name": name, **fields})
    else:
        say(f"{name} {words}")


@app.command()
def remove(name: Name, as_json: Json = False, database_url: Url = None) -> None:
    """End a schedule for good. Its jobs stay."""
    was_there = ask(database_url, lambda c: schedules.unschedule(c, name))
    words = "is removed" if was_there else "was not there"
    _told(name, words, as_json=as_json, was_there=was_there)


@app.command()
def pause(name: Name, as_json: Json = False, database_url: Url = None) -> None:
    """Have a schedule fire nothing until it is resumed."""
    was_running = ask(database_url, lambda c: schedules.pause(c, name))
    words = "is paused" if was_running else "was paused"
    _told(name, words, as_json=as_json, was_paused=not was_running)


@app.command()
def resume(name: Name, as_json: Json = False, database_url: Url = None) -> None:
    """End a schedule's pause. Ticks that were missed are not fired."""
    was_paused = ask(database_url, lambda c: schedules.resume(c, name))
    words = "is resumed" if was_paused else "was not paused"
    _told(name, words, as_json=as_json, was_paused=was_paused)


@app.command()
def run(name: Name, as_json: Json = False, database_url: Url = None) -> None:
    """Make a job of a schedule now, beside those of its ticks."""
    job_id = ask(database_url, lambda c: schedules.run(c, name))
    words = "not run: its last job is live" if job_id is None else f"runs as {job_id}"
    _told(name, words, as_json=as_json, job_id=job_id)


@app.command("next")
def show_next(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", show_default=False, help="A schedule that is there."
        ),
    ] = None,
    cron: Cron = None,
    timezone: Annotated[str, typer.Option(metavar="ZONE", help="Of --cron.")] = "UTC",
    after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With --cron: ISO 8601 with an offset."),
    ] = None,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=10_000, help="Ticks.")
    ] = 5,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show the next ticks of a schedule, or those that a cron expression would have."""
    if (name is None) is (cron is None):
        wrong_usage("give a schedule's name, or --cron.")
    if cron is not None:
        ticks = next_ticks(cron, timezone, instant("--after", after), count)
    elif after is not None:
        wrong_usage("--after goes with --cron.")
    else:
        ticks = read(
            database_url, lambda connection: _next(connection, name or "", count)
        )
    if as_json:
        print_json([tick.isoformat() for tick in ticks])
        return
    show(
        ({"in its zone": f"{t:%a %Y-%m-%d %H:%M:%S %z}", "in UTC": t} for t in ticks),
        as_json=False,
    )


async def _next(connection: Connection, name: str, count: int) -> list[datetime]:
    rows = await schedules.list_schedules(connection)
    row: Row = next((row for row in rows if row["name"] == name), {})
    if not row:
        raise InvalidValueError(
            f"no schedule is named {name}; see: pgwake schedule list"
        )
    if row["is_paused"]:
        note(f"{name} is paused: it fires nothing until it is resumed")
        return []
    if row["problem"]:
        note(f"{name} has a problem: {row['problem']}")
    if row["every"] is None:
        now = await schedules.now(connection)
        after = (row["next_at"] or now) - timedelta(microseconds=1)
        return next_ticks(row["cron"], row["timezone"], after, count)
    if row["next_at"] is None:
        note(f"no worker has looked at {name} yet; each does within a second")
        return []
    return [row["next_at"] + n * row["every"] for n in range(count)]
