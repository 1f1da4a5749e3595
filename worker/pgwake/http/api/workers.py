"""The operation on workers."""

from typing import Any

from pgwake.database.statements import http
from pgwake.http.fields import Count, Kind, QueueName, ResponseModel, Time, WorkerName
from pgwake.http.operation import Operation, listing


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


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(
        "/api/workers", "The workers that report themselves", Workers, http.list_workers
    ),
)
