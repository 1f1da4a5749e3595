"""A job as it was claimed, and what its handler may ask for."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)
from uuid import UUID

from pgwake.database.statements import Connection
from pgwake.database.statements.finish import COMPLETE_JOB
from pgwake.database.statements.steps import await_event, await_job
from pgwake.errors import (
    ConfigurationError,
    InvalidArgumentError,
    InvalidValueError,
    LeaseLostError,
)
from pgwake.jobs.steps import Ask, Question, Steps, blocking, length
from pgwake.jsontext import dumps, dumps_result, loads
from pgwake.produce.drivers import AsyncAdapter, AsyncTarget, SyncTarget, adapt
from pgwake.produce.drivers.refusals import said_by_server

if TYPE_CHECKING:
    import asyncpg

P = ParamSpec("P")
T = TypeVar("T")

StopReason = Literal["timeout", "cancelled", "lease_lost", "shutdown"]
Isolation = Literal["read_committed", "repeatable_read", "serializable"]

PROGRESS_BYTES = 4096
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # what the times of a claim count from
LOST_CODES = ("PW001", "PW002")  # of who ends a job that is somebody else's


class ParentResult(NamedTuple):
    """What a job that this one depends on came to.

    Attributes:
        parent_id: Its id.
        kind: Its kind; None if it is gone, past its retention or purged.
        status: How it ended: completed, failed or cancelled; None if it is gone.
        result: Its result; None if it has none.
    """

    parent_id: int
    kind: str | None
    status: str | None
    result: Any


class JobEnd(NamedTuple):
    """How a job ended that another one has waited for.

    Attributes:
        status: completed, failed or cancelled; None: it is gone, or never was.
        result: Its result; None if it has none.
    """

    status: str | None
    result: Any


class TransactionStep(Protocol):
    """A step in a transaction of its handler's, as its block sees it.

    Attributes:
        is_done: Whether an earlier attempt has committed it: then the block has nothing
            to do, and result is what that one has left.
        result: To be set by the block, any JSON value.
    """

    is_done: bool
    result: Any

    @property
    def connection(self) -> Connection:
        """The asyncpg connection whose transaction it is, where it is to be done."""


class Service(Protocol):
    """What a worker does for the attempts that it runs, when handlers ask for it."""

    loop: asyncio.AbstractEventLoop  # where async handlers run

    def report(self, job: Any, text: str | None) -> None:
        """Write how far a job is, some time soon."""

    def transaction(
        self, job: Any, isolation: Isolation
    ) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that completes a job."""

    def step_transaction(
        self, job: Any, name: str, isolation: Isolation
    ) -> AbstractAsyncContextManager[TransactionStep]:
        """Open a transaction that records a step."""

    async def ask(self, job: Any, question: Question[T]) -> T:
        """Ask the database something for a job, on the service's loop."""

    def ask_sync(self, job: Any, question: Question[T]) -> T:
        """The same from another thread, which waits."""

    async def parent_results(self, job: Any) -> list[ParentResult]:
        """Ask for what a job's parents came to."""


class Completion:
    """The end of a job in a transaction of its handler's.

    Attributes:
        is_done: Whether it is committed.
        result: The job's result, as JSON text.
    """

    __slots__ = ("is_done", "result")

    def __init__(self) -> None:
        self.is_done = False
        self.result: str | None = None


class Stoppable(Protocol):
    """What runs a job, and can be told to stop."""

    def cancel(self) -> object:
        """Ask it to stop."""


class Job:
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

    # Of an Attempt, which has slots of these names; else nothing runs it.
    stop_reason: StopReason | None = None
    task: Stoppable | None = None
    completion: Completion | None = None
    service: Service | None = None
    steps: Steps | None = None

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

    async def step(
        self, name: str, function: Callable[P, object], /, *args: P.args, **kw: P.kwargs
    ) -> Any:
        """Do a step, unless the job has done it: then answer what that came to.

            charge = await job.step("charge", charge_card, order_id)

        A job that runs again begins at its handler's first line, and finds its steps by
        name. The function may be called more than once, where the process dies between
        its effect and the record; one whose effects are in this database belongs into
        step_transaction(). What it raises is raised here, and nothing is recorded.

        Args:
            name: The step's, its own in the handler; 1 to 512 bytes, 1,000 a job.
            function: What to call: async, or plain and quick, since the loop waits.
            args: Its arguments.
            kw: Its keyword arguments.

        Returns:
            What the function returned, as it comes out of JSON, the first time too.

        Raises:
            ConfigurationError: The name is taken, or the handler is not async.
            InvalidArgumentError: The name can't be one, or a limit is reached.
            InvalidValueError: The result is no JSON value, or larger than 1 MiB.
            LeaseLostError: The job is somebody else's: its result was not recorded.
        """
        ask, steps = self._ask("step()"), self.begin_steps()
        return await steps.run(ask, name, partial(function, *args, **kw))

    def step_sync(
        self, name: str, function: Callable[P, object], /, *args: P.args, **kw: P.kwargs
    ) -> Any:
        """Do a step in a thread or a process; see step."""
        ask, steps = self._ask_sync("step()"), self.begin_steps()
        return blocking(steps.run(ask, name, partial(function, *args, **kw)))

    def step_transaction(
        self, name: str, isolation: Isolation = "read_committed"
    ) -> AbstractAsyncContextManager[TransactionStep]:
        """Open a transaction that records a step when it commits: once, or not at all.

            async with job.step_transaction("reserve") as step:
                if not step.is_done:
                    step.result = await step.connection.fetchval("update stock ...")

        As transaction(), but the job goes on. In other handlers, in a transaction of
        your own, make this the last statement: select pgwake.record_step(job.id,
        job.lease_id, name, result).

        Args:
            name: As of step().
            isolation: As of transaction().

        Returns:
            A context manager; it gives a TransactionStep.

        Raises:
            ConfigurationError: The name is taken, or the handler is not async.
            InvalidArgumentError: The name can't be one, or a limit is reached.
            InvalidValueError: There is no such isolation; or the result is no JSON
                value, or larger than 1 MiB: nothing of the block counts.
            LeaseLostError: The job is somebody else's: nothing of the block counts.
            asyncpg.PostgresError, OSError, TimeoutError: As of transaction().
        """
        return self._served(
            "step_transaction() works in async handlers. Elsewhere make this the last "
            "statement of a transaction of your own: select pgwake.record_step("
            "job.id, job.lease_id, name, result)"
        ).step_transaction(self, name, isolation)

    async def sleep(
        self,
        name: str,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        until: datetime | None = None,
    ) -> None:
        """Have the job leave its worker, and run again when the time has come.

        Then its handler begins at its first line, and this returns. Until then the job
        is pending: it has no slot, no lease and no attempts counted.

        Args:
            name: As of step().
            days: How long, all together at most 3650 days.
            hours: Added to that.
            minutes: Added to that.
            seconds: Added to that.
            until: When to go on, with an offset from UTC, instead of how long.

        Raises:
            ConfigurationError: The name is taken; this is not the task of an async
                handler of one job; or a transaction block is open, or was the end.
            InvalidArgumentError: The name or the time can't be meant.
            Suspend: To be let through: it ends this attempt.
        """
        delay = _delay(until, timedelta(days, seconds, 0, 0, minutes, hours))
        ask, steps = self._ask("sleep()"), self._suspendable("sleep()")
        await steps.sleep(ask, name, until, delay)

    def sleep_sync(
        self,
        name: str,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        until: datetime | None = None,
    ) -> None:
        """Sleep in a handler of a thread or a process; see sleep."""
        delay = _delay(until, timedelta(days, seconds, 0, 0, minutes, hours))
        ask, steps = self._ask_sync("sleep()"), self._suspendable("sleep()")
        blocking(steps.sleep(ask, name, until, delay))

    async def wait_for(
        self,
        event: str,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109, of the job
        name: str | None = None,
    ) -> Any:
        """Have the job leave its worker until an event is emitted; see emit_event.

        At once, if it was emitted before. What comes first, the event or the end of the
        time, is recorded: every later run hears the same.

        Args:
            event: The event's name, of the whole database: "order:42:approved".
            timeout: Seconds or a timedelta, from the first call on; None: for ever.
            name: As of step(); by default the event's.

        Returns:
            The event's payload.

        Raises:
            WaitTimeoutError: It has not come in time.
            ConfigurationError, InvalidArgumentError, Suspend: As of sleep().
        """
        ask, steps = self._ask("wait_for()"), self._suspendable("wait_for()")
        return await _wait_for(steps, ask, event, timeout, name)

    def wait_for_sync(
        self,
        event: str,
        *,
        timeout: timedelta | float | None = None,
        name: str | None = None,
    ) -> Any:
        """Wait in a handler of a thread or a process; see wait_for."""
        ask, steps = self._ask_sync("wait_for()"), self._suspendable("wait_for()")
        return blocking(_wait_for(steps, ask, event, timeout, name))

    async def wait_for_job(
        self,
        job_id: int,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109, of the job
        name: str | None = None,
    ) -> JobEnd:
        """Have the job leave its worker until another one has ended.

        Args:
            job_id: The other one's id.
            timeout: As of wait_for().
            name: As of step(); by default "job" and the id.

        Returns:
            How it ended, be it as failed.

        Raises:
            WaitTimeoutError: It has not ended in time.
            ConfigurationError, InvalidArgumentError, Suspend: As of sleep().
        """
        ask, steps = self._ask("wait_for_job()"), self._suspendable("wait_for_job()")
        return await _wait_for_job(steps, ask, job_id, timeout, name)

    def wait_for_job_sync(
        self,
        job_id: int,
        *,
        timeout: timedelta | float | None = None,
        name: str | None = None,
    ) -> JobEnd:
        """Wait in a handler of a thread or a process; see wait_for_job."""
        ask = self._ask_sync("wait_for_job()")
        steps = self._suspendable("wait_for_job()")
        return blocking(_wait_for_job(steps, ask, job_id, timeout, name))

    def _ask(self, what: str) -> Ask:
        name = what.removesuffix("()")
        advice = (
            f"{what} works in async handlers that a worker runs: else {name}_sync()"
        )
        return partial(self._served(advice).ask, self)

    def _ask_sync(self, what: str) -> Ask:
        name = what.removesuffix("()")
        if self.service is None or _in_loop():
            raise ConfigurationError(
                f"{name}_sync() works in threads and processes of a worker, not on an "
                f"event loop: there await {what}"
            )
        ask_sync = partial(self.service.ask_sync, self)

        async def ask(question: Question[T]) -> T:
            return ask_sync(question)

        return ask

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

    def _suspendable(self, what: str) -> Steps:
        """Return the steps of a handler that may be left here."""
        steps = self.begin_steps()
        if self.completion is not None or steps.open_blocks:
            raise ConfigurationError(
                f"{what} in a transaction's block, which it would roll back: call it "
                "before or after"
            )
        task = self.task
        is_own = not _in_loop() or asyncio.current_task() is task
        if not is_own or not (task is None or isinstance(task, asyncio.Task)):
            raise ConfigurationError(
                f"{what} ends the attempt of one job: call it in the handler's own "
                "task, and not in a handler of many jobs a call"
            )
        return steps

    def _served(self, advice: str) -> Service:
        """Return what serves an async handler, from its own loop."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        service = self.service
        if service is None or self.task is None or service.loop is not here:
            raise ConfigurationError(advice)
        return service


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _delay(until: datetime | None, delay: timedelta) -> timedelta | None:
    if until is None:
        return length("the sleep", delay)
    if delay:
        raise InvalidArgumentError("give until, or how long: not both")
    if until.tzinfo is None:
        raise InvalidArgumentError(f"until is {until}: give it a time zone")
    return None


async def _wait_for(
    steps: Steps,
    ask: Ask,
    event: str,
    timeout: timedelta | float | None,  # noqa: ASYNC109, of the job
    name: str | None,
) -> Any:
    name = event if name is None else name
    span = length("timeout", timeout)
    wait = partial(await_event, event=event, timeout=span, name=name)
    return await steps.wait(ask, name, f"event {event!r}", wait)


async def _wait_for_job(
    steps: Steps,
    ask: Ask,
    job_id: int,
    timeout: timedelta | float | None,  # noqa: ASYNC109, of the job
    name: str | None,
) -> JobEnd:
    name = f"job {job_id}" if name is None else name
    span = length("timeout", timeout)
    wait = partial(await_job, other_id=job_id, timeout=span, name=name)
    end = await steps.wait(ask, name, f"the end of job {job_id}", wait)
    return JobEnd(end["status"], end["result"])
