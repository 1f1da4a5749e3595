"""A session that hears of changes of jobs' statuses, and comes back when it is lost."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import NoReturn

import structlog

from pgwake.database.connection import (
    FAULTS,
    backoff,
    check_writable,
    connect,
    describe,
)
from pgwake.database.pooler import check_listening
from pgwake.database.statements import produce
from pgwake.sleep import pause

log = structlog.get_logger()

CHANNEL = "job_status_changed"
PING_SECONDS = 5.0
TIMEOUT_SECONDS = 10.0
# What reading JSON by anybody may raise: NOTIFY needs no right at all.
NOT_OURS = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


class StatusListener:
    """One session that listens and watches.

    Args:
        url: The database, by a direct connection.
        name: The application_name.
        hear: Called with what is heard; anybody may have sent it.
        tell: Called with True when it begins to hear, so that what was before has to
            be looked at, and with False when it has failed to, or hears no more.

    Attributes:
        is_heard: Whether it hears.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        hear: Callable[[str], object],
        tell: Callable[[bool], object],
    ) -> None:
        self._url = url
        self._name = name
        self._hear = hear
        self._tell = tell
        self.is_heard = False

    async def run(self) -> NoReturn:
        """Listen for ever.

        Raises:
            PooledError: A transaction pooler stands before the database.
        """
        failures = 0
        while True:
            started = monotonic()
            try:
                await self._listen()
            except FAULTS as error:
                problem = describe(error)
            finally:
                self.is_heard = False
            self._tell(False)
            failures = 1 if monotonic() - started > 60 else failures + 1
            report = log.warning if failures == 1 else log.debug
            report("listener failed", error=problem)
            await asyncio.sleep(backoff(failures))

    async def _listen(self) -> NoReturn:
        connection = await connect(self._url, self._name, TIMEOUT_SECONDS)
        lost = asyncio.Event()
        try:
            await check_listening(connection, self._url, self._name, TIMEOUT_SECONDS)
            connection.add_termination_listener(lambda _: lost.set())
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await connection.add_listener(CHANNEL, self._pass_on)
                await produce.watch(connection)
            self.is_heard = True
            self._tell(True)
            while not await pause(lost, PING_SECONDS):
                # A half-open socket raises nothing by itself, for hours.
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await check_writable(connection)
            raise ConnectionResetError("the session has ended")
        finally:
            connection.terminate()

    def _pass_on(self, _: object, _pid: int, _channel: str, payload: object) -> None:
        self._hear(str(payload))
