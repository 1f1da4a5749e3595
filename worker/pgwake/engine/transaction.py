"""Transactions in which a handler completes its job, or records a step."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, get_args

import asyncpg
import structlog

from pgwake.database.connection import FAULTS, Connection, describe
from pgwake.database.statements import parsed
from pgwake.database.statements.finish import (
    complete_job,
    lease_outcome,
    set_progresses,
)
from pgwake.database.statements.steps import get_steps, record_step
from pgwake.engine.finisher import Finisher
from pgwake.engine.progress import ProgressReports
from pgwake.errors import ConfigurationError, InvalidValueError, LeaseLostError
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.job import LOST_CODES
from pgwake.jobs.service import Completion, Isolation
from pgwake.jobs.steps import Question, T
from pgwake.jsontext import dumps_result
from pgwake.produce.drivers.refusals import refusals

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

    async def ask(self, job: Attempt, question: Question[T]) -> T:
        """Ask elsewhere something for a job."""

    async def find_out(self, job: Attempt, question: Question[T]) -> T | None:
        """Ask elsewhere, but not for ever; None: no answer."""


class _Block:
    """A transaction whose last statement is ours, for a job under its lease.

    Args:
        job: The job.
        isolation: The isolation level.
        pool: Where its connection comes from.

    Raises:
        InvalidValueError: There is no such isolation level.
    """

    def __init__(
        self,
        job: Attempt,
        isolation: Isolation,
        pool: TransactionPool,
    ) -> None:
        if isolation not in get_args(Isolation):
            raise InvalidValueError(
                f"isolation {isolation!r}: use one of {', '.join(get_args(Isolation))}"
            )
        self._job = job
        self._isolation = isolation
        self._pool = pool

    async def _write_last(self) -> None:
        """Write what is to be committed with what the block has written."""
        raise NotImplementedError

    async def _find_out(self, error: Exception) -> None:
        """Return if it was committed, though the answer is lost; else raise."""
        raise NotImplementedError

    async def _begin(self) -> None:
        self._connection = await self._pool.acquire()
        try:
            self._transaction = self._connection.transaction(isolation=self._isolation)
            async with asyncio.timeout(self._pool.timeout):
                await self._transaction.start()
        except BaseException:
            _terminate(self._connection)
            await self._pool.release(self._connection)
            raise

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
        await _outlast(self._end if counts else self._roll_back)
        if error is None and not counts:
            raise asyncio.CancelledError(f"told to stop: {self._job.stop_reason}")

    async def _end(self) -> None:
        """Write what is last, and commit; or roll back, and raise."""
        try:
            await self._write_end()
            await self._commit()
        finally:
            await self._pool.release(self._connection)

    async def _write_end(self) -> None:
        try:
            _check_open(self._connection)
            async with asyncio.timeout(self._pool.timeout):
                await self._write_last()
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
        try:
            async with asyncio.timeout(self._pool.timeout):
                await self._transaction.commit()
        except Exception as error:
            is_refused = isinstance(error, asyncpg.PostgresError)
            if is_refused and not _is_closed(self._connection):
                raise  # and rolled back
            # Nobody knows whether it has committed: the answer is lost.
            _terminate(self._connection)
            await self._find_out(error)

    def _tell_lost(self, error: Exception, outcome: str | None) -> None:
        log.warning(
            "answer to a commit lost",
            job=self._job.id,
            kind=self._job.kind,
            error=describe(error),
            outcome=outcome or "unknown",
        )

    async def _roll_back(self) -> None:
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


class Transaction(_Block):
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
        super().__init__(job, isolation, pool)
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
            await self._begin()
        except BaseException:
            self._job.completion = None
            raise
        return self._connection

    async def _write_last(self) -> None:
        job, connection = self._job, self._connection
        for text in self._reports.newest([job]).values():
            await _report(connection, job, text)
        await complete_job(connection, job.id, job.lease_id, self._completion.result)

    async def _end(self) -> None:
        try:
            await super()._end()
        except BaseException:
            self._job.completion = None
            raise
        self._completion.is_done = True
        self._finisher.completed(self._job)

    async def _find_out(self, error: Exception) -> None:
        outcome = await self._pool.find_out(self._job, lease_outcome)
        self._tell_lost(error, outcome)
        if outcome in (None, "held"):
            # Not committed, or not yet: then it has the row locked, and the end that is
            # written next waits for it, and is refused.
            raise error
        if outcome != "completed":
            raise self._lease_lost() from error

    async def _roll_back(self) -> None:
        self._job.completion = None
        await super()._roll_back()


class StepTransaction(_Block):
    """Begins when it is entered, unless the step is recorded: then there is none.

    At the end of its block it records the step and commits. It is the step that its
    block sees, too.

    Args:
        job: The job.
        name: The step's name.
        isolation: The isolation level.
        pool: Where its connection comes from.

    Attributes:
        is_done: Whether an earlier attempt has recorded it.
        result: The step's, to be set by the block.

    Raises:
        InvalidValueError: There is no such isolation level.
    """

    def __init__(
        self, job: Attempt, name: str, isolation: Isolation, pool: TransactionPool
    ) -> None:
        super().__init__(job, isolation, pool)
        self._name = name
        self.is_done = False
        self.result: Any = None

    @property
    def connection(self) -> Connection:
        """The connection whose transaction it is.

        Raises:
            ConfigurationError: The step is done: there is nothing to write.
        """
        if self.is_done:
            raise ConfigurationError(
                f"step {self._name!r} is done already: write only `if not step.is_done`"
            )
        return self._connection

    async def __aenter__(self) -> Self:
        self._steps = self._job.begin_steps()
        self._steps.take(self._name)
        try:
            ask = partial(self._pool.ask, self._job)
            recorded = await self._steps.find(ask, self._name, "step")
            if recorded is not None:
                self.is_done, self.result = True, parsed(recorded.result)
            else:
                await self._begin()
                self._steps.open_blocks += 1
        except BaseException:
            self._steps.give_back(self._name)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_done:
            return
        is_recorded = False
        try:
            await super().__aexit__(kind, error, trace)
            is_recorded = error is None
        finally:
            self._steps.open_blocks -= 1
            if not is_recorded:
                self._steps.give_back(self._name)

    async def _write_last(self) -> None:
        job, result = self._job, dumps_result(self.result)
        with refusals():
            await record_step(
                self._connection, job.id, job.lease_id, self._name, result
            )

    async def _find_out(self, error: Exception) -> None:
        steps = await self._pool.find_out(self._job, get_steps) or {}
        self._tell_lost(error, "recorded" if self._name in steps else None)
        if self._name not in steps:
            # Not committed, or not yet: the next attempt begins when that is known,
            # since the end of this one waits for the job's row.
            self._steps.problem = error
            raise error


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
