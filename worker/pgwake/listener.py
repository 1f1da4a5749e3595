"""The LISTEN session: its own, never in a transaction, never from a pool."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import NoReturn

import asyncpg
import structlog

from pgwake.connection import backoff, connect, describe
from pgwake.metrics import Metrics
from pgwake.queue import CHANNEL

log = structlog.get_logger()

PING_SECONDS = 5.0
_FAULTS = (
    OSError,
    TimeoutError,
    EOFError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


class Listener:
    """Listens for wake-ups, and comes back when its session is lost.

    Args:
        dsn: A direct connection; LISTEN does not work through a transaction pooler.
        name: The application_name.
        timeout: Deadline of a connect and of a ping, in seconds.
        metrics: Where listener_up is shown.
        wake: Called with the queue's name for each notification, and with None when the
            session has (again) begun, since anything may have been missed before.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        *,
        timeout: float,
        metrics: Metrics,
        wake: Callable[[str | None], None],
    ) -> None:
        self._dsn = dsn
        self._name = name
        self._timeout = timeout
        self._metrics = metrics
        self._wake = wake
        self.is_up = False

    async def run(self) -> None:
        """Listen for ever."""
        failures = 0
        while True:
            started = monotonic()
            try:
                await self._listen()
            except _FAULTS as error:
                problem = describe(error)
            finally:
                self._show(is_up=False)
            failures = 1 if monotonic() - started > 60 else failures + 1
            report = log.warning if failures == 1 else log.debug
            report("listener failed", error=problem)
            await asyncio.sleep(backoff(failures))

    async def _listen(self) -> NoReturn:
        connection = await connect(self._dsn, self._name, self._timeout)
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            async with asyncio.timeout(self._timeout):
                await connection.add_listener(CHANNEL, self._notified)
            self._show(is_up=True)
            self._wake(None)
            while not lost.is_set():
                try:
                    async with asyncio.timeout(PING_SECONDS):
                        await lost.wait()
                except TimeoutError:
                    # A half-open socket raises nothing by itself, for hours.
                    async with asyncio.timeout(self._timeout):
                        await connection.execute("select")
            raise ConnectionResetError("the session has ended")
        finally:
            connection.terminate()

    def _notified(
        self, _connection: object, _pid: int, _channel: str, payload: object
    ) -> None:
        self._wake(str(payload))

    def _show(self, *, is_up: bool) -> None:
        self.is_up = is_up
        self._metrics.listener_up.set(is_up)
