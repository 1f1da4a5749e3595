"""A job as it was claimed, and what its handler may ask for."""

import json
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    overload,
)
from uuid import UUID

from pgwake.database.statements import Connection
from pgwake.database.statements.finish import COMPLETE_JOB
from pgwake.errors import (
    ConfigurationError,
    InvalidValueError,
    LeaseLostError,
)
from pgwake.jobs.service import Isolation, ParentResult, StopReason
from pgwake.jobs.stepping import Stepping
from pgwake.jobs.steps import Steps
from pgwake.jsontext import dumps, dumps_result, loads
from pgwake.produce.drivers import AsyncAdapter, AsyncTarget, SyncTarget, adapt
from pgwake.produce.drivers.refusals import said_by_server

if TYPE_CHECKING:
    import asyncpg

PROGRESS_BYTES = 4096
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # what the times of a claim count from
LOST_CODES = ("PW001", "PW002")  # of who ends a job that is somebody else's


class Job(Stepping):
    """A claimed job, as its handler sees it.

    In the process that has claimed it, it is an Attempt: what the engine notes of it is
    there. A copy in another process is a Job alone.

    Attributes:
        id: The job's id.
        kind: Its kind.
        queue: Its queue.
        attempt: Which attempt this is, from 1.
        max_attempts: The job's own limit; None: by policy.
        stop_reason: Why the handler is to stop, once it is: timeout, cancelled
            (somebody asked for it), lease_lost (another worker has the job by now) or
            shutdown. A handler in a thread can't be interrupted; it should look from
            time to time.
    """

    __slots__ = (
        "_claimed_at",
        "_created_at",
        "_lease_id",
        "_options",
        "_payload",
        "attempt",
        "id",
        "kind",
        "lease_seconds",
        "max_attempts",
        "metadata",
        "queue",
    )

    stop_reason: StopReason | None = None  # a slot of an Attempt

    id: int
    queue: str
    kind: str
    attempt: int
    max_attempts: int | None
    metadata: str | None
    lease_seconds: float
    _created_at: float

    def __init__(self, row: "asyncpg.Record", queue: str, claimed_at: float) -> None:
        (
            self.id,
            self._lease_id,
            self.kind,
            self._payload,
            self.attempt,
            self.max_attempts,
            lease_expires_at,
            self._created_at,
            self.metadata,
            self._options,
            _,
        ) = row
        self.queue = queue
        self._claimed_at = claimed_at
        self.lease_seconds = round(lease_expires_at - claimed_at, 6)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind!r} attempt {self.attempt}>"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what was claimed: a copy, of which nobody is told when to stop."""
        row = (
            self.id,
            UUID(bytes=self.lease_id.bytes),
            self.kind,
            self._payload,
            self.attempt,
            self.max_attempts,
            self._claimed_at + self.lease_seconds,
            self._created_at,
            self.metadata,
            self._options,
            None,
        )
        return Job, (row, self.queue, self._claimed_at)

    @property
    def lease_id(self) -> UUID:
        """The fence of this attempt; nobody can change it."""
        lease_id: UUID = self._lease_id
        return lease_id

    @property
    def created_at(self) -> datetime:
        """When it was enqueued."""
        return EPOCH + timedelta(seconds=self._created_at)

    @property
    def payload_text(self) -> str:
        """The payload as JSON text."""
        return str(self._payload)

    @property
    def payload(self) -> dict[str, Any]:
        """The payload.

        Raises:
            UnreadableValueError: Python does not read it; payload_text has it.
        """
        value: dict[str, Any] = loads(self._payload)
        return value

    @property
    def options(self) -> Mapping[str, Any]:
        """What the claim says beyond its fixed columns: run_at, crash_count."""
        if not self._options:
            return {}
        try:
            options: Mapping[str, Any] = json.loads(self._options)
        except (ValueError, RecursionError):  # what a step or an event has brought
            options = {"steps": True}
        return options

    @property
    def timeout(self) -> float | None:
        """The time limit in seconds that an operator or the queue set; else None."""
        return self.options.get("timeout") if self._options else None

    @property
    def crash_count(self) -> int:
        """How often its process died or its lease ran out."""
        return int(self.options.get("crash_count", 0)) if self._options else 0

    @property
    def queue_seconds(self) -> float:
        """Seconds from being due to being claimed, by the database's clock."""
        due = self._created_at
        if self._options and (run_at := self.options.get("run_at")):
            due = datetime.fromisoformat(run_at).timestamp()
        return max(self._claimed_at - due, 0.0)

    @property
    def should_stop(self) -> bool:
        """Whether the handler is to stop; see stop_reason."""
        return self.stop_reason is not None

    @property
    def is_completed(self) -> bool:
        """Whether its handler has completed it, by transaction()."""
        return self.completion is not None and self.completion.is_done

    def transaction(
        self, isolation: Isolation = "read_committed"
    ) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that completes the job when it commits.

            async with job.transaction() as connection:
                await connection.execute("update accounts set ...")

        At the end of the block the job is completed, in the same transaction, and all
        of it is committed: what the block wrote and what it enqueued count once, or not
        at all. What the handler does after the block it does without a job: no lease
        protects it, its result is ignored, and what it raises is logged.

        An exception in the block rolls it back and goes on; if the handler catches it,
        it may open another, or return and be completed as usual. So does the end of the
        time limit, a cancellation and a shutdown.

        Args:
            isolation: read_committed, repeatable_read or serializable. Under the last
                two whatever touches the job meanwhile, as the renewal of its lease each
                ten seconds does, makes the end fail (40001).

        Returns:
            A context manager; it gives an asyncpg connection for the block, whose
            statements take no longer than the setting query_timeout (set local
            statement_timeout changes that).

        Raises:
            ConfigurationError: The handler is not async, or has another such block.
            InvalidValueError: There is no such isolation.
            LeaseLostError: At the end of the block: the job is somebody else's, and the
                transaction was rolled back.
            asyncpg.PostgresError, OSError, TimeoutError: The database could not be
                reached, or refused; nothing of the block counts.
        """
        return self._served(
            "transaction() works in async handlers. Elsewhere make this the last "
            "statement of a transaction of your own: select pgwake.complete_job("
            "job.id, job.lease_id, result)"
        ).transaction(self, isolation)

    @overload
    def complete(
        self, target: AsyncTarget, result: Any = None
    ) -> Coroutine[Any, Any, None]: ...

    @overload
    def complete(self, target: SyncTarget, result: Any = None) -> None: ...

    def complete(
        self, target: AsyncTarget | SyncTarget, result: Any = None
    ) -> Coroutine[Any, Any, None] | None:
        """Complete the job in the open transaction of a connection of yours.

            with transaction.atomic():  # Django's; or a session of SQLAlchemy's
                order.save()
                job.complete(connection, {"sent": True})

        By its last statement, since the job's row is locked from here to the commit.
        Both count, or neither: where the transaction is rolled back, the job goes on.
        After the commit it is completed, whatever the handler returns or raises.

        Args:
            target: A connection or a session, as for Task.using(); no pool, no URL.
            result: The job's result, any JSON value of at most 1 MiB.

        Returns:
            What is to be awaited, if the calls of the target are.

        Raises:
            ConfigurationError: The target is none that is known, or in no transaction.
            InvalidValueError: The result is no JSON value, or too large.
            LeaseLostError: The job is somebody else's: let it roll the transaction
                back.
        """
        adapter = adapt(target)
        adapter.check_transaction()
        text = None if result is None else dumps_result(result)
        if isinstance(adapter, AsyncAdapter):
            return self._complete(adapter, text)
        with self._lease_refusals():
            adapter.fetch(COMPLETE_JOB, self.id, str(self.lease_id), text)
        return None

    async def _complete(self, adapter: AsyncAdapter, result: str | None) -> None:
        with self._lease_refusals():
            await adapter.fetch(COMPLETE_JOB, self.id, str(self.lease_id), result)

    @contextmanager
    def _lease_refusals(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            said = said_by_server(error)
            if said is None or said.sqlstate not in LOST_CODES:
                raise
            raise LeaseLostError(
                f"the lease of job {self.id} is lost: roll back what was written"
            ) from error

    def set_result(self, result: Any) -> None:
        """Set the result of a job that is completed by transaction(), inside the block.

        Raises:
            ConfigurationError: There is no such block.
            InvalidValueError: It is no JSON value, or larger than 1 MiB.
        """
        if self.completion is None or self.completion.is_done:
            raise ConfigurationError(
                "set_result() is for the block of transaction(); without one, return "
                "the result"
            )
        self.completion.result = "null" if result is None else dumps_result(result)

    def report_progress(self, progress: Any) -> None:
        """Say how far the job is; from any thread.

        It is shown by `pgwake show`, `list`, `stats` and `explain`, sent to who
        watches, and kept with the job when it has ended. Never waits: the newest of
        each job is written, about twice a second, and before the job's end.

        Args:
            progress: Any JSON value of at most 4 KiB; None takes back the last one.

        Raises:
            ConfigurationError: The job is not run by a worker of this process.
            InvalidValueError: It is no JSON value, or too large.
        """
        text = None if progress is None else dumps(progress)
        if text is not None and len(text.encode()) > PROGRESS_BYTES:
            raise InvalidValueError(
                f"the progress has {len(text.encode())} bytes: use at most "
                f"{PROGRESS_BYTES}, it is for people to look at"
            )
        if self.service is None:
            raise ConfigurationError(
                "report_progress() works where a worker runs the job. Elsewhere: "
                "select pgwake.set_progress(job.id, job.lease_id, progress)"
            )
        self.service.report(self, text)

    async def parent_results(self) -> list[ParentResult]:
        """Return what the jobs that this one depends on came to, in that order.

        Raises:
            ConfigurationError: The handler is not async.
            asyncpg.PostgresError: The database refused.
        """
        return await self._served(
            "parent_results() works in async handlers. Elsewhere: select * from "
            "pgwake.get_parent_results(job.id)"
        ).parent_results(self)

    def begin_steps(self) -> Steps:
        """Return the attempt's steps.

        Raises:
            ConfigurationError: The job is completed.
        """
        if self.is_completed:
            raise ConfigurationError("the job is completed: it has no more steps")
        if self.steps is None:
            claimed_at = EPOCH + timedelta(seconds=self._claimed_at)
            self.steps = Steps(self.options.get("steps"), claimed_at)  # type: ignore[misc]  # an Attempt's slot
        return self.steps
