"""What benchmarks need: what is used up, quantiles, and inserts at a rate."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from pgwake.database.connection import FAULTS, Connection
from pgwake.database.statements.bench import backend_pid, wal_bytes

Figures: TypeAlias = dict[str, float]
Insert: TypeAlias = Callable[[], Awaitable[object]]

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """What jobs use up: CPU of their worker and of the server, and WAL.

    CPU is that of the processes in /proc: without it, as of a server elsewhere, it
    stays unknown. WAL is all that the server has written.
    """

    def __init__(self, connection: Connection, worker_pid: int | None = None) -> None:
        self._connection = connection
        self._pids = {"worker_us": worker_pid} if _PROC.exists() and worker_pid else {}
        self._before: Figures = {}

    async def start(self) -> None:
        """Count from here on."""
        if postmaster := _postmaster(await backend_pid(self._connection)):
            self._pids["server_us"] = postmaster
        self._before = await self._read()

    async def stop(self, jobs: int) -> Figures:
        """What each of so many jobs has used since."""
        return {
            name: (now - self._before[name]) / jobs
            for name, now in (await self._read()).items()
        }

    async def _read(self) -> Figures:
        used = {name: 1e6 * cpu_seconds(pid) for name, pid in self._pids.items()}
        return {**used, "wal_bytes": await wal_bytes(self._connection)}


def _postmaster(backend: int) -> int | None:
    """The process that a backend is a child of, if it runs on this machine."""
    with suppress(OSError):
        if "postgres" in (_PROC / str(backend) / "comm").read_text():
            return int(stat_fields(backend)[1])
    return None


def cpu_seconds(pid: int) -> float:
    """CPU of a process and of its children, those that have ended included."""
    total = sum(map(int, stat_fields(pid)[11:15])) / _TICKS
    for child in _PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError):
            fields = stat_fields(int(child.name))
            if int(fields[1]) == pid:
                total += sum(map(int, fields[11:15])) / _TICKS
    return total


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, ..."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


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


def number(value: float) -> str:
    """The value with three or more digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def payload_at(instant: int, bytes_: int = 0) -> str:
    """A payload with the instant that its job is measured from."""
    return json.dumps({"at": instant, **padding(bytes_)})


def padding(bytes_: int) -> dict[str, str]:
    """Fields of so many bytes that no compression makes smaller."""
    return {"text": os.urandom(bytes_ // 2).hex()} if bytes_ else {}


async def insert_all(
    inserts: Sequence[Insert], calls: int, rate: float | None = None
) -> float:
    """Call them so often in all, each one after the other.

    Args:
        inserts: One a connection.
        calls: How many.
        rate: Calls a second in all; by default as many as can be.

    Returns:
        The seconds that it took.
    """
    numbers = iter(range(calls))
    started = monotonic()

    async def insert_until_done(insert: Insert) -> None:
        for n in numbers:
            if rate is not None:
                await asyncio.sleep(max(started + n / rate - monotonic(), 0))
            await insert()

    try:
        async with asyncio.TaskGroup() as tasks:
            for insert in inserts:
                tasks.create_task(insert_until_done(insert))
    except* FAULTS as failed:
        # One is enough: what one connection is refused, the others are, too.
        raise failed.exceptions[0] from None
    return monotonic() - started
