"""Operations that change or cancel jobs which have not ended, many at once."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from pgwake.database.statements import http
from pgwake.http.api.jobs import JobPath
from pgwake.http.context import ApiContext
from pgwake.http.fields import (
    WHOLE,
    Count,
    Instant,
    JobId,
    Key,
    Kind,
    QueueName,
    Request,
    ResponseModel,
    read_instant,
)
from pgwake.http.operation import NoParameters, Operation, ParsedRequest
from pgwake.jsontext import dumps
from pgwake.produce.options import OPTIONS

MAX_UPDATES = 10_000
FILTERS = ("ids", "queue", "kind", "concurrency_key", "unique_key", "status")

_PRIORITY, _ATTEMPTS = OPTIONS["priority"].option, OPTIONS["max_attempts"].option


def _has_no_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _change(description: str) -> Any:
    """Return a field that may be left out, though null is no value of it."""
    return Field(None, description=description, json_schema_extra=_has_no_default)


DueTime = Annotated[
    datetime | Literal["now"],
    BeforeValidator(lambda value: value if value == "now" else read_instant(value)),
    WithJsonSchema(
        {
            "anyOf": [{"const": "now"}, {"type": "string", "format": "date-time"}],
            "examples": ["now", "2027-01-31T07:00:00Z"],
        }
    ),
]


class Changes(Request):
    """What is to be different; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    priority: Annotated[int, Field(ge=_PRIORITY.low, le=_PRIORITY.high), WHOLE] = (
        _change("higher runs first; 0: by policy")
    )
    run_at: DueTime = _change("when it is due; now: what is due keeps its place")
    queue: QueueName = _change("the queue to move to")
    max_attempts: (
        Annotated[int, Field(ge=_ATTEMPTS.low, le=_ATTEMPTS.high), WHOLE] | None
    ) = _change("null: by policy")
    expires_at: Instant | None = _change(
        "cancelled if it is not started by then; null: never"
    )
    payload: dict[str, Any] = _change("merged, as RFC 7396 has it")
    metadata: dict[str, Any] | None = _change("merged likewise; null removes it")


class _ChooseJobs(Request):
    queue: QueueName | None = None
    kind: Kind | None = None
    concurrency_key: Key | None = None
    unique_key: Key | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_UPDATES), WHOLE] = MAX_UPDATES
    dry_run: bool = False

    @model_validator(mode="after")
    def _check_filters(self) -> Self:
        given = self.model_dump()
        filters = [name for name in FILTERS if name in given]
        if all(given[name] is None for name in filters):
            raise ValueError(f"say which jobs: by {', '.join(filters)}")
        return self


class CancelJobs(_ChooseJobs):
    """Which jobs, in order of id."""

    status: Literal["waiting", "pending", "running"] | None = None


class CancelledJobs(ResponseModel):
    """How many, by outcome; missed: they had ended when it was their turn."""

    cancelled: Count
    cancel_requested: Count
    missed: Count


class UpdateJobs(_ChooseJobs):
    """Which jobs, in order of id, and what is to be different."""

    ids: Annotated[list[JobId], Field(min_length=1, max_length=MAX_UPDATES)] | None = (
        None
    )
    status: Literal["waiting", "pending"] | None = None
    after: JobId | None = Field(None, description="the greatest id of the last answer")
    changes: Changes

    @model_validator(mode="after")
    def _check(self) -> "UpdateJobs":
        if not self.changes.model_fields_set:
            raise ValueError("changes is empty: say what is to be different")
        return self


class Outcome(ResponseModel):
    """What became of some of the jobs."""

    outcome: Literal[
        "updated",
        "unchanged",
        "running",
        "completed",
        "failed",
        "cancelled",
        "missed",
        "no_such_job",
    ] = Field(description="all but the first two: left as they are")
    count: Count
    ids: list[JobId]


class UpdatedJobs(ResponseModel):
    """What became of the jobs, by outcome; none of those that have none."""

    outcomes: list[Outcome]


class RunNowOutcome(ResponseModel):
    """updated; unchanged, as it was due; or what it is, and stays."""

    id: JobId
    outcome: Literal[
        "updated", "unchanged", "running", "completed", "failed", "cancelled"
    ]


async def _update(
    context: ApiContext, asked: ParsedRequest[NoParameters, UpdateJobs]
) -> str:
    given = asked.body
    # The rest, payload and metadata, comes from the text that was sent.
    changes = given.changes.model_dump(
        mode="json", exclude_unset=True, exclude={"payload", "metadata"}
    )
    return await context.pool.write(
        lambda c: http.update_jobs(c, given.model_dump(), dumps(changes), asked.text)
    )


async def _cancel(
    context: ApiContext, asked: ParsedRequest[NoParameters, CancelJobs]
) -> str:
    given = asked.body.model_dump()
    return await context.pool.write(lambda c: http.cancel_jobs(c, given))


async def _run_now(context: ApiContext, asked: ParsedRequest[JobPath, None]) -> str:
    return await context.pool.write(lambda c: http.run_now(c, asked.parameters.id))


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="POST",
        path="/api/waiting/update",
        summary="Change jobs that wait, by ids or filters: all of them, or none",
        parameters=NoParameters,
        body=TypeAdapter(UpdateJobs),
        answer=UpdatedJobs,
        do=_update,
    ),
    Operation(
        method="POST",
        path="/api/live/cancel",
        summary="Cancel jobs by filters; running ones are asked to stop",
        parameters=NoParameters,
        body=TypeAdapter(CancelJobs),
        answer=CancelledJobs,
        do=_cancel,
    ),
    Operation(
        method="POST",
        path="/api/jobs/{id}/run-now",
        summary="Have a job that waits be due now",
        parameters=JobPath,
        answer=RunNowOutcome,
        do=_run_now,
        problems=(404,),
    ),
)
