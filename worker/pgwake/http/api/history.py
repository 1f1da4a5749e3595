"""The operation that tells the last half hour."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import Field

from pgwake.http.api.queues import NOT_DUE
from pgwake.http.context import ApiContext
from pgwake.http.fields import QueueName, ResponseModel, Time
from pgwake.http.operation import NoParameters, Operation, ParsedRequest
from pgwake.observe.history import INTERVAL_SECONDS, History, Point


class QueueHistory(ResponseModel):
    """What a queue was at each time; null: it was not there."""

    queue: QueueName
    enqueued: list[float | None] = Field(
        description="jobs a second since the last time"
    )
    completed: list[float | None]
    failed: list[float | None]
    retried: list[float | None] = Field(
        description="attempts that failed and were not the last"
    )
    pending: list[int | None] = Field(description="jobs that were due")
    scheduled: list[int | None] = Field(description=NOT_DUE)
    running: list[int | None]
    avg_queue_time_ms: list[float | None]
    avg_execution_time_ms: list[float | None]


class HistoryAnswer(ResponseModel):
    """The last half hour, as this process has seen it."""

    interval_seconds: float
    at: list[Time]
    queues: list[QueueHistory]


async def _history(context: ApiContext, _: ParsedRequest[NoParameters, None]) -> str:
    samples = context.history.samples
    last = samples[-1][0] if samples else None
    return await asyncio.to_thread(_drawn_once, context.history, last)


@lru_cache(maxsize=1)
def _drawn_once(history: History, _: datetime | None) -> str:
    """Return the history as JSON text, made once for each last sample."""
    return drawn(history)


def drawn(history: History) -> str:
    """Return the history as JSON text."""
    samples = history.samples
    names = sorted({name for _, points in samples for name in points})
    at = json.dumps([_utc(at) for at, _ in samples])
    # One by one: of 200 queues it is 2 MB, and one call would not let go of the lock.
    queues = ",".join(
        json.dumps(
            {
                "queue": name,
                "enqueued": _rates(samples, name, "enqueued"),
                "completed": _rates(samples, name, "completed"),
                "failed": _rates(samples, name, "failed"),
                "retried": _rates(samples, name, "retried"),
                "pending": _values(samples, name, "pending"),
                "scheduled": _values(samples, name, "scheduled"),
                "running": _values(samples, name, "running"),
                "avg_queue_time_ms": _values(samples, name, "queue_ms"),
                "avg_execution_time_ms": _values(samples, name, "execution_ms"),
            }
        )
        for name in names
    )
    return (
        f'{{"interval_seconds": {INTERVAL_SECONDS}, "at": {at}, "queues": [{queues}]}}'
    )


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


_Samples = Sequence[tuple[datetime, Mapping[str, Point]]]


def _values(samples: _Samples, queue: str, field: str) -> list[float | None]:
    return [
        getattr(points[queue], field) if queue in points else None
        for _, points in samples
    ]


def _rates(samples: _Samples, queue: str, field: str) -> list[float | None]:
    """Return how much a second a count has grown since the sample before."""
    counts = _values(samples, queue, field)
    rates: list[float | None] = [None] * len(samples)
    for place in range(1, len(samples)):
        before, now = counts[place - 1], counts[place]
        seconds = (samples[place][0] - samples[place - 1][0]).total_seconds()
        if before is not None and now is not None and now >= before and seconds > 0:
            rates[place] = round((now - before) / seconds, 3)
    return rates


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="GET",
        path="/api/queue/history",
        summary="The last half hour of the queues",
        parameters=NoParameters,
        answer=HistoryAnswer,
        do=_history,
    ),
)
