"""The steps of one attempt: what is recorded is answered, the rest is done.

The same code serves async handlers, threads and processes: it awaits nothing but what
the handler hands over and `ask`, and an `ask` that blocks has nothing to await.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

from pgwake.database.statements import Connection, parsed
from pgwake.database.statements.steps import (
    RecordedStep,
    get_steps,
    record_step,
    sleep_job,
)
from pgwake.errors import (
    ConfigurationError,
    InvalidArgumentError,
    WaitTimeoutError,
)
from pgwake.jobs.outcomes import MAX_DELAY
from pgwake.jsontext import dumps, dumps_result

T = TypeVar("T")

NAME_BYTES = 512

# What is asked of the database for a job, by its id and its lease.
Question: TypeAlias = Callable[[Connection, int, UUID], Awaitable[T]]


class Ask(Protocol):
    """Asks a question for the attempt's job."""

    def __call__(self, question: Question[T]) -> Awaitable[T]:
        """Return the answer."""


@dataclass(frozen=True, slots=True)
class RecordStep:
    """The question that records a step; others may be recorded with it."""

    name: str
    result: str | None

    async def __call__(
        self, connection: Connection, job_id: int, lease_id: UUID
    ) -> str | None:
        """Record it; its result as the database has it."""
        return await record_step(connection, job_id, lease_id, self.name, self.result)


class Suspend(BaseException):
    """Unwinds a handler whose job goes to sleep or to wait.

    None of `except Exception`, so that a handler's own error handling lets it pass. Not
    to be raised by handlers; middleware may look for it, to tell it from a failure.
    """


class Suspension(NamedTuple):
    """Why a job is to leave its worker, and the statement that writes it.

    Attributes:
        reason: sleep or wait.
        write: Answers the outcome, or the outcome and a payload.
    """

    reason: str
    write: Question[str | tuple[str, str | None]]


class Steps:
    """The steps of an attempt.

    Args:
        claimed: What the claim says of steps that earlier attempts have recorded: a
            list; True if it is too long for a claim; None: there are none.
        claimed_at: When that was, by the database's clock.

    Attributes:
        suspension: Why the job is to leave, once its handler has asked for that.
        open_blocks: How many step_transaction() blocks are open.
        problem: Why no more steps may be made: it is unknown whether one is recorded.
    """

    __slots__ = ("_names", "_recorded", "open_blocks", "problem", "suspension")

    def __init__(
        self, claimed: Literal[True] | list[dict[str, Any]] | None, claimed_at: datetime
    ) -> None:
        self._names: set[str] = set()  # begun in this attempt, and not failed
        self._recorded: dict[str, RecordedStep] | None = None
        if claimed is not True:
            steps = claimed or ()
            self._recorded = {one["name"]: _claimed(one, claimed_at) for one in steps}
        self.open_blocks = 0
        self.suspension: Suspension | None = None
        self.problem: Exception | None = None

    def take(self, name: str) -> None:
        """Take a name.

        Raises:
            ConfigurationError: The attempt has such a step already.
            InvalidArgumentError: It can't be a name.
        """
        if self.suspension is not None:
            raise Suspend
        if self.problem is not None:
            raise self.problem
        if not 0 < len(str(name).encode()) <= NAME_BYTES:
            raise InvalidArgumentError(
                f"a step's name is {name!r}: use text of 1 to {NAME_BYTES} bytes"
            )
        if name in self._names:
            raise ConfigurationError(
                f"this attempt has a step {name!r} already: give each its own name, as "
                f'in f"{name}:{{address}}"'
            )
        self._names.add(name)

    def give_back(self, name: str) -> None:
        """Give a name back, since its step has failed, and may be tried again."""
        self._names.discard(name)

    @contextmanager
    def _taken(self, name: str) -> Iterator[None]:
        self.take(name)
        try:
            yield
        except BaseException:
            self.give_back(name)
            raise

    async def find(self, ask: Ask, name: str, kind: str) -> RecordedStep | None:
        """Return what is recorded under a name.

        Raises:
            ConfigurationError: It is something else.
        """
        if self._recorded is None:
            self._recorded = await ask(get_steps)
        recorded = self._recorded.get(name)
        if recorded is not None and recorded.kind != kind:
            raise ConfigurationError(
                f"{name!r} is recorded as of kind {recorded.kind}, not {kind}: what is "
                "new in a handler needs a new name"
            )
        return recorded

    async def run(self, ask: Ask, name: str, call: Callable[[], Any]) -> Any:
        """Answer a step's result, or call, record and answer."""
        with self._taken(name):
            recorded = await self.find(ask, name, "step")
            if recorded is not None:
                return parsed(recorded.result)
            value = call()
            if isawaitable(value):
                value = await value
            return parsed(await ask(RecordStep(name, dumps_result(value))))

    async def sleep(
        self, ask: Ask, name: str, until: datetime | None, delay: timedelta | None
    ) -> None:
        """Go on if the sleep is over, else suspend."""
        with self._taken(name):
            recorded = await self.find(ask, name, "sleep")
            if recorded is None or not recorded.is_past:
                write = partial(sleep_job, name=name, until=until, delay=delay)
                self._suspend("sleep", write)

    async def wait(
        self, ask: Ask, name: str, what: str, wait: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Answer what has come, else suspend.

        Raises:
            WaitTimeoutError: It has not come in time.
        """
        with self._taken(name):
            recorded = await self.find(ask, name, "event")
            if recorded is None:
                outcome, text = await ask(partial(wait, may_wait=False))
                if outcome not in ("here", "timed_out"):
                    self._suspend("wait", partial(wait, may_wait=True))
                recorded = RecordedStep("event", text, outcome == "timed_out")
        if recorded.is_past:
            raise WaitTimeoutError(f"{what} has not come in time")
        return parsed(recorded.result)

    def _suspend(self, reason: str, write: Question[Any]) -> None:
        self.suspension = Suspension(reason, write)
        raise Suspend


def _claimed(step: dict[str, Any], claimed_at: datetime) -> RecordedStep:
    until = step.get("until")
    is_past = None if until is None else datetime.fromisoformat(until) <= claimed_at
    result = dumps(step["result"]) if "result" in step else None
    return RecordedStep(step["kind"], result, is_past)


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run what awaits nothing, in this thread.

    Raises:
        ConfigurationError: It awaits something: the function that it calls is async.
    """
    try:
        work.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    work.close()
    raise ConfigurationError("step_sync() calls plain functions: in async ones, step()")


def is_suspend(error: object) -> bool:
    """Whether it is Suspend, alone or in groups of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(Suspend)[1] is None
    return isinstance(error, Suspend)


def length(what: str, value: timedelta | float | None) -> timedelta | None:
    """Return a length of time; None: without end.

    Raises:
        InvalidArgumentError: It is none, negative, or longer than 3650 days.
    """
    if value is None:
        return None
    try:
        found = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        found = timedelta(-1)
    if not timedelta(0) <= found <= MAX_DELAY:
        raise InvalidArgumentError(
            f"{what} is {value!r}: give seconds or a timedelta, from 0 to"
            f" {MAX_DELAY.days} days"
        )
    return found
