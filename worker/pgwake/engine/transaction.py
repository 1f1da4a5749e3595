"""A transaction in which a handler completes its job."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, get_args

import asyncpg
import structlog

from pgwake.database.connection import FAULTS, Connection, describe
from pgwake.database.statements.finish import complete_job, set_progresses
from pgwake.engine.finisher import Finisher
from pgwake.engine.progress import ProgressReports
from pgwake.errors import ConfigurationError, InvalidValueError, LeaseLostError
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.job import LOST_CODES, Completion, Isolation

log = structlog.get_logger()

# A statement that asyncpg has prepared is gone: the block has deallocated it.
_UNPREPARED = "26000"


class TransactionPool(Protocol):
    """Where a transaction gets its connection, and gives it back."""

    timeout: float  # seconds that a statement of ours may take

    async def acquire(self) -> Connection:
        """Return a connection that works."""

    async def release(self, connection: Connection) -> None:
        """Take one back, whatever state it is in; never raises."""

    async def lease_outcome(self, job: Attempt) -> str | None:
        """Ask elsewhere what became of a job under its lease; None: no answer."""


class Transaction:
    """Begins when it is entered; at the end of its block completes the job and commits.

    Args:
        job: The job.
        isolation: The isolation level.
        pool: Where its connection comes from.
        finisher: Told that the job is completed.
        reports: Where a last report of the job's progress may be.

    Raises:
        InvalidValueError: There is no such isolation level.
    """

    def __init__(
        self,
        job: Attempt,
        isolation: Isolation,
        pool: TransactionPool,
        finisher: Finisher,
        reports: ProgressReports,
    ) -> None:
        if isolation not in get_args(Isolation):
            raise InvalidValueError(
                f"isolation {isolation!r}: use one of {', '.join(get_args(Isolation))}"
            )
        self._job = job
        self._isolation = isolation
        self._pool = pool
        self._finisher = finisher
        self._reports = reports

    async def __aenter__(self) -> Connection:
        if self._job.completion is not None:
            what = "completed" if self._job.is_completed else "in a transaction"
            raise ConfigurationError(
                f"job {self._job.id} is {what} already: use one transaction() for all "
                "that counts together"
            )
        self._completion = self._job.completion = Completion()
        try:
            self._connection = await self._pool.acquire()
            try:
                self._transaction = self._connection.transaction(
                    isolation=self._isolation
                )
                async with asyncio.timeout(self._pool.timeout):
                    await self._transaction.start()
            except BaseException:
                _terminate(self._connection)
                await self._pool.release(self._connection)
                raise
        except BaseException:
            self._job.completion = None
            raise
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if getattr(error, "sqlstate", None) == _UNPREPARED:
            _terminate(self._connection)
        # One that was told to stop, and swallowed that, is never done.
        counts = error is None and not self._job.should_stop
        await _outlast(self._complete if counts else self._roll_back)
        if error is None and not counts:
            raise asyncio.CancelledError(f"told to stop: {self._job.stop_reason}")

    async def _complete(self) -> None:
        """Complete the job and commit; or roll back, and raise."""
        try:
            await self._write_end()
            await self._commit()
        finally:
            if not self._completion.is_done:
                self._job.completion = None
            await self._pool.release(self._connection)

    async def _write_end(self) -> None:
        job, connection = self._job, self._connection
        try:
            _check_open(connection)
            async with asyncio.timeout(self._pool.timeout):
                for text in self._reports.newest([job]).values():
                    await _report(connection, job, text)
                await complete_job(
                    connection, job.id, job.lease_id, self._completion.result
                )
        except Exception as error:
            await self._undo()
            if getattr(error, "sqlstate", None) == _UNPREPARED:
                _terminate(self._connection)
            if (
                isinstance(error, asyncpg.PostgresError)
                and error.sqlstate in LOST_CODES
            ):
                raise self._lease_lost() from error
            raise

    async def _commit(self) -> None:
        job = self._job
        try:
            async with asyncio.timeout(self._pool.timeout):
                await self._transaction.commit()
        except Exception as error:
            is_refused = isinstance(error, asyncpg.PostgresError)
            if is_refused and not _is_closed(self._connection):
                raise  # and rolled back
            # Nobody knows whether it has committed: the answer is lost.
            _terminate(self._connection)
            outcome = await self._pool.lease_outcome(job)
            log.warning(
                "answer to a commit lost",
                job=job.id,
                kind=job.kind,
                error=describe(error),
                outcome=outcome or "unknown",
            )
            if outcome in (None, "held"):
                # Not committed, or not yet: then it has the row locked, and the end
                # that is written next waits for it, and is refused.
                raise
            if outcome != "completed":
                raise self._lease_lost() from error
        self._completion.is_done = True
        self._finisher.completed(job)

    async def _roll_back(self) -> None:
        self._job.completion = None
        await self._undo()
        await self._pool.release(self._connection)

    async def _undo(self) -> None:
        """Roll back; by the end of the session, if need be."""
        try:
            async with asyncio.timeout(self._pool.timeout):
                await self._transaction.rollback()
        except FAULTS:
            _terminate(self._connection)

    def _lease_lost(self) -> LeaseLostError:
        self._job.lose_lease()
        return LeaseLostError(
            f"the lease of job {self._job.id} is lost: nothing was written"
        )


async def _report(connection: Connection, job: Attempt, text: str | None) -> None:
    # One that is refused must not harm the rest; Reports tells of it.
    with suppress(asyncpg.PostgresError):
        async with connection.transaction():
            await set_progresses(connection, [job.id], [job.lease_id], [text])


def _check_open(connection: Connection) -> None:
    """Refuse to complete a job without what the block has written."""
    if _is_closed(connection):
        raise ConnectionError("the block's connection is lost, and what it wrote")
    if not connection.is_in_transaction():
        raise ConfigurationError(
            "the block has ended its transaction itself: leave the commit to the end "
            "of the block, and raise to roll back"
        )


def _is_closed(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # it has left the pool since it is closed
        return True


def _terminate(connection: Connection) -> None:
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


async def _outlast(work: Callable[[], Awaitable[None]]) -> None:
    """Do it to its end, though the task is cancelled meanwhile; pass that on then."""
    doing = asyncio.ensure_future(work())
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            cancelled = error
    doing.result()
    if cancelled is not None:
        raise cancelled
