"""The jobs that are to run, and what an assertion looks for among them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from pgwake.errors import InvalidValueError
from pgwake.jsontext import dumps

_SHOWN = 20  # jobs in a failed assertion's message


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A job that is to run: pending, or waiting for something else.

    Attributes:
        id, queue, kind, payload, priority, metadata, unique_key, concurrency_key: As
            it was enqueued.
        run_at: When it is due.
        created_at: When it was enqueued, by the queue's clock.
        attempt: How many attempts there were: not 0 when it is to be retried.
        status: pending or waiting.
    """

    id: int
    queue: str
    kind: str
    payload: dict[str, Any]
    priority: int
    run_at: datetime
    created_at: datetime
    attempt: int
    metadata: dict[str, Any] | None
    unique_key: str | None
    concurrency_key: str | None
    status: str

    def __str__(self) -> str:
        parts = [
            f"job {self.id}: {self.kind!r} in {self.queue!r}, {dumps(self.payload)}"
        ]
        if self.run_at > self.created_at:
            parts.append(f"due {self.run_at - self.created_at} after it was enqueued")
        if self.status == "waiting":
            parts.append("waiting")
        if self.attempt:
            parts.append(f"attempt {self.attempt} has failed")
        return ", ".join(parts)


class JobFilter(TypedDict, total=False):
    """What an assertion may look for beside the kind and the payload."""

    queue: str | None
    run_at: datetime | None
    delay: timedelta | float | None
    within: timedelta | float


class ExpectedJob:
    """What an assertion looks for; see assert_enqueued.

    Raises:
        InvalidValueError: run_at has no time zone, or a span is none.
    """

    def __init__(
        self,
        kind: str,
        payload: Mapping[str, Any] | None,
        **like: Unpack[JobFilter],
    ) -> None:
        self.kind = kind
        self.payload = payload or {}
        self.queue = like.get("queue")
        self.run_at = like.get("run_at")
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise InvalidValueError(f"run_at={self.run_at}: give it a time zone")
        delay = like.get("delay")
        self.delay = None if delay is None else span("delay", delay)
        self.within = span("within", like.get("within", 1.0))

    def among(self, jobs: list[Enqueued]) -> list[Enqueued]:
        """Return the jobs that are so."""
        return [job for job in jobs if self.difference(job) is None]

    def difference(self, job: Enqueued) -> str | None:
        """Say in what a job is another one; None: in nothing."""
        if job.kind != self.kind:
            return f"kind is {job.kind!r}"
        if self.queue is not None and job.queue != self.queue:
            return f"queue is {job.queue!r}"
        if found := _difference("payload", self.payload, job.payload):
            return found
        if self.run_at is not None and abs(job.run_at - self.run_at) > self.within:
            return f"run_at is {job.run_at.isoformat()}"
        delay = job.run_at - job.created_at
        if self.delay is not None and abs(delay - self.delay) > self.within:
            return f"delay is {delay}"
        return None

    def instead(self, jobs: list[Enqueued]) -> str:
        """Say what is enqueued: those of the kind first, and why they don't fit."""
        if not jobs:
            return "nothing is enqueued"
        lines = ["enqueued:"]
        ordered = sorted(jobs, key=lambda job: job.kind != self.kind)
        for job in ordered[:_SHOWN]:
            why = self.difference(job) if job.kind == self.kind else None
            lines.append(f"  {job}" + (f"  <- {why}" if why else ""))
        if len(jobs) > _SHOWN:
            lines.append(f"  and {len(jobs) - _SHOWN} more")
        return "\n".join(lines)

    def __str__(self) -> str:
        parts = [repr(self.kind)]
        if self.payload:
            parts.append(f"with {_shown(self.payload)}")
        if self.queue is not None:
            parts.append(f"in {self.queue!r}")
        if self.run_at is not None:
            parts.append(f"due at {self.run_at.isoformat()}")
        if self.delay is not None:
            parts.append(f"due after {self.delay}")
        return " ".join(parts)


def span(what: str, value: timedelta | float) -> timedelta:
    """Return a time span of seconds or a timedelta.

    Raises:
        InvalidValueError: It is negative, or no span.
    """
    try:
        found = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        found = timedelta(-1)
    if found < timedelta(0):
        raise InvalidValueError(
            f"{what} is {value!r}: give seconds or a timedelta, not negative"
        )
    return found


def _difference(path: str, wanted: Any, found: Any) -> str | None:
    """Say where a value lacks something; objects may have more fields."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name, value in wanted.items():
            if name not in found:
                return f"{path} has no {name!r}"
            if below := _difference(f"{path}.{name}", value, found[name]):
                return below
        return None
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    return None if wanted == found else f"{path} is {_shown(found)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
