"""Operations on schedules."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from pgwake.database.statements import http
from pgwake.http.context import ApiContext
from pgwake.http.fields import (
    WHOLE,
    Count,
    Instant,
    JobId,
    Key,
    Kind,
    Parameters,
    QueueName,
    Request,
    ResponseModel,
    ScheduleName,
    Time,
    Whole,
)
from pgwake.http.operation import NoParameters, Operation, ParsedRequest, listing
from pgwake.jsontext import dumps


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


class NewSchedule(Request):
    """A schedule by cron, or by an interval; replaces that of its name."""

    name: ScheduleName
    kind: Kind
    cron: str | None = Field(None, max_length=256, examples=["30 2 * * 1-5"])
    every_seconds: float | None = Field(None, ge=1, le=366 * 86_400)
    timezone: str = Field("UTC", max_length=128, description="of cron")
    queue: QueueName = "default"
    payload: dict[str, Any] = Field({}, description="of each of its jobs")
    priority: Annotated[int, Field(ge=-100, le=100), WHOLE] = 0
    max_attempts: Whole | None = None
    metadata: dict[str, Any] | None = None
    concurrency_key: Key | None = None
    may_overlap: bool = Field(True, description="false: not while its last job is live")
    misfire: Literal["skip", "once", "all"] = Field("once", description="missed ticks")
    misfire_limit: Whole = 100
    starts_at: Instant | None = None


class Scheduled(ResponseModel):
    """Whether anything is different now."""

    is_different: bool


class SchedulePath(Parameters):
    """A schedule, by its name in the path; / in it is %2F."""

    name: ScheduleName


class SchedulePaused(ResponseModel):
    """Whether it was paused before."""

    was_paused: bool


class ScheduleRemoved(ResponseModel):
    """Whether there was one."""

    was_there: bool


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


async def _add(
    context: ApiContext, asked: ParsedRequest[NoParameters, NewSchedule]
) -> str:
    given = asked.body.model_dump(mode="json", exclude={"payload", "metadata"})
    return await context.pool.write(
        lambda c: http.add_schedule(c, asked.text, dumps(given))
    )


_CHANGES: tuple[tuple[str, str, type[ResponseModel]], ...] = (
    ("pause", "Have a schedule fire nothing until it is resumed", SchedulePaused),
    ("resume", "End a schedule's pause", SchedulePaused),
    ("remove", "End a schedule for good; its jobs stay", ScheduleRemoved),
    ("run", "Make a job of a schedule now, beside those of its ticks", ScheduleRun),
)

OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(
        "/api/schedules",
        "The schedules, with their next and last ticks",
        Schedules,
        http.list_schedules,
    ),
    Operation(
        method="POST",
        path="/api/schedules",
        summary="Add a schedule, or replace the one of that name",
        parameters=NoParameters,
        body=TypeAdapter(NewSchedule),
        answer=Scheduled,
        do=_add,
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
