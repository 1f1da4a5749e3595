"""What every benchmark needs: fresh databases, what is used up, quantiles, rounds."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import asyncpg
from rich.console import Console

from pgwake.connection import Connection

Figures: TypeAlias = dict[str, float]
Measure: TypeAlias = Callable[[], Awaitable[Figures]]

CHECKOUT = Path(__file__).resolve().parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")
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
        runs = []
        for _ in range(repeats):
            for condition, measure in conditions.items():
                if self.only in condition:
                    runs.append(Run(condition, await measure()))
                    show(runs[-1])
        return runs

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


def show(run: Run) -> None:
    """Say on standard error what came out of a run."""
    figures = ", ".join(
        f"{name} {number(value)}" for name, value in run.figures.items()
    )
    _progress.print(f"  {run.condition}: {figures}", soft_wrap=True)


def number(value: float) -> str:
    """The value with three or more digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Meter:
    """What jobs use up: CPU of their worker and of the server, and WAL.

    CPU is that of the processes in /proc; of a server elsewhere it stays unknown.
    """

    def __init__(self, connection: Connection, worker_pid: int) -> None:
        self._connection = connection
        self._worker_pid = worker_pid
        self._server_pid: int | None = None
        self._before: tuple[float, float, int] = (0, 0, 0)

    async def start(self) -> None:
        """Count from here on."""
        self._server_pid = _postmaster(self._connection.get_server_pid())
        self._before = await self._read()

    async def stop(self, jobs: int) -> Figures:
        """What each of so many jobs has used since."""
        worker, server, wal = (
            (now - before) / jobs
            for now, before in zip(await self._read(), self._before, strict=True)
        )
        figures = {"worker_us": worker * 1e6}
        if self._server_pid is not None:
            figures["server_us"] = server * 1e6
        return {**figures, "wal_bytes": wal}

    async def _read(self) -> tuple[float, float, int]:
        wal: int = await self._connection.fetchval(
            "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint"
        )
        server = 0.0 if self._server_pid is None else cpu_seconds(self._server_pid)
        return cpu_seconds(self._worker_pid), server, wal


def _postmaster(backend: int) -> int | None:
    """The process that a backend is a child of, if it runs on this machine."""
    with suppress(OSError):
        if "postgres" in Path(f"/proc/{backend}/comm").read_text():
            return int(_stat(backend)[1])
    return None


def cpu_seconds(pid: int) -> float:
    """CPU of a process and of its children, those that have ended included."""
    total = sum(map(int, _stat(pid)[11:15])) / _TICKS
    for child in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            fields = _stat(int(child.name))
            if int(fields[1]) == pid:
                total += sum(map(int, fields[11:15])) / _TICKS
    return total


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def latencies(milliseconds: Sequence[float]) -> Figures:
    """The usual quantiles."""
    return {
        "p50_ms": quantile(milliseconds, 0.5),
        "p95_ms": quantile(milliseconds, 0.95),
        "p99_ms": quantile(milliseconds, 0.99),
        "max_ms": max(milliseconds),
    }


def quantile(values: Sequence[float], part: float) -> float:
    """The value that this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


async def until(
    condition: Callable[[], Awaitable[object]],
    seconds: float = 600,
    pause: float = 0.02,
) -> None:
    """Ask until the answer is true."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(pause)
