"""The operation on workers: who works."""

from typing import Any

from pgwake.database.statements import http
from pgwake.http.context import ApiContext
from pgwake.http.fields import Count, Kind, QueueName, ResponseModel, Time, WorkerName
from pgwake.http.operation import NoParameters, Operation, ParsedRequest


class Worker(ResponseModel):
    """A worker, as it has last reported itself."""

    name: WorkerName
    host: str | None
    pid: int | None
    version: str | None
    queues: list[QueueName]
    kinds: list[Kind]
    started_at: Time
    seen_at: Time
    running: Count
    slots: Count | None
    is_live: bool


class Workers(ResponseModel):
    """The workers that report themselves, by name."""

    workers: list[Worker]


async def _list(context: ApiContext, _: ParsedRequest[NoParameters, None]) -> str:
    return await context.pool.read(http.list_workers)


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="GET",
        path="/api/workers",
        summary="Who works",
        parameters=NoParameters,
        answer=Workers,
        do=_list,
    ),
)
