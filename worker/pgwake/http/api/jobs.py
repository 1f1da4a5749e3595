"""Operations on single jobs."""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from pgwake.database.statements import http
from pgwake.http.context import ApiContext
from pgwake.http.fields import (
    Count,
    JobId,
    Key,
    Kind,
    Limit,
    ListStatus,
    Parameters,
    QueueName,
    Request,
    ResponseModel,
    Status,
    Time,
    Whole,
    WorkerName,
)
from pgwake.http.operation import Operation, ParsedRequest


class ListJobs(Parameters):
    """Which jobs."""

    queue: QueueName | None = None
    kind: Kind | None = None
    status: ListStatus | None = Field(
        None,
        description="scheduled and retrying: pending and not yet due, before the first"
        " attempt or after one",
    )
    worker: WorkerName | None = None
    unique_key: Key | None = None
    concurrency_key: Key | None = None
    limit: Limit = 100
    after: JobId | None = Field(None, description="next, of the page before")


class JobPath(Parameters):
    """A job, by its id in the path."""

    id: JobId


class ListedJob(ResponseModel):
    """What a list shows of a job."""

    id: JobId
    queue: QueueName
    kind: Kind
    status: Status
    priority: Annotated[int, Field(ge=-100, le=100)]
    run_at: Time
    attempt: Count
    progress: Any
    concurrency_key: Key | None
    worker: WorkerName | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None


class JobPage(ResponseModel):
    """A page of jobs, the newest first."""

    jobs: list[ListedJob]
    next: str | None = Field(description="after, for the next page; null: no more")


class Job(ListedJob):
    """A job, all of it."""

    max_attempts: int | None
    lease_id: str | None
    lease_expires_at: Time | None
    claimed_by: WorkerName | None
    crash_count: Count
    bounce_count: Count
    finished_slot: int | None
    has_children: bool | None
    has_parents_left: bool | None
    cancel_requested_at: Time | None
    unique_key: Key | None
    fingerprint: str | None
    on_parent_failure: Literal["cancel", "run"] | None
    webhook: str | None
    expires_at: Time | None
    unique_until: Time | None
    depends_on: list[JobId] | None
    payload: dict[str, Any] | None = Field(description="null: it was dropped")
    is_payload_dropped: bool | None
    metadata: dict[str, Any] | None
    result: Any
    errors: list[dict[str, Any]] | None
    is_queue_paused: bool
    has_steps: bool | None
    steps: list[dict[str, Any]] | None = Field(description="what it has recorded")
    waits_for: str | None = Field(None, description="an event, by its name")
    explanation: str = Field(description="why it does not run, or what became of it")


class Cancelled(ResponseModel):
    """What became of it: cancelled, asked to stop, or it had ended before."""

    id: JobId
    outcome: Literal["cancelled", "cancel_requested", "completed", "failed"]


class RetryJob(Request):
    """From which step."""

    keep_steps: Whole | None = Field(
        None, description="its first n steps stay done; null: all"
    )


class RetriedJob(ResponseModel):
    """What it is now."""

    id: JobId
    status: Literal["pending", "waiting"]


async def _list(context: ApiContext, asked: ParsedRequest[ListJobs, None]) -> str:
    given = asked.parameters.model_dump()
    return await context.pool.read(lambda c: http.list_jobs(c, given))


async def _show(context: ApiContext, asked: ParsedRequest[JobPath, None]) -> str:
    return await context.pool.read(lambda c: http.show_job(c, asked.parameters.id))


async def _cancel(context: ApiContext, asked: ParsedRequest[JobPath, None]) -> str:
    return await context.pool.write(lambda c: http.cancel_job(c, asked.parameters.id))


async def _retry(context: ApiContext, asked: ParsedRequest[JobPath, RetryJob]) -> str:
    return await context.pool.write(
        lambda c: http.retry_job(c, asked.parameters.id, asked.body.keep_steps)
    )


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="GET",
        path="/api/jobs",
        summary="List jobs, the newest first",
        parameters=ListJobs,
        answer=JobPage,
        do=_list,
    ),
    Operation(
        method="GET",
        path="/api/jobs/{id}",
        summary="Show a job, and say in words why it does not run",
        parameters=JobPath,
        answer=Job,
        do=_show,
        problems=(404,),
    ),
    Operation(
        method="POST",
        path="/api/jobs/{id}/cancel",
        summary="Cancel a job; a running one is asked to stop",
        parameters=JobPath,
        answer=Cancelled,
        do=_cancel,
        problems=(404,),
    ),
    Operation(
        method="POST",
        path="/api/jobs/{id}/retry",
        summary="Make a failed or cancelled job pending again",
        parameters=JobPath,
        body=TypeAdapter(RetryJob),
        is_body_optional=True,
        answer=RetriedJob,
        do=_retry,
        problems=(404, 409),
    ),
)
