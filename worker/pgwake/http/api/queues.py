"""Operations on queues: what stands in them, what runs, pauses, limits."""

from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, model_validator

from pgwake.database.statements import http, operate
from pgwake.http.context import ApiContext
from pgwake.http.fields import (
    MAX_SECONDS,
    Count,
    Instant,
    JobId,
    Key,
    Kind,
    Limit,
    Milliseconds,
    Parameters,
    QueueName,
    Rate,
    Request,
    ResponseModel,
    Time,
    Whole,
    WorkerName,
)
from pgwake.http.operation import Operation, ParsedRequest, listing
from pgwake.jsontext import dumps

NOT_DUE = "pending jobs not yet due: before the first attempt, or after one"


class QueueFilter(Parameters):
    """Perhaps one queue alone."""

    queue: QueueName | None = None


class CommonCounts(ResponseModel):
    """What stands in a queue, and what has gone through it."""

    queue_size: Count = Field(description="pending, scheduled and waiting jobs")
    active_tasks: Count = Field(description="jobs that run")
    workers: Count = Field(description="live workers")
    tasks_enqueued: Count = Field(description="since the installation")
    tasks_completed: Count = Field(description="since the installation")
    tasks_failed: Count = Field(description="dead letters since the installation")
    avg_queue_time_ms: Milliseconds = Field(
        description="from being due to being claimed, of the jobs of five minutes"
    )
    avg_execution_time_ms: Milliseconds = Field(description="of the same, their run")


class QueueCounts(CommonCounts):
    """The same of one queue, in more detail."""

    queue: QueueName
    pending: Count = Field(description="jobs that are due")
    scheduled: Count = Field(description=NOT_DUE)
    waiting: Count = Field(description="jobs that wait for others, or for their key")
    failed: Count = Field(description="dead letters now")
    oldest_pending_seconds: float | None = Field(
        description="how long the longest-due job has been due"
    )
    paused_until: Time | None = Field(description="null and is_paused: for good")
    is_paused: bool
    is_estimate: bool = Field(
        description="pending and scheduled are exact only together"
    )


class Stats(CommonCounts):
    """All queues together, and each."""

    queues: list[QueueCounts]


class Limits(ResponseModel):
    """A queue's limits; null: none."""

    max_running: int | None = Field(description="jobs at once")
    rate_limit: float | None = Field(description="claims a second")
    rate_burst: int | None = Field(description="claims at once; null: a second's worth")
    key_limit: int | None = Field(description="jobs of a key at once; null: 1")
    key_rate: float | None = Field(description="starts of a key a second")
    key_burst: int | None = Field(description="of its starts at once, as rate_burst")
    max_pending: int | None = Field(description="jobs that wait; then none is added")
    keys: dict[str, int] = Field(description="key_limit of single keys")
    key_rates: dict[str, float] = Field(description="key_rate of single keys")


class Queue(Limits):
    """A queue: its limits, other policy, and what stands in it."""

    name: QueueName
    is_paused: bool
    paused_until: Time | None = Field(description="null and is_paused: for good")
    policy: dict[str, Any] = Field(description="the columns of pgwake.queues set")
    pending_count: Count = Field(description="jobs that are due")
    scheduled_count: Count = Field(description=NOT_DUE)
    waiting_count: Count
    running_count: Count
    failed_count: Count


class Queues(ResponseModel):
    """The queues that have jobs or policy, by name."""

    queues: list[Queue]


class ListActive(QueueFilter):
    """Which running jobs."""

    limit: Limit = 100


class RunningJob(ResponseModel):
    """A running job."""

    id: JobId
    kind: Kind
    queue: QueueName
    worker: WorkerName
    enqueued_at: Time
    started_at: Time
    progress: Any


class RunningJobs(ResponseModel):
    """The running jobs, the longest-running first; count is of all."""

    count: Count
    tasks: list[RunningJob]


class QueuePath(Parameters):
    """A queue, by its name in the path; / in it is %2F."""

    name: QueueName


class Pause(Request):
    """How long; with neither until it is resumed."""

    until: Instant | None = None
    seconds: Annotated[
        float | None, Field(ge=1, le=MAX_SECONDS, allow_inf_nan=False)
    ] = None

    @model_validator(mode="after")
    def _check(self) -> "Pause":
        if self.until is not None and self.seconds is not None:
            raise ValueError("until and seconds are both given: give one of them")
        return self


class Paused(ResponseModel):
    """Until when; null: until it is resumed."""

    queue: QueueName
    paused_until: Time | None


class Resumed(ResponseModel):
    """Whether it was paused."""

    queue: QueueName
    was_paused: bool


class ChangeLimits(Request):
    """What is to be different: null lifts a limit, what is left out stays."""

    max_running: Whole | None = None
    rate_limit: Rate | None = None
    rate_burst: Whole | None = None
    key_limit: Whole | None = None
    key_rate: Rate | None = None
    key_burst: Whole | None = None
    max_pending: Whole | None = None
    key: Key | None = Field(
        None, description="key_limit and key_rate are of this key alone"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.key is not None and self.changes.keys() - {"key_limit", "key_rate"}:
            raise ValueError("a key has only key_limit and key_rate of its own")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """What was given, without the key."""
        return self.model_dump(exclude_unset=True, exclude={"key"})


async def _stats(context: ApiContext, asked: ParsedRequest[QueueFilter, None]) -> str:
    return await context.pool.read(lambda c: http.stats(c, asked.parameters.queue))


async def _active(context: ApiContext, asked: ParsedRequest[ListActive, None]) -> str:
    given = asked.parameters
    return await context.pool.read(
        lambda c: http.active_tasks(c, given.queue, given.limit)
    )


async def _pause(context: ApiContext, asked: ParsedRequest[QueuePath, Pause]) -> str:
    until, seconds = asked.body.until, asked.body.seconds
    text = None if until is None else until.isoformat()
    duration = None if seconds is None else timedelta(seconds=seconds)
    return await context.pool.write(
        lambda c: http.pause_queue(c, asked.parameters.name, text, duration)
    )


async def _resume(context: ApiContext, asked: ParsedRequest[QueuePath, None]) -> str:
    return await context.pool.write(
        lambda c: http.resume_queue(c, asked.parameters.name)
    )


async def _limit(
    context: ApiContext, asked: ParsedRequest[QueuePath, ChangeLimits]
) -> str:
    name, given = asked.parameters.name, asked.body
    return dumps(
        await context.pool.write(
            lambda c: operate.change_limits(c, name, given.key, given.changes)
        )
    )


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(
        "/api/queues",
        "The queues: their pauses, limits and other policy, and what stands in them",
        Queues,
        http.list_queues,
    ),
    Operation(
        method="GET",
        path="/api/queue/stats",
        summary="Counts of jobs by status, and totals, of all queues and each",
        parameters=QueueFilter,
        answer=Stats,
        do=_stats,
    ),
    Operation(
        method="GET",
        path="/api/queue/active-tasks",
        summary="The jobs that run, the longest-running first",
        parameters=ListActive,
        answer=RunningJobs,
        do=_active,
    ),
    Operation(
        method="POST",
        path="/api/queues/{name}/pause",
        summary="Pause a queue, until a time, for some seconds, or until it is resumed",
        parameters=QueuePath,
        body=TypeAdapter(Pause),
        is_body_optional=True,
        answer=Paused,
        do=_pause,
    ),
    Operation(
        method="POST",
        path="/api/queues/{name}/resume",
        summary="End a queue's pause",
        parameters=QueuePath,
        answer=Resumed,
        do=_resume,
    ),
    Operation(
        method="POST",
        path="/api/queues/{name}/limits",
        summary="Change a queue's limits, or those of one of its concurrency keys",
        parameters=QueuePath,
        body=TypeAdapter(ChangeLimits),
        answer=Limits,
        do=_limit,
    ),
)
