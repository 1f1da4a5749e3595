"""What the demo and the benchmark stand on: a server, and a worker of their own."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Self

from pgwake.database.embedded import EmbeddedServer
from pgwake.errors import PgwakeError
from pgwake.settings import Settings

STOP_SECONDS = 60.0
LOG_TAIL_LINES = 20


@asynccontextmanager
async def started(server: EmbeddedServer) -> AsyncIterator[None]:
    """Start a server and stop it at the end, whenever that comes."""
    starting = asyncio.ensure_future(asyncio.to_thread(server.start))
    try:
        await asyncio.shield(starting)
        yield
    finally:
        # A thread can't be cancelled, and half a start can't be stopped.
        await asyncio.gather(starting, return_exceptions=True)
        server.stop()


async def until_signal(
    work: Coroutine[Any, Any, int], stopped: Callable[[], object]
) -> int:
    """Do some work; the first signal ends it, in order, and more don't hurry that.

    Args:
        work: What returns an exit code.
        stopped: Called when a signal has ended it.

    Returns:
        Its exit code, or 128 and the signal's number.
    """
    task = asyncio.ensure_future(work)
    signals: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        signals.append(number)
        if len(signals) == 1:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        stopped()
        return 128 + signals[0]


class WorkerChild:
    """A child process, with its log in a file; a context manager.

    Stopping it blocks, so that no signal can cut it short.

    Args:
        settings: Whose database it works on.
        command: What python is to run, such as -m pgwake run.
        environment: Variables beside this process's own.
    """

    def __init__(
        self,
        settings: Settings,
        command: Sequence[str],
        environment: Mapping[str, str] = {},
    ) -> None:
        self._command = command
        self._environment = {
            **os.environ,
            "PGWAKE_DATABASE_URL": settings.dsn,
            "PGWAKE_LISTEN_URL": settings.listen_dsn,
            **environment,
        }
        self._directory = TemporaryDirectory(prefix="pgwake-worker-")
        self.log_path = Path(self._directory.name, "worker.log")

    @property
    def pid(self) -> int:
        """Its process id; of the supervisor, where there is one."""
        return self._process.pid

    def __enter__(self) -> Self:
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for who started it to forward
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()

    async def wait_until(
        self, condition: Callable[[], Awaitable[bool]], seconds: float, pause: float
    ) -> bool:
        """Ask until it is true or the time is over; whether it became true.

        Raises:
            PgwakeError: The worker has ended.
        """
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            if await condition():
                return True
            if self._process.poll() is not None:
                raise self.error(f"ended with exit code {self._process.returncode}")
            await asyncio.sleep(pause)
        return False

    def error(self, problem: str) -> PgwakeError:
        """Return an error with what the worker has written last."""
        return PgwakeError(
            "\n".join([f"the worker {problem}; its log:", *self.log_tail()])
        )

    def log_tail(self) -> list[str]:
        """Return the last lines of its log."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return lines[-LOG_TAIL_LINES:]
