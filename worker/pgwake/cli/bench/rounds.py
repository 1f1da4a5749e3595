"""The rounds of a benchmark: each measures everything once."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import monotonic, monotonic_ns

from pgwake.cli.bench.handlers import LATENCY, NOOP
from pgwake.cli.bench.measure import Figures, Meter, insert_all, latencies, payload_at
from pgwake.cli.bench.worker import MeasuredWorker
from pgwake.database import statements as queue
from pgwake.database.connection import Connection, connect
from pgwake.database.statements import bench, scratch
from pgwake.settings import Settings

QUEUE = "pgwake_bench"
KINDS = (NOOP, LATENCY)
# A worker as it is by default, but for the HTTP port, which is one of this machine's.
COMMAND = (
    *("-m", "pgwake", "run", "--import", "pgwake.cli.bench.handlers", "--queue", QUEUE),
    *("--processes", "1", "--http-port", "0"),
    *("--log-format", "json", "--log-level", "info"),
)
CONNECTIONS = 10
MANY = 1_000  # jobs a statement
TRIPS, COMMITS = 100, 50
WARM_UP = 5  # wake-ups that do not count
WAKE_UP_PAUSE_SECONDS = 0.03  # in which the worker falls asleep again
POLL_SECONDS = 0.005
DRAIN_SECONDS = 3600.0
PAYLOAD = json.dumps({"number": 1})


@dataclass(frozen=True, slots=True)
class Size:
    """How much each round does.

    Attributes:
        jobs: Put in at once and drained.
        single_jobs: Put in one by one, and drained with them.
        wake_ups: Single jobs to an idle worker.
        rate: Jobs a second of the steady stream.
        seconds: How long it lasts.
    """

    jobs: int
    single_jobs: int
    wake_ups: int
    rate: int
    seconds: int

    @property
    def all_jobs(self) -> int:
        """How many jobs a round has in all."""
        backlog = self.jobs + self.single_jobs
        return backlog + WARM_UP + self.wake_ups + self.rate * self.seconds


class Rounds:
    """Measures on a queue that nobody else uses.

    Args:
        settings: Whose database it is.
        connection: A session that has the queue.
        size: How much each round does.
    """

    def __init__(self, settings: Settings, connection: Connection, size: Size) -> None:
        self._settings = settings
        self._connection = connection
        self._size = size

    async def run(self, say: Callable[[str], object]) -> Figures:
        """Measure everything once; `say` is told what comes next."""
        say("the server")
        figures = {
            "round_trip_ms": await self._median_ms(bench.round_trip, TRIPS),
            "commit_ms": await self._median_ms(bench.commit, COMMITS),
        }
        # Nobody sleeps while jobs are put in, and all of them wait for the worker.
        await queue.pause_queue(self._connection, QUEUE)
        async with self._producers() as producers:
            say("enqueue")
            figures |= await self._enqueue(producers)
            say("the worker's start")
            with MeasuredWorker(self._settings, COMMAND) as worker:
                await worker.started()
                say("drain")
                figures |= await self._drain(worker)
                say("wake-up")
                figures |= await self._wake_up(worker)
                say("a steady stream")
                figures |= await self._steady(worker, producers)
        return figures

    async def _median_ms(
        self, ask: Callable[[Connection], Awaitable[None]], times: int
    ) -> float:
        taken = []
        for _ in range(times):
            started = monotonic_ns()
            await ask(self._connection)
            taken.append((monotonic_ns() - started) / 1e6)
        return median(taken)

    @asynccontextmanager
    async def _producers(self) -> AsyncIterator[list[Connection]]:
        opened: list[Connection] = []
        try:
            url, timeout = self._settings.dsn, self._settings.query_timeout
            while len(opened) < CONNECTIONS:
                opened.append(await connect(url, "pgwake:bench", timeout))
            yield opened
        finally:
            for connection in opened:
                connection.terminate()

    async def _enqueue(self, producers: list[Connection]) -> Figures:
        singles, statements = self._size.single_jobs, max(self._size.jobs // MANY, 1)
        rows = [PAYLOAD] * (self._size.jobs // statements)
        meter = Meter(self._connection)
        await meter.start()
        single_seconds = await insert_all(
            [partial(bench.insert, c, QUEUE, NOOP, PAYLOAD) for c in producers], singles
        )
        used = await meter.stop(singles)
        many_seconds = await insert_all(
            [partial(bench.insert_many, producers[0], QUEUE, NOOP, rows)], statements
        )
        return {
            "enqueue_single_per_second": singles / single_seconds,
            "enqueue_many_per_second": len(rows) * statements / many_seconds,
            "enqueue_wal_bytes": used["wal_bytes"],
        }

    async def _drain(self, worker: MeasuredWorker) -> Figures:
        jobs = (await scratch.left(self._connection, QUEUE)).live
        last_id = await bench.last_id(self._connection, QUEUE)

        async def is_done() -> bool:
            # First by a look at one row; the counts cost more.
            if await bench.is_live(self._connection, last_id):
                return False
            return (await scratch.left(self._connection, QUEUE)).live == 0

        meter = Meter(self._connection, worker.pid)
        await meter.start()
        started = monotonic()
        await queue.resume_queue(self._connection, QUEUE)
        if not await worker.wait_until(is_done, DRAIN_SECONDS, POLL_SECONDS):
            raise worker.error(f"has not done {jobs} jobs in {DRAIN_SECONDS:.0f} s")
        seconds = monotonic() - started
        used = await meter.stop(jobs)
        return {
            "drain_per_second": jobs / seconds,
            **{f"drain_{name}": value for name, value in used.items()},
        }

    async def _wake_up(self, worker: MeasuredWorker) -> Figures:
        jobs = WARM_UP + self._size.wake_ups
        for _ in range(jobs):
            await asyncio.sleep(WAKE_UP_PAUSE_SECONDS)
            await self._ping(self._connection)
        delays = (await worker.delays(jobs))[WARM_UP:]
        return {f"wake_up_{name}": v for name, v in latencies(delays).items()}

    async def _steady(
        self, worker: MeasuredWorker, producers: list[Connection]
    ) -> Figures:
        before = len(await worker.delays(0))
        jobs = self._size.rate * self._size.seconds
        inserts = [partial(self._ping, connection) for connection in producers]
        seconds = await insert_all(inserts, jobs, self._size.rate)
        delays = (await worker.delays(before + jobs))[before:]
        return {
            **{f"steady_{name}": v for name, v in latencies(delays).items()},
            "steady_per_second": jobs / seconds,
        }

    async def _ping(self, connection: Connection) -> None:
        await bench.insert(connection, QUEUE, LATENCY, payload_at(monotonic_ns()))
