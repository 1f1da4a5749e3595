"""Operations on schedules."""

from collections.abc import Awaitable, Callable
from typing import Any

from pgwake.database.statements import http
from pgwake.http.context import ApiContext
from pgwake.http.fields import (
    Count,
    JobId,
    Kind,
    Parameters,
    QueueName,
    ResponseModel,
    ScheduleName,
    Time,
)
from pgwake.http.operation import Operation, ParsedRequest, listing


class Schedule(ResponseModel):
    """A schedule: of cron and every_seconds it has one."""

    name: ScheduleName
    cron: str | None
    every_seconds: float | None
    timezone: str
    kind: Kind
    queue: QueueName
    payload: Any
    is_paused: bool
    next_at: Time | None
    last_at: Time | None
    last_job_id: JobId | None
    fired_count: Count
    left_out_count: Count
    problem: str | None


class Schedules(ResponseModel):
    """The schedules, by name."""

    schedules: list[Schedule]


class SchedulePath(Parameters):
    """A schedule, by its name in the path; / in it is %2F."""

    name: ScheduleName


class SchedulePaused(ResponseModel):
    """Whether it was paused before."""

    was_paused: bool


class ScheduleRun(ResponseModel):
    """The job; null: none was made, since a live job has its unique key."""

    job_id: JobId | None


def _changing(
    change: str,
) -> Callable[[ApiContext, ParsedRequest[SchedulePath, None]], Awaitable[str]]:
    async def do(context: ApiContext, asked: ParsedRequest[SchedulePath, None]) -> str:
        return await context.pool.write(
            lambda c: http.change_schedule(c, change, asked.parameters.name)
        )

    return do


_CHANGES: tuple[tuple[str, str, type[ResponseModel]], ...] = (
    ("pause", "Have a schedule fire nothing until it is resumed", SchedulePaused),
    ("resume", "End a schedule's pause", SchedulePaused),
    ("run", "Make a job of a schedule now, beside those of its ticks", ScheduleRun),
)

OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(
        "/api/schedules",
        "The schedules, with their next and last ticks",
        Schedules,
        http.list_schedules,
    ),
    *(
        Operation(
            method="POST",
            path=f"/api/schedules/{{name}}/{change}",
            summary=summary,
            parameters=SchedulePath,
            answer=answer,
            do=_changing(change),
        )
        for change, summary, answer in _CHANGES
    ),
)
