"""A handler as its producers hold it: to call, and to enqueue with checked types."""

import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar, Unpack, overload

from pgwake.errors import InvalidArgumentError, InvalidPayloadError, InvalidValueError
from pgwake.jobs.signature import Signature
from pgwake.produce.defaults import async_default, sync_default
from pgwake.produce.drivers import AsyncTarget, SyncTarget
from pgwake.produce.new_job import NewJob
from pgwake.produce.options import Options
from pgwake.produce.queue import AsyncQueue, Queue, SyncQueue

C = ParamSpec("C")  # what the function is called with
P = ParamSpec("P")  # the same without the job
R = TypeVar("R")


class _Maker(Generic[P]):
    """Makes jobs of a handler's arguments."""

    def __init__(self, kind: str, signature: Signature, options: Options) -> None:
        self.kind = kind
        self._signature = signature
        self._options = options

    def new(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Make the job, for enqueue_many or copy.

        Raises:
            InvalidArgumentError: An argument does not fit the handler's annotations, or
                has no JSON form.
        """
        try:
            payload = self._signature.payload(*args, **kwargs)
        except InvalidPayloadError as error:
            raise InvalidArgumentError(str(error)) from None
        except InvalidValueError as error:
            raise InvalidArgumentError(f"{self.kind}: {error}") from None
        return NewJob(self.kind, payload, **self._options)


class Call(_Maker[P]):
    """A handler with options, to be enqueued on the default queue."""

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Add a job with these arguments to the default queue, an AsyncQueue.

        Returns:
            Its id, or that of the live job with the same unique key.

        Raises:
            InvalidArgumentError: An argument does not fit the handler's annotations, or
                as AsyncQueue.enqueue.
            DuplicateJobError: As AsyncQueue.enqueue.
            ConfigurationError: There is no default queue.
        """
        job = self.new(*args, **kwargs)
        return await async_default.get(f"{self.kind}.enqueue").add(job)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Add a job to the default queue, a SyncQueue; see enqueue."""
        job = self.new(*args, **kwargs)
        return sync_default.get(f"{self.kind}.enqueue_sync").add(job)


class AsyncCall(_Maker[P]):
    """A handler with options, to be enqueued on an asynchronous queue."""

    def __init__(
        self, kind: str, signature: Signature, options: Options, queue: AsyncQueue
    ) -> None:
        super().__init__(kind, signature, options)
        self._queue = queue

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Add a job with these arguments; see Call.enqueue."""
        return await self._queue.add(self.new(*args, **kwargs))


class SyncCall(_Maker[P]):
    """A handler with options, to be enqueued on a queue that blocks."""

    def __init__(
        self, kind: str, signature: Signature, options: Options, queue: SyncQueue
    ) -> None:
        super().__init__(kind, signature, options)
        self._queue = queue

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Add a job with these arguments; see Call.enqueue."""
        return self._queue.add(self.new(*args, **kwargs))


class Task(Call[P], Generic[C, P, R]):
    """A handler: called, it is the function itself.

    Args:
        kind: Its kind.
        function: The function.
        queue: Where its jobs go, unless an option says otherwise.
        signature: How its arguments become a payload.
    """

    def __init__(
        self, kind: str, function: Callable[C, R], queue: str, signature: Signature
    ) -> None:
        super().__init__(kind, signature, {"queue": queue})
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> R:
        """Call the function; no job is made."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.kind!r}>"

    @overload
    def using(self, target: None = None, /, **options: Unpack[Options]) -> Call[P]: ...

    @overload
    def using(
        self, target: AsyncQueue | AsyncTarget, /, **options: Unpack[Options]
    ) -> AsyncCall[P]: ...

    @overload
    def using(
        self, target: SyncQueue | SyncTarget, /, **options: Unpack[Options]
    ) -> SyncCall[P]: ...

    def using(
        self,
        target: AsyncQueue | SyncQueue | AsyncTarget | SyncTarget | None = None,
        /,
        **options: Unpack[Options],
    ) -> Call[P] | AsyncCall[P] | SyncCall[P]:
        """Say on which connection, and with which options, to enqueue.

        Args:
            target: A queue, or what Queue() takes: in the transaction that it is in;
                by default the default queue.
            options: See Options.

        Raises:
            ConfigurationError: The target is none that is known.
        """
        given = Options(**{**self._options, **options})
        if target is None:
            return Call(self.kind, self._signature, given)
        if not isinstance(target, AsyncQueue | SyncQueue):
            target = Queue(target)
        if isinstance(target, AsyncQueue):
            return AsyncCall(self.kind, self._signature, given, target)
        return SyncCall(self.kind, self._signature, given, target)
