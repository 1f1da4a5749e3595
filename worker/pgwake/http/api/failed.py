"""Operations on the dead letters."""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, model_validator

from pgwake.database.statements import http
from pgwake.http.context import ApiContext
from pgwake.http.fields import (
    WHOLE,
    Count,
    JobId,
    Kind,
    Limit,
    Parameters,
    QueueName,
    Request,
    ResponseModel,
    Time,
)
from pgwake.http.operation import NoParameters, Operation, ParsedRequest

MAX_AT_ONCE = 10_000

Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class ListFailed(Parameters):
    """Which groups."""

    queue: QueueName | None = None
    kind: Kind | None = None
    limit: Limit = 100


class FailedGroup(ResponseModel):
    """Dead letters of one cause."""

    fingerprint: str | None = Field(description="of the last error; null: put by hand")
    queue: QueueName
    kind: Kind
    reason: str | None
    message: str | None
    count: Count
    first_failed_at: Time
    last_failed_at: Time
    last_job_id: JobId
    is_queue_paused: bool


class FailedGroups(ResponseModel):
    """The dead letters, those that failed last first."""

    groups: list[FailedGroup]


class _ChooseFailed(Request):
    queue: QueueName | None = None
    kind: Kind | None = None
    fingerprint: Fingerprint | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_AT_ONCE), WHOLE] = 1000


class RetryFailed(_ChooseFailed):
    """Which dead letters; those that failed first come first."""

    rate: Annotated[
        float | None, Field(ge=0.001, le=1_000_000, allow_inf_nan=False)
    ] = Field(None, description="jobs a second that become due; null: all at once")
    patch: dict[str, Any] | None = Field(
        None, description="merged into each payload, as RFC 7396 has it"
    )


class PurgeFailed(_ChooseFailed):
    """Which dead letters, by one filter at least; the oldest come first."""

    dry_run: bool = False

    @model_validator(mode="after")
    def _check(self) -> "PurgeFailed":
        if self.queue is None and self.kind is None and self.fingerprint is None:
            raise ValueError("say which jobs: by queue, kind, fingerprint")
        return self


class PurgedCount(ResponseModel):
    """How many are deleted, or would be."""

    purged: Count


class RetriedCount(ResponseModel):
    """How many are pending again, and how many are not: a live job has their key."""

    retried: Count
    skipped: Count


async def _list(context: ApiContext, asked: ParsedRequest[ListFailed, None]) -> str:
    given = asked.parameters
    return await context.pool.read(
        lambda c: http.list_failed(c, given.queue, given.kind, given.limit)
    )


async def _retry(
    context: ApiContext, asked: ParsedRequest[NoParameters, RetryFailed]
) -> str:
    given = asked.body.model_dump()
    return await context.pool.write(lambda c: http.retry_failed(c, given, asked.text))


async def _purge(
    context: ApiContext, asked: ParsedRequest[NoParameters, PurgeFailed]
) -> str:
    given = asked.body.model_dump()
    return await context.pool.write(lambda c: http.purge_failed(c, given))


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="GET",
        path="/api/failed",
        summary="The dead letters, grouped by error",
        parameters=ListFailed,
        answer=FailedGroups,
        do=_list,
    ),
    Operation(
        method="POST",
        path="/api/failed/retry",
        summary="Make dead letters pending again",
        parameters=NoParameters,
        body=TypeAdapter(RetryFailed),
        answer=RetriedCount,
        do=_retry,
    ),
    Operation(
        method="POST",
        path="/api/failed/purge",
        summary="Delete dead letters for good",
        parameters=NoParameters,
        body=TypeAdapter(PurgeFailed),
        answer=PurgedCount,
        do=_purge,
    ),
)
