"""Database fit: while the database does not fit its worker, nothing is claimed."""

import asyncio
import random
from time import monotonic

import asyncpg
import structlog

from pgwake.database.connection import Connection, describe
from pgwake.database.install import schema_problem
from pgwake.database.session import Session
from pgwake.database.statements.install import (
    Adoption,
    get_adoption,
    schema_and_adoption,
)
from pgwake.errors import DOCTOR_HINT, ROLES_HINT, ConfigurationError
from pgwake.observe.health import Health
from pgwake.sleep import pause

log = structlog.get_logger()

OPEN_SECONDS = 10.0  # between looks while the database fits
SHUT_SECONDS = 3.0  # while it does not: by itself that may change at any time
SAY_SECONDS = 60.0  # after which what does not fit is said again


class DatabaseFit:
    """Looks whether the database fits, and keeps claims from it while it does not.

    It does not without our schema, with one that does not serve this version, as a copy
    that nobody has adopted, and as another environment's. A restart would help none of
    these: it says so, and goes on when somebody has done something about it.

    Args:
        session: Where to look.
        health: Where it is noted what does not fit.
        environment: What the database's must be; None: any.
        stopping: Set when there is nothing to wait for any more.

    Attributes:
        lock: Held while a queue claims, or while it is shut.
    """

    def __init__(
        self,
        session: Session,
        health: Health,
        environment: str | None,
        stopping: asyncio.Event,
    ) -> None:
        self.lock = asyncio.Lock()
        self._session = session
        self._health = health
        self._environment = environment
        self._stopping = stopping
        self._is_first = True  # it has never fitted
        self._said: str | None = None
        self._say_at = 0.0

    async def check(self) -> None:
        """Look once, for who is not to wait.

        Raises:
            ConfigurationError: The database does not fit; the message says what to do.
            asyncpg.PostgresError: It refuses the session, or the look.
        """
        problem = await self._session.call(self._problem, is_first=True)
        if problem is not None:
            raise ConfigurationError(problem)
        self._note(None)

    async def look(self) -> None:
        """Look once, note what does not fit, and say so: at first and each minute."""
        try:
            problem = await self._session.call(self._problem, is_first=self._is_first)
        except asyncpg.PostgresError as error:
            problem = f"{describe(error)}. {DOCTOR_HINT}"
        self._note(problem)

    async def wait(self) -> None:
        """Look until the database fits, or until the stop."""
        while True:
            await self.look()
            if self._health.misfit is None:
                return
            if await pause(self._stopping, _jittered(SHUT_SECONDS)):
                return

    async def run(self) -> None:
        """Look until the stop, and shut whenever the database does not fit."""
        while not await pause(self._stopping, _jittered(OPEN_SECONDS)):
            await self.look()
            if self._health.misfit is not None:
                async with self.lock:
                    await self.wait()

    async def _problem(self, connection: Connection) -> str | None:
        try:
            schema, adoption = await schema_and_adoption(connection)
            if problem := schema_problem(schema):
                return problem
            adoption = adoption or await get_adoption(connection)
        except asyncpg.InsufficientPrivilegeError as error:
            return f"{error.message}. {ROLES_HINT}"
        return adoption_problem(adoption, self._environment)

    def _note(self, problem: str | None) -> None:
        self._health.misfit = problem
        if problem is None:
            self._is_first = False
            if self._said is not None:
                log.info("database usable")
        elif problem != self._said or monotonic() >= self._say_at:
            self._say_at = monotonic() + SAY_SECONDS
            log.error("database not usable", problem=problem)
        self._said = problem


def adoption_problem(adoption: Adoption, environment: str | None) -> str | None:
    """Return why no jobs are to run in a database; None: they are."""
    noted = adoption.environment and f"environment {adoption.environment!r}"
    if adoption.is_copy:
        return (
            f"the database ({adoption.present_identity}) is a copy: pgwake is noted "
            f"for {adoption.identity}{(noted and f', {noted}') or ''}. If its jobs are "
            "to run here too: `pgwake adopt`, which shows them first"
        )
    if environment not in (None, adoption.environment):
        return (
            f"the database is noted for {noted or 'no environment'}, and "
            f"PGWAKE_ENVIRONMENT is {environment!r}: name that one's database, or note "
            "this one for it with `pgwake adopt --environment`"
        )
    return None


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311
