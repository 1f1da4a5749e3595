"""Steps, sleeps and waits, as a handler asks for them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, ParamSpec

from pgwake.database.statements.steps import await_event, await_job
from pgwake.errors import ConfigurationError, InvalidArgumentError
from pgwake.jobs.service import (
    Completion,
    Isolation,
    Service,
    Stoppable,
    TransactionStep,
)
from pgwake.jobs.steps import Ask, Question, Steps, T, blocking, length

P = ParamSpec("P")


class JobEnd(NamedTuple):
    """How a job ended that another one has waited for.

    Attributes:
        status: completed, failed or cancelled; None: it is gone, or never was.
        result: Its result; None if it has none.
    """

    status: str | None
    result: Any


class Stepping:
    """What a Job has of steps."""

    __slots__ = ()

    # Of an Attempt, which has slots of these names; else nothing runs it.
    task: Stoppable | None = None
    completion: Completion | None = None
    service: Service | None = None
    steps: Steps | None = None

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
        """Return the attempt's steps."""
        raise NotImplementedError

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
