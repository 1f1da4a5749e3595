"""How a worker shows itself to operators; nothing rests on it."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import asyncpg
import structlog

from pgwake.database.connection import Connection, describe
from pgwake.database.session import Session
from pgwake.database.statements.upkeep import (
    Turn,
    forget_worker,
    report_and_take_upkeep,
    take_upkeep,
)
from pgwake.version import __version__

FORGET_SECONDS = 1.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What list_workers shows of a worker.

    Attributes:
        worker: Its name, as in claimed_by.
        queues: The queues it works on.
        kinds: The kinds it handles.
        slots: How many jobs it runs at once.
    """

    worker: str
    queues: Sequence[str]
    kinds: Sequence[str]
    slots: int

    async def take_upkeep(
        self,
        connection: Connection,
        *,
        may_sweep: bool,
        done: Sequence[str],
        is_report: bool,
    ) -> Turn:
        """Take a turn of the upkeep, if it is free; say first that the worker is there?

        In one statement, so that a worker that only waits for its turn makes one
        transaction of both.
        """
        if not is_report:
            return await take_upkeep(connection, self.worker, may_sweep, done)
        return await report_and_take_upkeep(
            connection,
            self.worker,
            may_sweep,
            done,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self.queues,
            kinds=self.kinds,
            slots=self.slots,
            version=__version__,
        )

    async def leave(self, session: Session) -> None:
        """Say that it ends; if the database does not listen, its silence will tell."""

        async def forget(connection: Connection) -> None:
            await forget_worker(connection, self.worker)

        with anyio.move_on_after(FORGET_SECONDS):
            try:
                await session.call(forget)
            except asyncpg.PostgresError as error:
                log.debug("worker not forgotten", error=describe(error))
