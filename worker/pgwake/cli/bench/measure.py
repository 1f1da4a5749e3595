"""What is measured: what jobs use up and how late they begin, and a round of it all."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, monotonic_ns
from typing import TypeAlias

from pgwake.cli.bench.worker import COMMAND, LATENCY, NOOP, POLL_SECONDS, MeasuredWorker
from pgwake.database.connection import Connection
from pgwake.database.statements import bench, scratch
from pgwake.database.statements.operate import pause_queue, resume_queue
from pgwake.database.statements.wake import session_id
from pgwake.settings import Settings

Figures: TypeAlias = dict[str, float]
Work: TypeAlias = Callable[[], Awaitable[object]]

QUEUE = "pgwake_bench"
SINGLES = 100  # round trips, commits and jobs put in one by one
MANY = 1_000  # jobs a statement
WARM_UP, WAKE_UPS = 5, 120  # the first ones do not count
OTHERS = SINGLES + 1 + WARM_UP + WAKE_UPS  # jobs of a round beside its backlog
SLEEP_SECONDS = 0.03  # in which the worker falls asleep again
DRAIN_SECONDS = 3600.0
PAYLOAD = json.dumps({"number": 1})

_PROC = Path("/proc")


async def measure_round(
    settings: Settings, connection: Connection, jobs: int
) -> Figures:
    """Measure everything once, on a queue that nobody else uses.

    Args:
        settings: Whose database it is.
        connection: A session that has the queue.
        jobs: How many are put in by the thousand, to be drained.
    """
    insert = partial(bench.insert, connection, QUEUE)

    async def enqueue() -> None:
        for _ in range(SINGLES):
            await insert(NOOP, [PAYLOAD])

    async def enqueue_many() -> None:
        for done in range(0, jobs, MANY):
            await insert(NOOP, [PAYLOAD] * min(MANY, jobs - done))

    async def is_empty() -> bool:
        return not (await scratch.left(connection, QUEUE)).live

    async def drain() -> None:
        await resume_queue(connection, QUEUE)
        await worker.delays(1, DRAIN_SECONDS)
        await worker.wait_until(is_empty, DRAIN_SECONDS, POLL_SECONDS)

    # Nobody sleeps while jobs are put in, and all of them wait for the worker.
    await pause_queue(connection, QUEUE)
    parts = {
        "round_trip": {"ms": await _ms(connection, bench.ROUND_TRIP)},
        "commit": {"ms": await _ms(connection, bench.COMMIT)},
        "enqueue": await measured(connection, SINGLES, enqueue),
        "enqueue_many": await measured(connection, jobs, enqueue_many),
    }
    await insert(LATENCY, [payload_now()])  # the last one, which tells when it begins
    command = [*COMMAND, "--queue", QUEUE, "--processes", "1"]
    with MeasuredWorker(settings, command) as worker:
        await worker.started()
        backlog = SINGLES + jobs + 1
        parts["drain"] = await measured(connection, backlog, drain, worker.pid)
        for _ in range(WARM_UP + WAKE_UPS):
            await asyncio.sleep(SLEEP_SECONDS)
            await insert(LATENCY, [payload_now()])
        delays = await worker.delays(1 + WARM_UP + WAKE_UPS)
        parts["wake_up"] = latencies(delays[1 + WARM_UP :])
    return {f"{part}_{name}": v for part in parts for name, v in parts[part].items()}


async def _ms(connection: Connection, statement: str) -> float:
    taken = []
    for _ in range(SINGLES):
        started = monotonic()
        await connection.fetchval(statement)
        taken.append(1000 * (monotonic() - started))
    return median(taken)


async def measured(
    connection: Connection, jobs: int, work: Work, worker_pid: int | None = None
) -> Figures:
    """Do some work: how many jobs a second that is, and what each has used up.

    That is CPU of the worker and of the server, as far as they are in this machine's
    /proc, and all the WAL that the server has written meanwhile.
    """
    backend, _ = await session_id(connection)
    pids = _watched(worker_pid, backend)

    async def used() -> Figures:
        cpu = {name: 1e6 * _cpu_seconds(pid) for name, pid in pids.items()}
        return {**cpu, "wal_bytes": await bench.wal_bytes(connection)}

    before, started = await used(), monotonic()
    await work()
    seconds, after = monotonic() - started, await used()
    a_job = {name: (after[name] - before[name]) / jobs for name in before}
    return {"jobs_per_second": jobs / seconds, **a_job}


def _watched(worker_pid: int | None, backend: int) -> dict[str, int]:
    pids = {"worker_cpu_us": worker_pid} if worker_pid and _PROC.exists() else {}
    with suppress(OSError):
        if "postgres" in (_PROC / str(backend) / "comm").read_text():
            pids["server_cpu_us"] = int(stat_fields(backend)[1])
    return pids


def _cpu_seconds(pid: int) -> float:
    """CPU of a process and of its children, those that have ended included."""
    ticks = 0
    for process in _PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError):
            fields = stat_fields(int(process.name))
            if pid in (int(process.name), int(fields[1])):
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, ..."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def payload_now() -> str:
    """A payload with this instant, which its job is measured from."""
    return json.dumps({"at": monotonic_ns()})


def latencies(milliseconds: Sequence[float]) -> Figures:
    """The usual percentiles, and the greatest one."""
    cuts = quantiles(milliseconds, n=100, method="inclusive")
    percentiles = {f"p{percent}_ms": cuts[percent - 1] for percent in (50, 95, 99)}
    return {**percentiles, "max_ms": max(milliseconds)}
