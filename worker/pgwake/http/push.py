"""The operation that pushes jobs: all of a request, or none."""

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import asyncpg
from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    model_validator,
)

from pgwake.connection import Connection
from pgwake.http.desk import Desk
from pgwake.http.fields import WHOLE, Answer, Instant, JobId, Key, Kind, Request
from pgwake.http.operation import Asked, Operation
from pgwake.http.problems import problem_of
from pgwake.http.queues import Named
from pgwake.queue import web

MAX_JOBS = 10_000
MAX_DELAY = 100 * 365 * 86_400.0

Priority = Annotated[int, Field(ge=-100, le=100), WHOLE]
Attempts = Annotated[int, Field(ge=1, le=10_000), WHOLE]
Webhook = Annotated[str, Field(pattern=r"^https?://[^\s/]", max_length=2048)]


class NewJob(Request):
    """A job that is to be pushed; what is left out, or null, has its default."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "send_email", "payload": {"to": "a@example.org"}},
                {"kind": "sync", "unique_key": "customer 7", "delay_seconds": 60},
            ]
        }
    )

    kind: Kind
    payload: dict[str, Any] = Field({}, description="for the handler; at most 1 MiB")
    priority: Priority | None = Field(
        None, description="higher runs first; 0, the default: by policy"
    )
    run_at: Instant | None = Field(None, description="when it is due; default at once")
    delay_seconds: float | None = Field(
        None, ge=0, le=MAX_DELAY, allow_inf_nan=False, description="instead of run_at"
    )
    max_attempts: Attempts | None = Field(
        None, description="until the dead letters; default by policy"
    )
    unique_key: Key | None = Field(None, description="unique with kind among live jobs")
    on_conflict: Literal["return", "replace", "raise"] | None = Field(
        None, description="if unique_key is taken; default return: the live job's id"
    )
    metadata: dict[str, Any] | None = Field(None, description="for people and tools")
    concurrency_key: Key | None = Field(
        None, description="jobs with one key wait for each other"
    )
    depends_on: Annotated[list[JobId], Field(max_length=10_000)] | None = Field(
        None, description="ids of jobs that have to complete before"
    )
    on_parent_failure: Literal["cancel", "run"] | None = Field(
        None, description="if one of those fails; default cancel"
    )
    webhook: Webhook | None = Field(None, description="a URL that hears how it ended")

    @model_validator(mode="after")
    def _check(self) -> "NewJob":
        if self.run_at is not None and self.delay_seconds is not None:
            raise ValueError(
                "run_at and delay_seconds are both given: give one of them"
            )
        return self

    def options(self, queue: str) -> dict[str, Any]:
        """Return all but payload and metadata, as enqueue_many takes it."""
        found = self.model_dump(
            exclude={"payload", "metadata", "run_at", "delay_seconds"},
            exclude_none=True,
        )
        if self.run_at is not None:
            found["run_at"] = self.run_at.isoformat()
        if self.delay_seconds is not None:
            found["delay"] = f"{self.delay_seconds:.6f} seconds"
        return {**found, "queue": queue}


class NewJobs(Request):
    """Jobs that are to be pushed, all or none."""

    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MAX_JOBS)]


class Pushed(Answer):
    """A job that was pushed."""

    id: JobId
    is_new: bool = Field(description="false: a live job has its unique key")


class PushedJobs(Answer):
    """The jobs, in the order of the request."""

    ids: list[JobId]
    jobs: list[Pushed]


def _form(value: Any) -> str:
    return "(many)" if isinstance(value, dict) and "jobs" in value else "(one)"


Push = Annotated[
    Annotated[NewJob, Tag("(one)")] | Annotated[NewJobs, Tag("(many)")],
    Discriminator(_form),
]


@dataclass(frozen=True, slots=True)
class _Batch:
    """The jobs of a request, as the database takes them."""

    text: str
    options: str
    is_batch: bool
    count: int

    async def add(self, connection: Connection) -> str:
        """Add all; tell which are new."""
        ids = await self._add(connection, 0, self.count)
        return await web.pushed(connection, ids)

    async def find_refused(self, connection: Connection) -> int | None:
        """Find the first job that can't be added after those before it; None: none."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high + 1) // 2 if high - low > 1 else high
            await web.save(connection)
            try:
                await self._add(connection, low, middle)
            except asyncpg.PostgresError:
                if high - low == 1:
                    return low
                await web.undo(connection)
                high = middle
            else:
                low = middle
        return None

    async def _add(self, connection: Connection, low: int, high: int) -> list[int]:
        return list(
            await web.push(
                connection,
                self.text,
                self.options,
                is_batch=self.is_batch,
                places=(low, high),
            )
        )


def _prepared(asked: Asked[Named, NewJob | NewJobs]) -> _Batch:
    given = asked.body
    is_batch = isinstance(given, NewJobs)
    jobs = given.jobs if isinstance(given, NewJobs) else [given]
    options = [job.options(asked.parameters.name) for job in jobs]
    return _Batch(asked.text, json.dumps(options), is_batch, len(jobs))


async def _push(desk: Desk, asked: Asked[Named, NewJob | NewJobs]) -> str:
    batch = await asyncio.to_thread(_prepared, asked)
    try:
        return await desk.pool.write(batch.add)
    except asyncpg.PostgresError as error:
        problem = problem_of(error)
        if batch.is_batch and problem.status in (409, 422):
            problem.fields["index"] = await _found(desk, batch)
        raise problem from error


async def _found(desk: Desk, batch: _Batch) -> int | None:
    """Return which job is refused; None: it could not be found in time."""

    async def find(connection: Connection) -> None:
        raise _FoundError(await batch.find_refused(connection))

    try:
        await desk.pool.write(find)
    except _FoundError as found:
        return found.place
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pass
    return None


class _FoundError(Exception):
    """Carries what was found out of a transaction that is rolled back."""

    def __init__(self, place: int | None) -> None:
        super().__init__()
        self.place = place


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="POST",
        path="/queues/{name}/push",
        summary="Push a job, or up to 10,000: all in one transaction, or none",
        parameters=Named,
        body=TypeAdapter(Push),
        answer=PushedJobs,
        do=_push,
        status=201,
        problems=(409,),
    ),
)
