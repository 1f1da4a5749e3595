"""The thread of a plain test: a loop in another one works for it, and it for that."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class CallersThread(Executor):
    """Runs a coroutine on a loop in a thread, and what that submits in the caller's."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs
    ) -> "Future[T]":
        """Have a function called by the thread that waits in run()."""
        future: Future[T] = Future()
        self._work.put(lambda: _settle(future, lambda: function(*arguments, **named)))
        return future

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, whether or not a loop runs in this thread."""
        __tracebackhide__ = True
        done: Future[T] = Future()
        done.add_done_callback(lambda _: self._work.put(None))
        thread = threading.Thread(
            target=lambda: _settle(done, lambda: asyncio.run(coroutine)),
            name="pgwake-testing",
            daemon=True,
        )
        thread.start()
        while (step := self._work.get()) is not None:
            step()
        thread.join()
        return done.result()


def _settle(future: "Future[T]", function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001, who waits for it raises it
        future.set_exception(error)
