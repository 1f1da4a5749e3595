"""What it costs the server that many workers show metrics, each scraped each second."""

import asyncio
import functools
import random
from statistics import median
from time import monotonic

import asyncpg

from pgwake.cli.bench.measure import Figures, measured
from pgwake.database.connection import Connection
from pgwake.observe.metrics import Metrics
from pgwake.observe.sampler import SAMPLE_SECONDS, Sampler

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"jobs": 10_000, "workers": 5, "seconds": 2, "repeats": 1}
AT_ONCE = 1_000_000
# Of how many queues, and which part of their jobs is not yet due.
CONDITIONS = {
    "1 queue, all due": (1, 0.0),
    "1 queue, half due later": (1, 0.5),
    "200 queues": (200, 0.5),
    "1,000 queues": (1000, 0.5),
}
FILL = """
insert into pgwake.jobs (kind, queue, run_at)
select 'noop', 'q' || n % $2,
  now() + case when random() < $3 then interval '1 day' else '0' end
from generate_series(1, $1) as n
"""
REPORT = """
select pgwake.report_worker('w' || n, 'host', 1, array['q' || n % $2], '{noop}')
from generate_series(1, $1) as n
"""


async def run(
    bench: Bench,
    *,
    jobs: int = 1_000_000,
    workers: int = 50,
    seconds: int = 60,
    repeats: int = 1,
) -> list[Run]:
    """Sample as so many workers do, and compare with the same time without."""

    async def metrics(queues: int, later: float) -> Figures:
        async with PGWAKE.database(bench) as (url, connection):
            for done in range(0, jobs, AT_ONCE):
                count = min(AT_ONCE, jobs - done)
                await connection.execute(FILL, count, queues, later)
            await connection.execute("vacuum analyze")
            await connection.execute("select pgwake.maintain('fold')")
            await connection.execute(REPORT, workers, queues)
            sessions = [await asyncpg.connect(url) for _ in range(workers)]
            samplers = [_Worker(session) for session in sessions]
            for sampler in samplers:  # the first ones compile
                for _ in range(2):
                    await sampler.sample()
                sampler.milliseconds.clear()

            async def wait() -> None:
                for left in range(seconds, 0, -10):
                    await connection.execute(REPORT, workers, queues)
                    await asyncio.sleep(min(left, 10))

            async def server_seconds() -> float:
                """CPU of the server until the time is over."""
                used = await measured(connection, 1, wait)
                return used.get("server_cpu_us", 0) / 1e6

            without = await server_seconds()
            tasks = [asyncio.create_task(sampler.run(seconds)) for sampler in samplers]
            by = await server_seconds()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for session in sessions:
                await session.close()
        samples = [ms for sampler in samplers for ms in sampler.milliseconds]
        scrapes = [ms for sampler in samplers for ms in sampler.scrapes]
        return {
            "server_percent": 100 * (by - without) / seconds,
            "samples_per_second": len(samples) / seconds,
            "sample_ms": median(samples),
            "server_ms_per_sample": 1000 * (by - without) / max(len(samples), 1),
            "scrape_ms": median(scrapes),
            "page_kb": len(samplers[0].metrics.render()) / 1000,
        }

    return await bench.rounds(
        {
            name: functools.partial(metrics, *condition)
            for name, condition in CONDITIONS.items()
        },
        repeats,
    )


class _Worker:
    """The part of a worker that samples, and is scraped."""

    def __init__(self, session: Connection) -> None:
        self.metrics = Metrics([])
        self.milliseconds: list[float] = []
        self.scrapes: list[float] = []
        self._session = session
        self._sampler = Sampler(self.metrics)

    async def run(self, seconds: float) -> None:
        """As the upkeep does, and its scraper; the first sample within so long."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sample(min(seconds, SAMPLE_SECONDS)))
            tasks.create_task(self._be_scraped())

    async def sample(self) -> None:
        """Take a sample."""
        started = monotonic()
        await self._sampler.sample(self._session)
        self.milliseconds.append((monotonic() - started) * 1000)

    async def _sample(self, seconds: float) -> None:
        await asyncio.sleep(random.uniform(0, seconds))  # noqa: S311
        while True:
            await self.sample()
            wait = max(SAMPLE_SECONDS, self._sampler.seconds)
            await asyncio.sleep(wait * random.uniform(0.9, 1.1))  # noqa: S311

    async def _be_scraped(self) -> None:
        while True:
            started = monotonic()
            self.metrics.render()
            self.scrapes.append((monotonic() - started) * 1000)
            await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311
