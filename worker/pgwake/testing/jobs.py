"""What a test holds: it runs due jobs, sees what is enqueued, moves the clock."""

import asyncio
import functools
import inspect
import json
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from pgwake.database.session import Session
from pgwake.database.statements import declare_kinds
from pgwake.database.statements import testing as queue
from pgwake.errors import InvalidValueError
from pgwake.jobs.registry import Registry
from pgwake.jobs.registry import registry as default_registry
from pgwake.jsontext import dumps
from pgwake.testing.connections import Borrowed, beneath_django
from pgwake.testing.rehearsal import TIMEOUT, WORKER, Rehearsal, Run

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN = 20  # jobs in a failed assertion's message
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A job that is to run: pending, or waiting for something else.

    Attributes:
        id: The job's id.
        queue: Its queue.
        kind: Its kind.
        payload: Its payload.
        priority: Its priority.
        run_at: When it is due.
        created_at: When it was enqueued, by the queue's clock.
        attempt: How many attempts there were: not 0 when it is to be retried.
        metadata: Its metadata.
        unique_key: Its unique key.
        concurrency_key: Its concurrency key.
        status: pending or waiting.
    """

    id: int
    queue: str
    kind: str
    payload: dict[str, Any]
    priority: int
    run_at: datetime
    created_at: datetime
    attempt: int
    metadata: dict[str, Any] | None
    unique_key: str | None
    concurrency_key: str | None
    status: str

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> "Enqueued":
        """Make one of a row of list_enqueued."""
        values = list(row)
        values[3] = json.loads(row[3])
        values[8] = row[8] and json.loads(row[8])
        return cls(*values)

    def __str__(self) -> str:
        parts = [
            f"job {self.id}: {self.kind!r} in {self.queue!r}, {dumps(self.payload)}"
        ]
        if self.run_at > self.created_at:
            parts.append(f"due {self.run_at - self.created_at} after it was enqueued")
        if self.status == "waiting":
            parts.append("waiting")
        if self.attempt:
            parts.append(f"attempt {self.attempt} has failed")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What an assertion looks for."""

    kind: str
    payload: Mapping[str, Any]
    queue: str | None
    run_at: datetime | None
    delay: timedelta | None
    within: timedelta

    def difference(self, job: Enqueued) -> str | None:
        """Say in what a job is another one; None: in nothing."""
        if job.kind != self.kind:
            return f"kind is {job.kind!r}"
        if self.queue is not None and job.queue != self.queue:
            return f"queue is {job.queue!r}"
        if (found := _difference("payload", self.payload, job.payload)) is not None:
            return found
        if self.run_at is not None and abs(job.run_at - self.run_at) > self.within:
            return f"run_at is {job.run_at.isoformat()}"
        delay = job.run_at - job.created_at
        if self.delay is not None and abs(delay - self.delay) > self.within:
            return f"delay is {delay}"
        return None

    def __str__(self) -> str:
        parts = [repr(self.kind)]
        if self.payload:
            parts.append(f"with {_shown(self.payload)}")
        if self.queue is not None:
            parts.append(f"in {self.queue!r}")
        if self.run_at is not None:
            parts.append(f"due at {self.run_at.isoformat()}")
        if self.delay is not None:
            parts.append(f"due after {self.delay}")
        return " ".join(parts)


def _difference(path: str, wanted: Any, found: Any) -> str | None:
    """Say where a value lacks something; objects may have more fields."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name, value in wanted.items():
            there = found.get(name, _ABSENT)
            if there is _ABSENT:
                return f"{path} has no {name!r}"
            if (below := _difference(f"{path}.{name}", value, there)) is not None:
                return below
        return None
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    return None if wanted == found else f"{path} is {_shown(found)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


class Core:
    """What both facades do, as coroutines.

    Args:
        open_session: Opens what to work on; called anew for every call.
        registry: The handlers.
    """

    def __init__(self, open_session: Callable[[], Session], registry: Registry) -> None:
        self.open_session = open_session
        self.registry = registry
        self.threads: Executor | None = None

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
                payload does not fit, or an attempt was over its time limit.
            BaseException: What a handler has raised, with its traceback.
        """
        __tracebackhide__ = True
        session = self.open_session()
        threads = self.threads or ThreadPoolExecutor(1, "pgwake-job")
        try:
            await self._declare(session)
            rehearsal = Rehearsal(
                session,
                self.registry,
                # Any executor will do.
                cast("ThreadPoolExecutor", threads),
                raises=raises,
            )
            return await rehearsal.run(limit)
        finally:
            if threads is not self.threads:
                threads.shutdown(wait=False)
            session.close()

    async def declare(self) -> None:
        """Declare the handlers' policy, as a worker does when it starts.

        run_due() does it too; priorities and checked payloads count from the insert on.
        """
        await self._ask(self._declare)

    async def _declare(self, session: Session) -> None:
        kinds = dumps(self.registry.declaration)
        await session.call(lambda c: declare_kinds(c, kinds, "", WORKER), is_first=True)

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
            for job in await self._ask(_list_enqueued)
            if kind in (None, job.kind) and queue in (None, job.queue)
        ]

    async def assert_enqueued(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        run_at: datetime | None = None,
        delay: timedelta | float | None = None,
        count: int | None = None,
        within: timedelta | float = 1.0,
    ) -> list[Enqueued]:
        """Fail unless such a job is to run.

        Args:
            kind: Its kind.
            payload: What its payload has at least; lists are compared whole.
            queue: Its queue.
            run_at: When it is due, with an offset from UTC.
            delay: How long after its enqueuing it is due; seconds or a timedelta.
            count: How many there are to be; None: one or more.
            within: How far off run_at and delay may be; seconds or a timedelta.

        Returns:
            Those that are so, the oldest first.

        Raises:
            AssertionError: There are none, or not so many.
        """
        __tracebackhide__ = True
        wanted = _wanted(kind, payload, queue, run_at, delay, within)
        jobs = await self._ask(_list_enqueued)
        found = [job for job in jobs if wanted.difference(job) is None]
        if not found if count is None else len(found) != count:
            several = "" if count is None else f", not {count}"
            raise AssertionError(
                f"{len(found) or 'no'} job {wanted} is to run{several}\n"
                + _told(wanted, jobs)
            )
        return found

    async def assert_not_enqueued(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        run_at: datetime | None = None,
        delay: timedelta | float | None = None,
        within: timedelta | float = 1.0,
    ) -> None:
        """Fail if such a job is to run; arguments as for assert_enqueued.

        Raises:
            AssertionError: There is one.
        """
        __tracebackhide__ = True
        wanted = _wanted(kind, payload, queue, run_at, delay, within)
        jobs = await self._ask(_list_enqueued)
        found = [job for job in jobs if wanted.difference(job) is None]
        if found:
            raise AssertionError(
                f"{len(found)} job {wanted} is to run\n" + _told(wanted, jobs)
            )

    async def now(self) -> datetime:
        """Return the queue's clock."""
        return await self._ask(lambda session: session.call(queue.now))

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
        step = _span("move_clock", by)

        async def move(session: Session) -> None:
            if not isinstance(session, Borrowed):
                await session.call(lambda c: queue.move_clock(c, step))
                return
            local = await session.is_in_transaction()
            await session.call(
                lambda c: queue.move_session_clock(c, step, in_transaction=local)
            )

        await self._ask(move)

    async def move_clock_to(self, when: datetime) -> None:
        """Move the queue's clock forward to an instant; see move_clock.

        Args:
            when: With an offset from UTC, not before the clock.

        Raises:
            InvalidValueError: It has no offset, or is before the clock.
        """
        if when.tzinfo is None:
            raise InvalidValueError(f"move_clock_to({when}): give it a time zone")
        now = await self.now()
        if when < now:
            raise InvalidValueError(
                f"move_clock_to({when.isoformat()}): the clock is at"
                f" {now.isoformat()}, and moves forward only"
            )
        await self.move_clock(when - now)

    async def _ask(self, question: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        session = self.open_session()
        try:
            return await question(session)
        finally:
            session.close()


async def _list_enqueued(session: Session) -> list[Enqueued]:
    rows = await session.call(queue.list_enqueued, is_first=True)
    return [Enqueued.from_row(row) for row in rows]


def _wanted(
    kind: str,
    payload: Mapping[str, Any] | None,
    queue: str | None,
    run_at: datetime | None,
    delay: timedelta | float | None,
    within: timedelta | float,
) -> _Wanted:
    if run_at is not None and run_at.tzinfo is None:
        raise InvalidValueError(f"run_at={run_at}: give it a time zone")
    return _Wanted(
        kind,
        payload or {},
        queue,
        run_at,
        None if delay is None else _span("delay", delay),
        _span("within", within),
    )


def _span(what: str, value: timedelta | float) -> timedelta:
    try:
        span = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        span = timedelta(-1)
    if span < timedelta(0):
        raise InvalidValueError(
            f"{what} is {value!r}: give seconds or a timedelta, not negative"
        )
    return span


def _told(wanted: _Wanted, jobs: list[Enqueued]) -> str:
    """Say what is enqueued instead: those of the kind first, and why they don't fit."""
    if not jobs:
        return "nothing is enqueued"
    lines = ["enqueued:"]
    ordered = sorted(jobs, key=lambda job: job.kind != wanted.kind)
    for job in ordered[:_SHOWN]:
        why = wanted.difference(job) if job.kind == wanted.kind else None
        lines.append(f"  {job}" + (f"  <- {why}" if why else ""))
    if len(jobs) > _SHOWN:
        lines.append(f"  and {len(jobs) - _SHOWN} more")
    return "\n".join(lines)


class Call(Generic[T]):
    """What a call of Jobs returns: to be awaited, which the fixture checks."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.name = name
        self.was_awaited = False
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        self.was_awaited = True
        return self._work().__await__()


def _awaited(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Jobs", P], Call[T]]:
    @functools.wraps(method)
    def call(jobs: "Jobs", /, *arguments: P.args, **named: P.kwargs) -> Call[T]:
        inspect.signature(method).bind(None, *arguments, **named)  # raises here
        made = Call(method.__name__, lambda: method(jobs.core, *arguments, **named))
        jobs.calls.append(made)
        return made

    return call


def _blocking(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncJobs", P], T]:
    @functools.wraps(method)
    def call(jobs: "SyncJobs", /, *arguments: P.args, **named: P.kwargs) -> T:
        __tracebackhide__ = True
        return _run_blocking(jobs.core, lambda: method(jobs.core, *arguments, **named))

    return call


class Jobs:
    """The jobs of a test's database, for tests that are coroutines.

    The fixture pgwake_jobs is one. Without it:

        jobs = Jobs.on(connection)

    Every method but on() is to be awaited.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.calls: list[Call[Any]] = []

    @classmethod
    def of(cls, url: str, registry: Registry | None = None) -> "Jobs":
        """Return the jobs of a database; registry: pgwake's own by default."""
        return cls(core_of(url, registry))

    def on(self, connection: object) -> "Jobs":
        """Return the same on a connection of yours, in its open transaction.

        So a test that is rolled back at its end sees and runs what it has enqueued.

        Args:
            connection: Of asyncpg or psycopg 3, or an SQLAlchemy session or connection
                on one of them. Handlers don't get it: they use what they always use.
        """
        jobs = Jobs(_core_on(connection, self.core.registry))
        jobs.calls = self.calls
        return jobs

    run_due = _awaited(Core.run_due)
    declare = _awaited(Core.declare)
    enqueued = _awaited(Core.enqueued)
    assert_enqueued = _awaited(Core.assert_enqueued)
    assert_not_enqueued = _awaited(Core.assert_not_enqueued)
    now = _awaited(Core.now)
    move_clock = _awaited(Core.move_clock)
    move_clock_to = _awaited(Core.move_clock_to)

    def forgotten(self) -> list[str]:
        """Return the methods that were called and not awaited: nothing was checked."""
        return [call.name for call in self.calls if not call.was_awaited]


class SyncJobs:
    """The same for plain tests: every method returns when it is done.

    Plain handlers run in the thread that calls run_due(), where Django's connection is
    the test's own.
    """

    def __init__(self, core: Core) -> None:
        self.core = core

    @classmethod
    def of(cls, url: str, registry: Registry | None = None) -> "SyncJobs":
        """Return the jobs of a database; registry: pgwake's own by default."""
        return cls(core_of(url, registry))

    def on(self, connection: object) -> "SyncJobs":
        """Return the same on a connection of yours, in its open transaction.

        Args:
            connection: Of psycopg 3, an SQLAlchemy session or connection on it, or
                django.db.connection.
        """
        return SyncJobs(_core_on(connection, self.core.registry))

    run_due = _blocking(Core.run_due)
    declare = _blocking(Core.declare)
    enqueued = _blocking(Core.enqueued)
    assert_enqueued = _blocking(Core.assert_enqueued)
    assert_not_enqueued = _blocking(Core.assert_not_enqueued)
    now = _blocking(Core.now)
    move_clock = _blocking(Core.move_clock)
    move_clock_to = _blocking(Core.move_clock_to)


def core_of(url: str, registry: Registry | None = None) -> Core:
    """Return what works on a database by a session of its own for each call."""
    return Core(
        lambda: Session(url, WORKER, "testing", TIMEOUT), registry or default_registry
    )


def _core_on(connection: object, registry: Registry) -> Core:
    found = beneath_django(connection)
    return Core(lambda: Borrowed(found), registry)


class _CallersThread(Executor):
    """Runs what is submitted in the thread that asked for it all."""

    def __init__(self) -> None:
        self.work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs
    ) -> "Future[T]":
        future: Future[T] = Future()

        def run() -> None:
            future.set_result(function(*arguments, **named))

        self.work.put(run)
        return future


def _run_blocking(core: Core, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a thread, on a loop of its own, and plain handlers in this."""
    __tracebackhide__ = True
    threads = core.threads = _CallersThread()
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(asyncio.run(make()))
        except BaseException as error:  # noqa: BLE001, raised again below
            done.set_exception(error)
        finally:
            threads.work.put(None)

    thread = threading.Thread(target=run, name="pgwake-testing", daemon=True)
    thread.start()
    while (step := threads.work.get()) is not None:
        step()
    thread.join()
    return done.result()
