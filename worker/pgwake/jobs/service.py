"""What serves a handler's job, in the process that runs it."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol

from pgwake.database.statements import Connection
from pgwake.jobs.steps import Question, T

StopReason = Literal["timeout", "cancelled", "lease_lost", "shutdown"]
Isolation = Literal["read_committed", "repeatable_read", "serializable"]


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
