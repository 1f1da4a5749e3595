"""Queues, as producers hold them: on whatever connection they have."""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from pgwake.database.statements import produce
from pgwake.database.url import checked_url
from pgwake.errors import ConfigurationError, InvalidArgumentError
from pgwake.jsontext import dumps
from pgwake.produce.drivers import (
    AsyncAdapter,
    AsyncTarget,
    SyncAdapter,
    SyncTarget,
    adapt,
)
from pgwake.produce.drivers.bridge import BridgeAdapter
from pgwake.produce.drivers.refusals import refusals
from pgwake.produce.new_job import NewJob
from pgwake.produce.options import MAX_ID, SQL_TYPES, Options
from pgwake.produce.waiting import Ended, Wait
from pgwake.sleep import pause
from pgwake.tracing import tracing
from pgwake.tracing.tracing import NOWHERE

if TYPE_CHECKING:
    from pgwake.produce.end_listener import EndListener

T = TypeVar("T")

# The standard library's, since a producer should not have to load structlog.
log = logging.getLogger(__name__)

_CHUNK = 1 << 16  # characters of COPY that are sent at once


class AsyncQueue:
    """A queue on an asynchronous connection.

    A connection or session is used as it stands: a job is there if and only if its
    transaction commits, and an error of the database aborts that transaction as any
    error does, so call in a savepoint what may fail. Nothing here commits, rolls back
    or changes a setting. On a pool, an engine or a URL each call is a transaction of
    its own.

    Args:
        target: A URL; a connection or a pool of asyncpg, or of psycopg 3
            (AsyncConnection, AsyncConnectionPool); an AsyncSession, AsyncConnection or
            AsyncEngine of SQLAlchemy. A URL opens connections when they are needed:
            `async with` the queue, or close() it.
        listen_url: A direct connection for wait_for to hear of ends at once; by default
            the target, if that is a URL. Without one wait_for polls.

    Raises:
        ConfigurationError: The target is none of these.
    """

    def __init__(self, target: AsyncTarget, *, listen_url: str | None = None) -> None:
        adapter = adapt(target)
        if not isinstance(adapter, AsyncAdapter):
            raise ConfigurationError(f"{_name(target)} blocks: use SyncQueue")
        self._adapter = adapter
        url = target if isinstance(target, str) else None
        self._listen_url = checked_url(listen_url) if listen_url else url
        self._end_listener: EndListener | None = None
        self._turn = asyncio.Lock()

    async def enqueue(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> int:
        """Add a job; see Options for what it may have.

        Returns:
            Its id, or that of the live job with the same unique key.

        Raises:
            InvalidArgumentError: An argument can't be meant. Most are found before the
                database is asked; where it refuses, the transaction is aborted.
            DuplicateJobError: The unique key is taken, and on_conflict is raise.
            QueueFullError: The queue has a max_pending, and no room.
        """
        return await self.add(NewJob(kind, payload, **options))

    async def add(self, job: NewJob) -> int:
        """Add a job that is made already; see enqueue."""
        with tracing.enqueueing(job.kind, job.queue) as call:
            job_id = await self._ask(added(job, call.carrier))
            call.added(job_id)
        _log_added(job_id, job)
        return job_id

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[int]:
        """Add jobs by one statement, all or none; their ids, in order.

        Raises:
            InvalidArgumentError: One can't be meant; the message says which.
            DuplicateJobError: The unique key of one is taken, and its on_conflict is
                raise.
            QueueFullError: A queue has no room for its jobs.
        """
        many = [_checked(job) for job in jobs]
        with tracing.enqueueing(*_common(many)) as call:
            call.counted(len(many))
            ids = await self._ask(produce.enqueue_many(_array(many, call.carrier)))
        _log_added_many(len(ids))
        return ids

    async def copy(self, jobs: Iterable[NewJob]) -> int:
        """Add very many jobs by COPY, all or none; how many.

        The jobs may come from a generator; what that raises aborts the transaction. No
        ids are known, and a unique key that is taken is an error.

        Raises:
            InvalidArgumentError: One can't be meant.
            DuplicateJobError: A unique key is taken.
            QueueFullError: A queue has no room for its jobs.
        """
        with tracing.enqueueing(*_common(jobs)) as call:
            now = await self._ask(produce.now())
            lines = _Lines(jobs, now, call.carrier)
            with refusals():
                await self._adapter.copy(lines)
            call.counted(lines.count)
        _log_added_many(lines.count)
        return lines.count

    async def get_job(self, job_id: int) -> dict[str, Any]:
        """Return a job, all columns.

        Raises:
            NoSuchJobError: There is none.
        """
        return await self._ask(produce.get_job(_id(job_id)))

    async def cancel(self, job_id: int) -> str:
        """Cancel a job.

        Returns:
            cancelled; cancel_requested, if it runs; or how it had ended before.

        Raises:
            NoSuchJobError: There is none.
        """
        return await self._ask(produce.cancel_job(_id(job_id)))

    async def retry(self, job_id: int) -> None:
        """Make a failed or cancelled job pending again, with all its attempts.

        Raises:
            NoSuchJobError: There is none.
            InvalidArgumentError: It is in another state.
            DuplicateJobError: A live job has its unique key by now.
        """
        await self._ask(produce.retry_job(_id(job_id)))

    async def emit(
        self, name: str, payload: Any = None, *, keep: timedelta | None = None
    ) -> bool:
        """Emit an event, for all jobs that wait for it or will; see Job.wait_for.

        Args:
            name: Of the whole database, 1 to 512 bytes: "order:42:approved". An event
                is a fact: what comes twice has a number in its name.
            payload: Any JSON value of at most 1 MiB.
            keep: For how long those that ask later find it; None: 30 days.

        Returns:
            Whether it is the first of its name; the first one's payload counts.

        Raises:
            InvalidArgumentError: The name or the time can't be meant.
            InvalidValueError: The payload is no JSON value.
        """
        return await self._ask(_event(name, payload, keep))

    async def stats(self, queue: str | None = None) -> list[dict[str, Any]]:
        """Return what stands in each queue, or in one; see get_queue_stats."""
        return await self._ask(produce.stats(queue))

    async def wait_for(self, job_id: int, timeout: float | None = None) -> Ended:  # noqa: ASYNC109, it never cuts a statement short
        """Wait for the end of a job.

        Its end is heard of within milliseconds where there is a URL to listen at (see
        the class), and else found by looking, at most a second later. All who wait
        share one session, which lives as long as they do. On a connection with an open
        transaction, that stays open.

        Args:
            job_id: The job's id.
            timeout: Seconds to wait at most; None: for ever.

        Raises:
            WaitTimeoutError: It has not ended by then; it is a TimeoutError.
            NoSuchJobError: There is none, or it was deleted.
            InvalidArgumentError: This very transaction has added it, or can't see its
                end; or the timeout is nan.
        """
        wait = Wait(_id(job_id), timeout)
        if self._end_listener is None:
            # Here, since who only enqueues needs nothing of what it imports.
            from pgwake.produce.end_listener import EndListener  # noqa: PLC0415

            self._end_listener = EndListener(self._listen_url)
        async with self._end_listener.of(job_id) as end:
            while True:
                end.clear()
                async with self._turn:  # others may wait on the same connection
                    found = wait.ended(await self._ask(wait.question))
                if found is not None:
                    return found
                await pause(end, wait.seconds(hears=self._end_listener.is_heard))

    def for_threads(self) -> "SyncQueue":
        """Return this queue for threads, which wait while the running loop asks."""
        return SyncQueue(BridgeAdapter(self._adapter, asyncio.get_running_loop()))

    async def close(self) -> None:
        """Close what a URL has opened; nothing else."""
        await self._adapter.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _ask(self, question: produce.Query[T]) -> T:
        with refusals():
            answer = await self._adapter.ask(question.sql, question.argument)
        return question.read(answer)


class SyncQueue:
    """A queue on a connection that blocks; as AsyncQueue otherwise.

    Args:
        target: A Connection or a ConnectionPool of psycopg 3; a Session, a Connection
            or an Engine of SQLAlchemy; django.db.connection or one of connections.

    Raises:
        ConfigurationError: The target is none of these.
    """

    def __init__(self, target: SyncTarget | SyncAdapter) -> None:
        adapter = adapt(target)
        if not isinstance(adapter, SyncAdapter):
            raise ConfigurationError(f"{_name(target)} does not block: use AsyncQueue")
        self._adapter = adapter

    def enqueue(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> int:
        """Add a job; see AsyncQueue.enqueue."""
        return self.add(NewJob(kind, payload, **options))

    def add(self, job: NewJob) -> int:
        """Add a job that is made already; see AsyncQueue.enqueue."""
        with tracing.enqueueing(job.kind, job.queue) as call:
            job_id = self._ask(added(job, call.carrier))
            call.added(job_id)
        _log_added(job_id, job)
        return job_id

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[int]:
        """Add jobs by one statement; see AsyncQueue.enqueue_many."""
        many = [_checked(job) for job in jobs]
        with tracing.enqueueing(*_common(many)) as call:
            call.counted(len(many))
            ids = self._ask(produce.enqueue_many(_array(many, call.carrier)))
        _log_added_many(len(ids))
        return ids

    def copy(self, jobs: Iterable[NewJob]) -> int:
        """Add very many jobs by COPY; see AsyncQueue.copy."""
        with tracing.enqueueing(*_common(jobs)) as call:
            lines = _Lines(jobs, self._ask(produce.now()), call.carrier)
            with refusals():
                self._adapter.copy(lines)
            call.counted(lines.count)
        _log_added_many(lines.count)
        return lines.count

    def get_job(self, job_id: int) -> dict[str, Any]:
        """Return a job; see AsyncQueue.get_job."""
        return self._ask(produce.get_job(_id(job_id)))

    def cancel(self, job_id: int) -> str:
        """Cancel a job; see AsyncQueue.cancel."""
        return self._ask(produce.cancel_job(_id(job_id)))

    def retry(self, job_id: int) -> None:
        """Make a job pending again; see AsyncQueue.retry."""
        self._ask(produce.retry_job(_id(job_id)))

    def emit(
        self, name: str, payload: Any = None, *, keep: timedelta | None = None
    ) -> bool:
        """Emit an event; see AsyncQueue.emit."""
        return self._ask(_event(name, payload, keep))

    def stats(self, queue: str | None = None) -> list[dict[str, Any]]:
        """Return what stands in each queue, or in one; see get_queue_stats."""
        return self._ask(produce.stats(queue))

    def wait_for(self, job_id: int, timeout: float | None = None) -> Ended:
        """Wait for the end of a job, by looking; see AsyncQueue.wait_for."""
        wait = Wait(_id(job_id), timeout)
        while (found := wait.ended(self._ask(wait.question))) is None:
            time.sleep(wait.seconds())
        return found

    def _ask(self, question: produce.Query[T]) -> T:
        with refusals():
            answer = self._adapter.ask(question.sql, question.argument)
        return question.read(answer)


@overload
def Queue(target: AsyncTarget, *, listen_url: str | None = None) -> AsyncQueue: ...


@overload
def Queue(target: SyncTarget | SyncAdapter) -> SyncQueue: ...


def Queue(  # noqa: N802, what it returns is one
    target: AsyncTarget | SyncTarget | SyncAdapter, *, listen_url: str | None = None
) -> AsyncQueue | SyncQueue:
    """Return the queue on a connection, a pool, an engine or a URL.

    Its methods are awaited if those of the target are; see AsyncQueue and SyncQueue.

    Raises:
        ConfigurationError: The target is none that is known.
    """
    adapter = adapt(target)
    if isinstance(adapter, SyncAdapter):
        return SyncQueue(adapter)
    url = target if isinstance(target, str) else None
    return AsyncQueue(adapter, listen_url=listen_url or url)


def _log_added(job_id: int, job: NewJob) -> None:
    fields = {"job": job_id, "kind": job.kind, "queue": job.queue}
    log.debug("job enqueued: %(job)s, kind %(kind)r, queue %(queue)r", fields)


def _log_added_many(count: int) -> None:
    log.debug("jobs enqueued: %(count)s", {"count": count})


class _Lines:
    """The text of COPY, in chunks; how many jobs there were."""

    def __init__(
        self, jobs: Iterable[NewJob], now: datetime, trace: Mapping[str, str]
    ) -> None:
        self._jobs, self._now, self._trace = jobs, now, trace
        self.count = 0
        if isinstance(jobs, Collection):  # before the transaction is aborted by one
            for job in jobs:
                _checked(job).check_copy()

    def __iter__(self) -> Iterator[str]:
        lines: list[str] = []
        size = 0
        for job in self._jobs:
            _checked(job).check_copy()
            line = job.as_line(self._now, self._trace)
            lines.append(line)
            size += len(line)
            self.count += 1
            if size >= _CHUNK:
                yield "".join(lines)
                lines, size = [], 0
        if lines:
            yield "".join(lines)


def added(job: NewJob, trace: Mapping[str, str] = NOWHERE) -> produce.Query[int]:
    """Return the question that adds a job."""
    if job.is_for_many:
        return produce.enqueue_one(_array([job], trace))
    return produce.enqueue(job.as_json(trace), SQL_TYPES)


def _event(name: str, payload: Any, keep: timedelta | None) -> produce.Query[bool]:
    seconds = None if keep is None else f"{keep.total_seconds():f} seconds"
    event = {"name": name, "payload": payload, "keep": seconds}
    return produce.emit_event(dumps(event))


def _array(jobs: Iterable[NewJob], trace: Mapping[str, str]) -> str:
    return "[" + ",".join(job.as_json(trace, {}) for job in jobs) + "]"


def _common(jobs: Iterable[NewJob]) -> tuple[str | None, str | None]:
    """The kind and the queue of jobs for their span, if they have the same."""
    if not tracing.is_loaded() or not isinstance(jobs, Collection):
        return None, None
    found = {_checked(job).kind for job in jobs}, {job.queue for job in jobs}
    kind, queue = (names.pop() if len(names) == 1 else None for names in found)
    return kind, queue


def _checked(job: object) -> NewJob:
    if not isinstance(job, NewJob):
        raise InvalidArgumentError(
            f"one of the jobs is of type {type(job).__name__}: use NewJob, or a"
            " handler's new()"
        )
    return job


def _id(job_id: object) -> int:
    if not isinstance(job_id, int) or isinstance(job_id, bool) or abs(job_id) > MAX_ID:
        raise InvalidArgumentError(f"job_id is {job_id!r}: use a job's id, a number")
    return job_id


def _name(target: object) -> str:
    return f"{type(target).__module__}.{type(target).__qualname__}"
