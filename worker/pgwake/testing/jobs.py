"""What a test holds: it runs due jobs, sees what is enqueued, moves the clock."""

import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import closing
from datetime import datetime, timedelta
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

from pgwake.database.connection import Connection
from pgwake.database.session import Session
from pgwake.database.statements import testing as queue
from pgwake.database.statements.produce import answer, emit_event
from pgwake.database.statements.upkeep import declare_kinds
from pgwake.errors import InvalidValueError
from pgwake.jobs.registry import Registry
from pgwake.jobs.registry import registry as default_registry
from pgwake.jsontext import dumps
from pgwake.testing.connections import BorrowedSession, adapter_of
from pgwake.testing.databases import WORKER, open_session
from pgwake.testing.enqueued import Enqueued, ExpectedJob, JobFilter, span
from pgwake.testing.inline import InlineRunner, Run
from pgwake.testing.threads import CallersThread

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


def _noted(method: F) -> F:
    """Note each call, for forgotten()."""

    @functools.wraps(method)
    def call(jobs: "Jobs", *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        made = method(jobs, *arguments, **named)
        jobs.calls.append((method.__name__, made))
        return made

    return cast("F", call)


class Jobs:
    """The jobs of a test's database, for tests that are coroutines.

    The fixture pgwake_jobs is one. Without it:

        jobs = Jobs.of(url)

    Every method but on() is to be awaited.

    Args:
        open_session: Opens what to work on, for each call; given where to call what
            blocks.
        registry: The handlers.
        resources: Values that handlers get in place of resources, by type.
    """

    def __init__(
        self,
        open_session: Callable[[Executor | None], Session],
        registry: Registry,
        resources: Mapping[Any, Any] = {},
    ) -> None:
        self.threads: Executor | None = None  # the event loop's
        self.calls: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self._open_session = open_session
        self._registry = registry
        self._resources = resources

    @classmethod
    def of(
        cls,
        url: str,
        registry: Registry | None = None,
        resources: Mapping[Any, Any] = {},
    ) -> "Jobs":
        """Return the jobs of a database; registry: pgwake's own by default."""
        return cls(lambda _: open_session(url), registry or default_registry, resources)

    def on(self, connection: object) -> "Jobs":
        """Return the same on a connection of yours, in its open transaction.

        So a test that is rolled back at its end sees and runs what it has enqueued.

        Args:
            connection: Of asyncpg or psycopg 3, or an SQLAlchemy session or connection
                on one of them. Handlers don't get it: they use what they always use.

        Raises:
            InvalidValueError: It is none of these.
        """
        adapter = adapter_of(connection)
        jobs = Jobs(
            lambda threads: BorrowedSession(adapter, threads),
            self._registry,
            self._resources,
        )
        jobs.calls = self.calls
        return jobs

    @_noted
    async def run_due(self, *, raises: bool = True, limit: int = 1000) -> list[Run]:
        """Run every job that is due, and what these enqueue, until none is.

        One after the other, in this process, by the worker's own code on the queue's
        own functions: payloads are validated, results stored, failed attempts retried
        by the handlers' policy. A retry is due after its backoff: move the clock.
        Schedules whose tick has come are fired. Jobs of a paused queue, or over a limit
        of their queue, stay.

        Args:
            raises: Raise what a handler raises, once it is recorded, other than Snooze,
                Retry and Discard; also that a kind has no handler. With False go on.
            limit: How many jobs may run.

        Returns:
            What has run, in order.

        Raises:
            AssertionError: More jobs than limit are due, a kind has no handler, a
                payload does not fit, or an attempt timed out.
            BaseException: What a handler has raised, with its traceback.
        """
        __tracebackhide__ = True
        with closing(self._open_session(self.threads)) as session:
            await session.call(self._declare, is_first=True)
            runner = InlineRunner(
                session, self._registry, self._resources, self.threads, raises=raises
            )
            return await runner.run(limit)

    @_noted
    async def declare(self) -> None:
        """Declare the handlers' policy, as a worker does when it starts.

        run_due() does it too; priorities and checked payloads count from the insert on.
        """
        await self._ask(self._declare)

    @_noted
    async def enqueued(
        self, kind: str | None = None, *, queue: str | None = None
    ) -> list[Enqueued]:
        """Return the jobs that are to run, due or not, the oldest first.

        Args:
            kind: Only of this kind.
            queue: Only of this queue.
        """
        return [
            job
            for job in await self._list_enqueued()
            if kind in (None, job.kind) and queue in (None, job.queue)
        ]

    @_noted
    async def assert_enqueued(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        count: int | None = None,
        **like: Unpack[JobFilter],
    ) -> list[Enqueued]:
        """Fail unless such a job is to run.

        Args:
            kind: Its kind.
            payload: What its payload has at least; lists are compared whole.
            count: How many there are to be; None: one or more.
            queue: Its queue.
            run_at: When it is due, with an offset from UTC.
            delay: How long after its enqueuing it is due; seconds or a timedelta.
            within: How far off run_at and delay may be; seconds or a timedelta, by
                default one second.

        Returns:
            Those that are so, the oldest first.

        Raises:
            AssertionError: There are none, or not so many.
        """
        __tracebackhide__ = True
        wanted = ExpectedJob(kind, payload, **like)
        jobs = await self._list_enqueued()
        found = wanted.among(jobs)
        if not found if count is None else len(found) != count:
            several = "" if count is None else f", not {count}"
            raise AssertionError(
                f"{len(found) or 'no'} job {wanted} is to run{several}\n"
                + wanted.instead(jobs)
            )
        return found

    @_noted
    async def assert_not_enqueued(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        **like: Unpack[JobFilter],
    ) -> None:
        """Fail if such a job is to run; arguments as for assert_enqueued.

        Raises:
            AssertionError: There is one.
        """
        __tracebackhide__ = True
        wanted = ExpectedJob(kind, payload, **like)
        jobs = await self._list_enqueued()
        if found := wanted.among(jobs):
            raise AssertionError(
                f"{len(found)} job {wanted} is to run\n{wanted.instead(jobs)}"
            )

    @_noted
    async def emit(self, name: str, payload: Any = None) -> bool:
        """Emit an event, as somebody would whom a job waits for; see AsyncQueue.emit.

        The jobs that wait go on in the next run_due().
        """
        question = emit_event(dumps({"name": name, "payload": payload}))
        return await self._ask(lambda connection: answer(connection, question))

    @_noted
    async def now(self) -> datetime:
        """Return the queue's clock."""
        return await self._ask(queue.now)

    @_noted
    async def move_clock(self, by: timedelta | float) -> None:
        """Move the queue's clock forward; it runs on from there.

        It is pgwake.now(), by which jobs are due and leases run out: not the server's
        now(), nor Python's. The fixtures move that of the test's database, for all its
        sessions, open ones too (but a transaction keeps the time that it began at);
        on(connection) that of the connection, until its transaction ends if one is
        open.

        Args:
            by: Seconds or a timedelta, not negative.

        Raises:
            InvalidValueError: It is negative.
        """
        await self._move_clock(span("move_clock", by))

    @_noted
    async def move_clock_to(self, when: datetime) -> None:
        """Move the queue's clock forward to an instant; see move_clock.

        Args:
            when: With an offset from UTC, not before the clock.

        Raises:
            InvalidValueError: It has no offset, or is before the clock.
        """
        if when.tzinfo is None:
            raise InvalidValueError(f"move_clock_to({when}): give it a time zone")
        now = await self._ask(queue.now)
        if when < now:
            raise InvalidValueError(
                f"move_clock_to({when.isoformat()}): the clock is at"
                f" {now.isoformat()}, and moves forward only"
            )
        await self._move_clock(when - now)

    def forgotten(self) -> list[str]:
        """Return the methods that were called and not awaited: nothing was checked."""
        names = []
        for name, call in self.calls:
            if getcoroutinestate(call) == CORO_CREATED:
                call.close()  # else Python warns of it, too
                names.append(name)
        return names

    async def _declare(self, connection: Connection) -> None:
        await declare_kinds(connection, dumps(self._registry.declaration), "", WORKER)

    async def _list_enqueued(self) -> list[Enqueued]:
        return [Enqueued(*row) for row in await self._ask(queue.list_enqueued)]

    async def _move_clock(self, by: timedelta) -> None:
        with closing(self._open_session(self.threads)) as session:
            if isinstance(session, BorrowedSession):
                await session.call(
                    lambda c: queue.move_session_clock(
                        c, by, in_transaction=session.is_in_transaction
                    )
                )
            else:
                await session.call(lambda c: queue.move_clock(c, by), is_first=True)

    async def _ask(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        with closing(self._open_session(self.threads)) as session:
            return await session.call(query, is_first=True)


def _blocking(
    method: Callable[Concatenate[Jobs, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncJobs", P], T]:
    @functools.wraps(method)
    def call(jobs: "SyncJobs", /, *arguments: P.args, **named: P.kwargs) -> T:
        __tracebackhide__ = True
        return jobs.thread.run(method(jobs.jobs, *arguments, **named))

    return call


class SyncJobs:
    """The same for plain tests: every method returns when it is done.

    Plain handlers run in the thread that calls run_due(), where Django's connection is
    the test's own.
    """

    def __init__(self, jobs: Jobs) -> None:
        self.thread = jobs.threads = CallersThread()
        self.jobs = jobs

    @classmethod
    def of(
        cls,
        url: str,
        registry: Registry | None = None,
        resources: Mapping[Any, Any] = {},
    ) -> "SyncJobs":
        """Return the jobs of a database; registry: pgwake's own by default."""
        return cls(Jobs.of(url, registry, resources))

    def on(self, connection: object) -> "SyncJobs":
        """Return the same on a connection of yours, in its open transaction.

        Args:
            connection: Of psycopg 3, an SQLAlchemy session or connection on it, or
                django.db.connection.
        """
        return SyncJobs(self.jobs.on(connection))

    run_due = _blocking(Jobs.run_due)
    declare = _blocking(Jobs.declare)
    enqueued = _blocking(Jobs.enqueued)
    assert_enqueued = _blocking(Jobs.assert_enqueued)
    assert_not_enqueued = _blocking(Jobs.assert_not_enqueued)
    emit = _blocking(Jobs.emit)
    now = _blocking(Jobs.now)
    move_clock = _blocking(Jobs.move_clock)
    move_clock_to = _blocking(Jobs.move_clock_to)
