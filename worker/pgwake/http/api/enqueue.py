"""The operation that pushes jobs: all of a request, or none."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import asyncpg
from pydantic import Field, TypeAdapter

from pgwake.database.connection import FAULTS, Connection
from pgwake.database.statements import push
from pgwake.http.api.new_job import NewJob, NewJobs, Push
from pgwake.http.api.queues import QueuePath
from pgwake.http.context import ApiContext
from pgwake.http.fields import JobId, ResponseModel
from pgwake.http.operation import Operation, ParsedRequest
from pgwake.http.refusals import problem_of
from pgwake.observe import joblog

# SQLSTATEs by which one of the jobs is refused: ours, a check, a trigger of the users'.
_OF_ONE_JOB = ("PW", "23514", "P0001")


class Pushed(ResponseModel):
    """A job that was pushed."""

    id: JobId
    is_new: bool = Field(description="false: another job has its unique key")


class PushedJobs(ResponseModel):
    """The jobs, in the order of the request."""

    ids: list[JobId]
    jobs: list[Pushed]


@dataclass(frozen=True, slots=True)
class _Batch:
    """The jobs of a request, as the database takes them."""

    text: str
    options: str
    trace: str | None
    is_batch: bool
    count: int

    async def add(self, connection: Connection) -> str:
        """Add all; tell which are new."""
        ids = await self._add(connection, 0, self.count)
        return await push.pushed(connection, ids)

    async def find_refused(self, connection: Connection) -> int | None:
        """Find the first job that can't be added after those before it; None: none."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high + 1) // 2
            await push.save(connection)
            try:
                await self._add(connection, low, middle)
            except asyncpg.PostgresError:
                if high - low == 1:
                    return low
                await push.undo(connection)
                high = middle
            else:
                low = middle
        return None

    async def _add(self, connection: Connection, low: int, high: int) -> list[int]:
        return list(
            await push.push(
                connection,
                self.text,
                self.options,
                self.trace,
                is_batch=self.is_batch,
                places=(low, high),
            )
        )


def _prepared(asked: ParsedRequest[QueuePath, NewJob | NewJobs]) -> _Batch:
    given = asked.body
    is_batch = isinstance(given, NewJobs)
    jobs = given.jobs if isinstance(given, NewJobs) else [given]
    options = [job.options(asked.parameters.name) for job in jobs]
    trace = json.dumps(dict(asked.trace)) if asked.trace else None
    return _Batch(asked.text, json.dumps(options), trace, is_batch, len(jobs))


async def _push(
    context: ApiContext, asked: ParsedRequest[QueuePath, NewJob | NewJobs]
) -> str:
    batch = await asyncio.to_thread(_prepared, asked)
    try:
        answer = await context.pool.write(batch.add)
    except asyncpg.PostgresError as error:
        problem = problem_of(error)
        if batch.is_batch and (error.sqlstate or "").startswith(_OF_ONE_JOB):
            problem.fields["index"] = await _found(context, batch)
        raise problem from error
    if isinstance(asked.body, NewJobs):
        joblog.enqueued_many(batch.count, asked.parameters.name)
    else:
        (job_id,) = json.loads(answer)["ids"]
        joblog.enqueued(job_id, asked.body.kind, asked.parameters.name)
    return answer


async def _found(context: ApiContext, batch: _Batch) -> int | None:
    """Return which job is refused; None: it could not be found in time."""

    async def find(connection: Connection) -> None:
        raise _FoundError(await batch.find_refused(connection))

    try:
        await context.pool.write(find)
    except _FoundError as found:
        return found.place
    except FAULTS:
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
        parameters=QueuePath,
        body=TypeAdapter(Push),
        answer=PushedJobs,
        do=_push,
        status=201,
        problems=(409, 429),
    ),
)
