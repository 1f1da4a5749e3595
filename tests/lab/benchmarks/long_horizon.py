"""pgwake as a system of hardbyte/postgresql-job-queue-benchmarking, by its contract.

Its harness starts this with the sizes in the environment, tells the producer by ENQUEUE
lines on standard input how much to insert, and reads samples, JSON lines, from standard
output: CONTRIBUTING_ADAPTERS.md there. Without the harness it paces itself.
"""

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from time import monotonic, time

import asyncpg
import structlog

from pgwake import AsyncQueue, NewJob, Queue, Settings, Worker
from pgwake.database.install import install
from pgwake.jobs.registry import Registry

SYSTEM, QUEUE, KIND = "pgwake", "long_horizon", "work"
EVENT_TABLES = ["pgwake.jobs_live", "pgwake.counts"]
WINDOW_SECONDS = 30
MAX_LATENCIES = 200_000  # of the window
SIZES = {
    "PRODUCER_RATE": 800,
    "PRODUCER_BATCH_MAX": 128,
    "PRODUCER_BATCH_MS": 25,
    "TARGET_DEPTH": 1000,
    "WORKER_COUNT": 32,
    "JOB_PAYLOAD_BYTES": 256,
    "JOB_WORK_MS": 1,
    "SAMPLE_EVERY_S": 5,
    "BENCH_INSTANCE_ID": 0,
}


class LongHorizon:
    """A producer, a worker and their samples, until SIGTERM."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sizes = {
            name: int(os.environ.get(name, size)) for name, size in SIZES.items()
        }
        self._is_observer = self._sizes["BENCH_INSTANCE_ID"] == 0
        self._padding = "x" * self._sizes["JOB_PAYLOAD_BYTES"]
        self._latencies: deque[tuple[float, float]] = deque(maxlen=MAX_LATENCIES)
        self._enqueued = self._completed = self._depth = 0

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT."""
        await install(self._url)
        self._emit(
            kind="descriptor",
            event_tables=EVENT_TABLES,
            extensions=[],
            version=version("pgwake"),
            db_name=self._url.rpartition("/")[2].partition("?")[0],
            started_at=_now(),
        )
        registry = Registry()
        registry.job(KIND, queue=QUEUE)(self._work)
        settings = Settings.load(
            database_url=self._url,
            queues=(f"{QUEUE}:{self._sizes['WORKER_COUNT']}",),
            http_port=0,
        )
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        async with (
            Worker(settings, registry),
            Queue(self._url) as queue,
            asyncpg.create_pool(self._url, min_size=1, max_size=1) as pool,
            asyncio.TaskGroup() as tasks,
        ):
            loops = [
                tasks.create_task(work)
                for work in (self._produce(queue), self._count(pool), self._sample())
            ]
            await stopping.wait()
            for loop in loops:
                loop.cancel()

    async def _work(self, created_at: float, padding: str) -> None:
        del padding
        self._latencies.append((monotonic(), max(time() - created_at, 0) * 1000))
        await asyncio.sleep(self._sizes["JOB_WORK_MS"] / 1000)
        self._completed += 1

    async def _produce(self, queue: "AsyncQueue") -> None:
        async for count in self._batches():
            payload = {"created_at": time(), "padding": self._padding}
            job = NewJob(KIND, payload, queue=QUEUE)
            await queue.enqueue_many([job] * count)
            self._enqueued += count

    async def _batches(self) -> AsyncIterator[int]:
        most, pause = (
            self._sizes["PRODUCER_BATCH_MAX"],
            self._sizes["PRODUCER_BATCH_MS"] / 1000,
        )
        if os.environ.get("PRODUCER_MODE") == "depth-target":
            while True:
                count = min(self._sizes["TARGET_DEPTH"] - self._depth, most)
                if count > 0:
                    self._depth += count
                    yield count
                else:
                    await asyncio.sleep(pause)
        elif os.environ.get("PRODUCER_PACING") == "harness":
            lines = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
            )
            async for line in lines:
                yield int(line.split()[1])
        else:
            credit, at = 0.0, monotonic()
            while True:
                await asyncio.sleep(pause)
                now = monotonic()
                credit += self._sizes["PRODUCER_RATE"] * (now - at)
                at = now
                while credit >= 1:
                    count = min(int(credit), most)
                    credit -= count
                    yield count

    async def _count(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        """Ask for the depth; a queue without a job has no row yet.

        Up to it a producer tops up once between two looks: a pause of 0.2 s would allow
        5,000 jobs/s at a depth of 1,000.
        """
        while self._is_observer:
            self._depth = await pool.fetchval(
                "select coalesce(max(pending_count), 0) from "
                "pgwake.get_queue_stats($1)",
                QUEUE,
            )
            await asyncio.sleep(0.02)

    async def _sample(self) -> None:
        every = self._sizes["SAMPLE_EVERY_S"]
        last, at = (0, 0), monotonic()
        while True:
            await asyncio.sleep(every - time() % every)
            now = monotonic()
            since = [ms for seen, ms in self._latencies if now - seen < WINDOW_SECONDS]
            since.sort()
            for percent in (50, 95, 99):
                ms = since[len(since) * percent // 100] if since else 0.0
                self._emit_sample(f"claim_p{percent}_ms", ms, WINDOW_SECONDS)
            counts = self._enqueued, self._completed
            for name, before, count in zip(
                ("enqueue_rate", "completion_rate"), last, counts, strict=True
            ):
                self._emit_sample(name, (count - before) / (now - at), every)
            if self._is_observer:
                self._emit_sample("queue_depth", self._depth, 0)
            last, at = counts, now

    def _emit_sample(self, metric: str, value: float, window_s: int) -> None:
        self._emit(
            t=_now(),
            kind="adapter",
            subject_kind="adapter",
            subject="",
            metric=metric,
            value=value,
            window_s=window_s,
        )

    def _emit(self, **fields: object) -> None:
        fields |= {
            "system": SYSTEM,
            "instance_id": self._sizes["BENCH_INSTANCE_ID"],
        }
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with suppress(KeyboardInterrupt):
        asyncio.run(LongHorizon(os.environ["DATABASE_URL"]).run())
