"""The SQL of schedules."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pgwake.database.statements import Connection
from pgwake.jsontext import JsonText
from pgwake.ticks import DueSchedule

# Of the 1,000 that are due for the longest, some at random: other workers fire others.
_DUE = """
select d.*
from (select s.*, count(*) over () > $1 as has_more from pgwake.due_schedules() as s
      limit 1000) as d
order by random()
limit $1
"""
_FIRE = "select pgwake.fire_schedules($1, $2, $3, $4, $5)"
_NOTE_PROBLEM = "select pgwake.note_schedule_problem($1, $2, $3)"
_SCHEDULE = "select pgwake.schedule({})"
_UNSCHEDULE = "select pgwake.unschedule($1)"
_PAUSE = "select pgwake.pause_schedule($1)"
_RESUME = "select pgwake.resume_schedule($1)"
_RUN = "select pgwake.run_schedule($1)"
_LIST = "select * from pgwake.list_schedules()"
_NOW = "select pgwake.now()"


class Ticks(NamedTuple):
    """What is to be fired of a schedule: its ticks, and the one that follows."""

    due: DueSchedule
    ticks: Sequence[datetime]
    next_at: datetime


async def due(connection: Connection, limit: int) -> tuple[list[DueSchedule], bool]:
    """Return schedules that are to be looked at, and whether there are more."""
    rows = await connection.fetch(_DUE, limit)
    return [DueSchedule(*row[:-1]) for row in map(tuple, rows)], any(
        row[-1] for row in rows
    )


async def fire(connection: Connection, batch: Sequence[Ticks]) -> list[int | None]:
    """Make a job of each tick; how many of each, or None if somebody else has."""
    counts: list[int | None] = await connection.fetchval(
        _FIRE,
        [one.due.name for one in batch],
        [one.due.version for one in batch],
        [one.next_at for one in batch],
        [tick for one in batch for tick in one.ticks],
        [len(one.ticks) for one in batch],
    )
    return counts


async def note_problem(connection: Connection, due: DueSchedule, problem: str) -> bool:
    """Note why ticks became no jobs; whether that is news."""
    is_news: bool = await connection.fetchval(
        _NOTE_PROBLEM, due.name, due.version, problem
    )
    return is_news


async def schedule(connection: Connection, arguments: Mapping[str, Any]) -> bool:
    """Add or replace a schedule; is it different?

    Args:
        connection: Where.
        arguments: See schedule.sql; what is None has its default.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    marks = ", ".join(f"{name} => ${place}" for place, name in enumerate(given, 1))
    is_different: bool = await connection.fetchval(
        _SCHEDULE.format(marks), *given.values()
    )
    return is_different


async def unschedule(connection: Connection, name: str) -> bool:
    """End a schedule; whether there was one."""
    was_there: bool = await connection.fetchval(_UNSCHEDULE, name)
    return was_there


async def pause(connection: Connection, name: str) -> bool:
    """Have a schedule fire nothing; whether it was not paused before."""
    was_running: bool = await connection.fetchval(_PAUSE, name)
    return was_running


async def resume(connection: Connection, name: str) -> bool:
    """End a schedule's pause; whether it was paused."""
    was_paused: bool = await connection.fetchval(_RESUME, name)
    return was_paused


async def run(connection: Connection, name: str) -> int | None:
    """Make a job of a schedule now; its id, or None: a live job has its key."""
    job_id: int | None = await connection.fetchval(_RUN, name)
    return job_id


async def list_schedules(connection: Connection) -> list[dict[str, Any]]:
    """Return the schedules; their payload and metadata as JSON text."""
    return [
        {
            **row,
            "payload": JsonText(row["payload"]),
            "metadata": JsonText.of(row["metadata"]),
        }
        for row in await connection.fetch(_LIST)
    ]


async def now(connection: Connection) -> datetime:
    """Return the time by the queue's clock."""
    time: datetime = await connection.fetchval(_NOW)
    return time
