"""What a worker does for the jobs that it runs, when their handlers ask for it."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import asyncpg

from pgwake.database import connection as connections
from pgwake.database.connection import Connection, backoff, is_transient
from pgwake.database.session import Session
from pgwake.database.statements.finish import parent_results
from pgwake.engine.finisher import Finisher
from pgwake.engine.progress import ProgressReports
from pgwake.engine.step_recorder import StepRecorder
from pgwake.engine.transaction import StepTransaction, Transaction
from pgwake.errors import LeaseLostError, NoSuchJobError, PgwakeError
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.job import LOST_CODES
from pgwake.jobs.service import Isolation, ParentResult
from pgwake.jobs.steps import Question, RecordStep
from pgwake.produce.drivers.refusals import refusals

T = TypeVar("T")


class JobServices:
    """Reports, transactions and the parents' results; one a process.

    Its connections are opened when they are needed: one for questions, and one for each
    transaction that is open at once, up to a limit, which are closed when they were
    idle for five minutes.

    Args:
        dsn: The database's URL.
        name: The application_name.
        timeout: Deadline of a connect and of a statement of its own, in seconds.
        most: How many transactions may be open at once; more wait for their turn.
        finisher: Told of jobs that are completed.
        reports: Where reports of progress go.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        timeout: float,
        most: int,
        finisher: Finisher,
        reports: ProgressReports,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.timeout = timeout
        self._dsn = dsn
        self._name = name
        self._most = most
        self._turns = asyncio.Semaphore(most)
        self._finisher = finisher
        self._reports = reports
        self._session = Session(dsn, name, "handlers", timeout)
        self._recorder = StepRecorder(self._session)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    def report(self, job: Attempt, text: str | None) -> None:
        """Write how far a job is, some time soon."""
        self._reports.put(job, text)

    def transaction(self, job: Attempt, isolation: Isolation) -> Transaction:
        """Open a transaction that completes a job."""
        return Transaction(job, isolation, self, self._finisher, self._reports)

    def step_transaction(
        self, job: Attempt, name: str, isolation: Isolation
    ) -> StepTransaction:
        """Open a transaction that records a step."""
        return StepTransaction(job, name, isolation, self)

    async def ask(self, job: Attempt, question: Question[T]) -> T:
        """Ask something for a job, under its lease.

        Raises:
            LeaseLostError: The job is somebody else's.
            InvalidArgumentError: The database refuses what was asked.
        """
        if isinstance(question, RecordStep):
            outcome, result = await self._recorder.record(job, question)
            if outcome in ("recorded", "cancel_requested"):
                return cast(T, result)
            # Asked alone, it says what is wrong.
        try:
            with refusals():
                return await self._session.call(
                    lambda connection: question(connection, job.id, job.lease_id)
                )
        except (asyncpg.PostgresError, NoSuchJobError) as error:
            if isinstance(error, asyncpg.PostgresError) and (
                error.sqlstate not in LOST_CODES
            ):
                raise
            job.lose_lease()
            raise LeaseLostError(f"the lease of job {job.id} is lost") from error

    def ask_sync(self, job: Attempt, question: Question[T]) -> T:
        """Ask from a thread of a handler's, which waits."""
        asking = self.ask(job, question)
        return asyncio.run_coroutine_threadsafe(asking, self.loop).result()

    async def parent_results(self, job: Attempt) -> list[ParentResult]:
        """Ask for what a job's parents came to."""
        rows = await self._session.call(partial(parent_results, job_id=job.id))
        return [ParentResult(*row) for row in rows]

    async def find_out(self, job: Attempt, question: Question[T]) -> T | None:
        """Ask as ask() does, as long as two statements may take; None: no answer."""
        with suppress(TimeoutError, asyncpg.PostgresError, PgwakeError):
            async with asyncio.timeout(2 * self.timeout):
                return await self.ask(job, question)
        return None

    async def acquire(self) -> Connection:
        """Return a connection of the pool, to a server that takes writes.

        Waits for its turn as long as the job may run, then tries for as long as a query
        may take.
        """
        await self._turns.acquire()
        try:
            return await self._acquire()
        except BaseException:
            self._turns.release()
            raise

    async def _acquire(self) -> Connection:
        if self._pool is None:
            self._pool = await asyncpg.create_pool(  # waits for nothing yet
                min_size=0,
                max_size=self._most,
                connect=self._connect,
                reset=partial(connections.reset, timeout=self.timeout),
            )
        failures, last = 0, None
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    try:
                        lent = cast(Connection, await self._pool.acquire())
                        await self._check(lent)
                    except Exception as error:
                        if not is_transient(error):
                            raise
                        failures, last = failures + 1, error
                        await asyncio.sleep(backoff(failures))
                    else:
                        return lent
        except TimeoutError:
            raise TimeoutError(
                f"no connection to the database within {self.timeout:g} s"
            ) from last

    async def _check(self, lent: Connection) -> None:
        """Give back what is lost, or has been demoted, since it was used last."""
        try:
            await connections.check_writable(lent)
        except BaseException:
            with suppress(asyncpg.InterfaceError):
                lent.terminate()
            await self._give_back(lent)
            raise

    async def _connect(self, *_: Any, **__: Any) -> Connection:
        connection = await connections.connect(self._dsn, self._name, self.timeout)
        await connections.lend(connection)
        return connection

    async def release(self, connection: Connection) -> None:
        """Take one back; one that can't be used again is closed."""
        self._turns.release()
        await self._give_back(connection)

    async def _give_back(self, connection: Connection) -> None:
        assert self._pool is not None  # noqa: S101, it came from there
        with suppress(*connections.FAULTS):  # upon which the pool has closed it
            await self._pool.release(cast(Any, connection), timeout=self.timeout)

    def close(self) -> None:
        """Close all connections; what is open is rolled back."""
        self._session.close()
        if self._pool is not None:
            self._pool.terminate()
