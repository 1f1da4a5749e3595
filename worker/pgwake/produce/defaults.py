"""The queue of who has not said which."""

from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import ContextVar
from typing import Generic, TypeVar

from pgwake.errors import ConfigurationError
from pgwake.produce.queue import AsyncQueue, SyncQueue

Q = TypeVar("Q", AsyncQueue, SyncQueue)


class _Default(Generic[Q]):
    """The default of one kind: the block's, else the process's, else the worker's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._of_process: Q | None = None
        self._of_block: ContextVar[Q | None] = ContextVar(name, default=None)
        self._of_worker: ContextVar[Q | None] = ContextVar(name, default=None)

    def get(self, what: str) -> Q:
        queue = self._of_block.get() or self._of_process or self._of_worker.get()
        if queue is None:
            raise ConfigurationError(
                f"{what} has no queue to go to: give it a connection by .using(...), or"
                f" set a default {self._name} by pgwake.set_default_queue(...)"
            )
        return queue

    def set(self, queue: Q) -> None:
        self._of_process = queue

    def block(self, queue: Q) -> AbstractContextManager[None]:
        return _set(self._of_block, queue)

    def worker(self, queue: Q) -> AbstractContextManager[None]:
        return _set(self._of_worker, queue)


@contextmanager
def _set(variable: ContextVar[Q | None], queue: Q) -> Iterator[None]:
    token = variable.set(queue)
    try:
        yield
    finally:
        # In another context there is nothing to reset: who enters and leaves a block by
        # different threads, as frameworks do with plain generators, has set it nowhere.
        with suppress(ValueError):
            variable.reset(token)


async_default = _Default[AsyncQueue]("AsyncQueue")
sync_default = _Default[SyncQueue]("SyncQueue")


def set_default_queue(queue: AsyncQueue | SyncQueue) -> None:
    """Set the queue of this process for tasks that are enqueued without `using`.

    There may be one of each: an AsyncQueue for `enqueue`, a SyncQueue for
    `enqueue_sync`. A handler that a worker runs needs none: by default its jobs go to
    the worker's own database, each in a transaction of its own.
    """
    if isinstance(queue, AsyncQueue):
        async_default.set(queue)
    else:
        sync_default.set(queue)


@contextmanager
def default_queue(queue: AsyncQueue | SyncQueue) -> Iterator[None]:
    """Have another default queue in a block: that of a request's transaction, say.

    In this task or thread alone, and in tasks that are started within the block: a
    dependency of FastAPI that sets one has to be `async def`.
    """
    if isinstance(queue, AsyncQueue):
        with async_default.block(queue):
            yield
    else:
        with sync_default.block(queue):
            yield


@asynccontextmanager
async def worker_default(url: str) -> AsyncIterator[None]:
    """Have a default queue for the handlers of a worker that is run in the block."""
    async with AsyncQueue(url) as queue:
        with async_default.worker(queue), sync_default.worker(queue.for_threads()):
            yield
