"""A job that this process has claimed."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Literal, Protocol
from uuid import UUID

import asyncpg

from pgwake.queue import Claim

StopReason = Literal["timeout", "cancelled", "lease_lost", "shutdown"]


class Stoppable(Protocol):
    """What runs a job, and can be told to stop."""

    def cancel(self) -> object:
        """Ask it to stop."""


class Job:
    """A claimed job, as its handler may look at it.

    Attributes:
        id: The job's id.
        kind: Its kind.
        queue: Its queue.
        attempt: Which attempt this is, from 1.
        max_attempts: The job's own limit; None: by policy.
        lease_id: The fence of this attempt.
        stop_reason: Why the handler is to stop, once it is: timeout, cancelled
            (somebody asked for it), lease_lost (another worker has the job by now) or
            shutdown. A handler in a thread can't be interrupted; it should look from
            time to time.
    """

    __slots__ = (
        "_options",
        "_payload",
        "attempt",
        "claimed_at",
        "created_at",
        "deadline",
        "id",
        "kind",
        "lease_id",
        "lease_seconds",
        "max_attempts",
        "metadata",
        "queue",
        "renewed_at",
        "started_at",
        "stop_reason",
        "stopped_at",
        "task",
    )

    def __init__(
        self, row: asyncpg.Record, claimed_at: datetime, asked_at: float
    ) -> None:
        (
            self.id,
            self.lease_id,
            self.queue,
            self.kind,
            self._payload,
            self.attempt,
            self.max_attempts,
            lease_expires_at,
            self.created_at,
            self.metadata,
            self._options,
        ) = row
        self.claimed_at = claimed_at
        self.lease_seconds: float = (lease_expires_at - claimed_at).total_seconds()
        # Monotonic from here on: this process never compares its clock with a column.
        self.renewed_at = asked_at
        self.started_at: float | None = None
        self.deadline: float | None = None
        self.stop_reason: StopReason | None = None
        self.stopped_at: float | None = None
        self.task: Stoppable | None = None

    id: int
    lease_id: UUID
    queue: str
    kind: str
    attempt: int
    max_attempts: int | None
    created_at: datetime

    @classmethod
    def from_claim(cls, claim: Claim, asked_at: float) -> list["Job"]:
        """Make the jobs of a claim that was asked for then, on the monotonic clock."""
        return [cls(row, claim.claimed_at, asked_at) for row in claim.jobs]

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind!r} attempt {self.attempt}>"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what was claimed: a copy, of which nobody is told when to stop."""
        row = (
            self.id,
            UUID(bytes=self.lease_id.bytes),
            self.queue,
            self.kind,
            self._payload,
            self.attempt,
            self.max_attempts,
            self.claimed_at + timedelta(seconds=self.lease_seconds),
            self.created_at,
            self.metadata,
            self._options,
        )
        return Job, (row, self.claimed_at, self.renewed_at)

    @property
    def payload_text(self) -> str:
        """The payload as JSON text."""
        return str(self._payload)

    @property
    def payload(self) -> dict[str, Any]:
        """The payload."""
        value: dict[str, Any] = json.loads(self._payload)
        return value

    @property
    def options(self) -> Mapping[str, Any]:
        """What the claim says beyond its fixed columns: run_at, crash_count."""
        return json.loads(self._options) if self._options else {}

    @property
    def timeout(self) -> float | None:
        """The time limit in seconds that an operator or the queue set; else None."""
        return self.options.get("timeout") if self._options else None

    @property
    def crash_count(self) -> int:
        """How often its process died or its lease ran out."""
        return int(self.options.get("crash_count", 0))

    @property
    def queue_seconds(self) -> float:
        """Seconds from being due to being claimed, by the database's clock."""
        due = self.created_at
        if self._options and (run_at := self.options.get("run_at")):
            due = datetime.fromisoformat(run_at)
        return max((self.claimed_at - due).total_seconds(), 0.0)

    @property
    def should_stop(self) -> bool:
        """Whether the handler is to stop; see stop_reason."""
        return self.stop_reason is not None

    def stop(self, reason: StopReason) -> None:
        """Ask the handler to stop: cancel it, again where it has swallowed that.

        On the loop's thread only. The first reason counts.
        """
        if self.stop_reason is None:
            self.stop_reason = reason
            self.stopped_at = monotonic()
        if self.task is not None:
            self.task.cancel()
