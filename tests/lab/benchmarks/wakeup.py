"""How soon an idle worker begins a job: from the start of its INSERT, commit included,
to the first line of its handler.

One job at a time; every second one goes to a hand-written loop that waits on a database
of its own, so that both meet the same machine.
"""

import asyncio
from contextlib import AsyncExitStack

from pgwake.cli.bench.measure import latencies, payload_now

from .contenders import PGWAKE, REFERENCE
from .measure import Bench, Run, show

QUICK = {"jobs": 50, "repeats": 1}
WARM_UP = 5


async def run(
    bench: Bench, *, jobs: int = 500, pause_ms: int = 50, repeats: int = 3
) -> list[Run]:
    """Wake each contender for each job."""
    runs = []
    for _ in range(repeats):
        runs += await _once(bench, jobs + WARM_UP, pause_ms / 1000)
    return runs


async def _once(bench: Bench, jobs: int, pause: float) -> list[Run]:
    contenders = [one for one in (PGWAKE, REFERENCE) if bench.only in one.name]
    async with AsyncExitStack() as stack:
        started = []
        for contender in contenders:
            url, connection = await stack.enter_async_context(contender.database(bench))
            worker = await stack.enter_async_context(contender.worker(url))
            insert = await connection.prepare(contender.insert)
            started.append((contender, worker, insert))
        await asyncio.sleep(1)
        for _ in range(jobs):
            for _, _, insert in started:
                await insert.fetch(payload_now())
                await asyncio.sleep(pause)
        runs = [
            Run(contender.name, latencies((await worker.delays(jobs))[WARM_UP:]))
            for contender, worker, _ in started
        ]
    return [show(one) for one in runs]
