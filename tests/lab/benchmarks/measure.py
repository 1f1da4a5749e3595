"""What every benchmark needs: fresh databases, rounds."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

import asyncpg
from rich.console import Console

from pgwake.cli.bench.measure import Figures
from pgwake.cli.bench.results import number
from pgwake.database.connection import Connection

Measure: TypeAlias = Callable[[], Awaitable[Figures]]

_progress = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run under one condition showed."""

    condition: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Bench:
    """The server to measure on.

    Attributes:
        url: A role that may create databases.
        only: Leave out the conditions that do not contain it.
    """

    url: str
    only: str = ""

    async def rounds(
        self, conditions: Mapping[str, Measure], repeats: int
    ) -> list[Run]:
        """Measure under each condition in turn, so that all meet the same machine."""
        return [
            show(Run(condition, await measure()))
            for _ in range(repeats)
            for condition, measure in conditions.items()
            if self.only in condition
        ]

    @asynccontextmanager
    async def database(self) -> AsyncIterator[tuple[str, Connection]]:
        """A new, empty database: its URL, and a session in it."""
        name = f"pgwake_bench_{secrets.token_hex(4)}"
        url = urlsplit(self.url)._replace(path=f"/{name}").geturl()
        admin = await asyncpg.connect(self.url)
        try:
            with suppress(asyncpg.InsufficientPrivilegeError):
                await admin.execute("checkpoint")  # not in the middle of the run
            await admin.execute(f"create database {name}")
            try:
                connection = await asyncpg.connect(url, command_timeout=600)
                yield url, connection
                await connection.close()
            finally:
                await admin.execute(f"drop database {name} with (force)")
        finally:
            await admin.close()


def show(run: Run) -> Run:
    """Say on standard error what came out of a run."""
    figures = ", ".join(
        f"{name} {number(value)}" for name, value in run.figures.items()
    )
    _progress.print(f"  {run.condition}: {figures}", soft_wrap=True)
    return run
