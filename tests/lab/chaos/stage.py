"""What faults are done to: a database, the network before it, and workers."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

import asyncpg

from pgwake.database.connection import Connection, connect
from pgwake.database.embedded import EmbeddedServer, StopMode
from pgwake.errors import EmbeddedServerError, PgwakeError
from support.relay import Relay

from .crew import Crew
from .disk import SmallDisk
from .run import Run

TEAMS = 2
RESTART_SECONDS = 300.0
LOOK_SECONDS = 0.02
TIMEOUT_SECONDS = 15.0


@dataclass(slots=True)
class Stage:
    """All that a fault can get at.

    Attributes:
        run: The run.
        url: The database's URL.
        relay: The network before it, which its workers go through.
        crew: The workers.
        server: The server, where it is one of pgwake's own.
        restart_command: What restarts it where it is somebody else's: run by the shell,
            with $MODE in its environment, fast or immediate.
        disk: The small disk that the jobs' tables are on, if there is one.
    """

    run: Run
    url: str
    relay: Relay
    crew: Crew
    server: EmbeddedServer | None
    restart_command: str | None
    disk: SmallDisk | None
    _offset: timedelta

    @classmethod
    @asynccontextmanager
    async def set(
        cls,
        url: str,
        run: Run,
        *,
        server: EmbeddedServer | None = None,
        restart_command: str | None = None,
        processes: int = 2,
        slots: int = 50,
        has_disk: bool = False,
        options: Sequence[str] = (),
    ) -> AsyncIterator["Stage"]:
        """Set it: start the relay and the workers, and clear it at the end.

        Args:
            url: Of a database with the schema.
            run: The run; its schema must be there, and its folder.
            server: The database's server, where pgwake has started it.
            restart_command: As in Stage.
            processes: Worker processes of each of the two supervisors.
            slots: Jobs that a worker process runs at once.
            has_disk: Whether to put all tables on a small disk; the server's must be
                given.
            options: More words for `pgwake run`.

        Raises:
            PgwakeError: The workers did not start, their log's end follows; or there
                can be no small disk.
        """
        async with AsyncExitStack() as stack:
            disk = None
            if has_disk and server is not None:
                disk = await stack.enter_async_context(SmallDisk.under(server))
            relay = await stack.enter_async_context(Relay.before(url))
            crew = Crew(
                run,
                relay.url,
                teams=TEAMS,
                processes=processes,
                slots=slots,
                options=options,
            )
            stack.push_async_callback(asyncio.to_thread, crew.stop)
            crew.start()
            await crew.until_working()
            offset = await _clock_offset(url)
            yield cls(run, url, relay, crew, server, restart_command, disk, offset)

    def now(self) -> datetime:
        """Return the server's time, as near as it could be had at the beginning."""
        return _local_now() + self._offset

    async def connect(self) -> Connection:
        """Open a session of the run's own, not through the relay."""
        return await connect(self.url, self.run.queue, TIMEOUT_SECONDS)

    async def restart(self, mode: StopMode) -> datetime:
        """Restart the server; when it accepted connections again.

        Raises:
            PgwakeError: It did not stop, or does not come back.
        """
        if self.server is not None:
            await asyncio.to_thread(self.server.restart, mode)
        else:
            await self._command_restart(mode)
        deadline = monotonic() + RESTART_SECONDS
        while monotonic() < deadline:
            with suppress(OSError, TimeoutError, asyncpg.PostgresError):
                connection = await self.connect()
                connection.terminate()
                return self.now()
            await asyncio.sleep(LOOK_SECONDS)
        raise EmbeddedServerError(
            f"{RESTART_SECONDS:.0f} s after its restart the server takes no connection"
        )

    async def _command_restart(self, mode: StopMode) -> None:
        assert self.restart_command is not None, "there is no obstacle"
        log_path = self.run.folder / "restart.log"
        with log_path.open("wb") as log:  # no pipe: a server may go on holding it
            process = await asyncio.create_subprocess_shell(
                self.restart_command,
                env={**os.environ, "MODE": mode},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            async with asyncio.timeout(RESTART_SECONDS):
                code = await process.wait()
        if code:
            told = log_path.read_text(errors="replace").strip()
            raise PgwakeError(
                f"the restart command failed with exit code {code}: {told}"
            )


def _local_now() -> datetime:
    return datetime.now().astimezone()


async def _clock_offset(url: str) -> timedelta:
    """Return how far the server's clock is ahead of this machine's."""
    connection = await connect(url, "pgwake:chaos", TIMEOUT_SECONDS)
    try:
        began = _local_now()
        there = await connection.fetchval("select clock_timestamp()")
        ended = _local_now()
    finally:
        connection.terminate()
    offset: timedelta = there - (began + (ended - began) / 2)
    return offset
