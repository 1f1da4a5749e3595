"""How fast a backlog of no-op jobs is run, and what each job costs.

From the moment that the worker, already started, is let at them, until none is left.
"""

import functools
import json
from time import monotonic

from pgwake.cli.bench.measure import Figures, Meter, padding

from .contenders import DELETING_REFERENCE, PGWAKE, REFERENCE, Contender
from .measure import Bench, Run

QUICK = {"jobs": 5_000, "repeats": 1}


async def run(bench: Bench, *, jobs: int = 50_000, repeats: int = 5) -> list[Run]:
    """Drain under each condition."""
    drain = functools.partial(_drain, bench, jobs)
    return await bench.rounds(
        {
            "10 slots": functools.partial(drain, PGWAKE),
            "100 slots": functools.partial(drain, PGWAKE, slots=100),
            "2 kB": functools.partial(drain, PGWAKE, payload_bytes=2000),
            "2 processes": functools.partial(drain, PGWAKE, processes=2),
            "hand-written loop": functools.partial(drain, REFERENCE),
            "hand-written loop, 2 kB": functools.partial(
                drain, REFERENCE, payload_bytes=2000
            ),
            "hand-written loop that deletes": functools.partial(
                drain, DELETING_REFERENCE
            ),
        },
        repeats,
    )


async def _drain(
    bench: Bench,
    jobs: int,
    contender: Contender,
    *,
    slots: int = 10,
    processes: int = 1,
    payload_bytes: int = 0,
) -> Figures:
    arguments = ("--queue", f"default:{slots}") if slots != 10 else ()
    async with bench.database() as (url, connection):
        await contender.install(url, connection)
        await connection.execute(contender.hold)
        payload = json.dumps({"number": 1, **padding(payload_bytes)})
        await connection.execute(contender.fill, jobs, payload)
        await connection.execute("vacuum analyze")
        async with contender.worker(url, *arguments, processes=processes) as worker:
            meter = Meter(connection, worker.pid)
            await meter.start()
            started = monotonic()
            await connection.execute(contender.release)
            await contender.wait_until_done(connection)
            seconds = monotonic() - started
            return {"jobs_per_second": jobs / seconds, **await meter.stop(jobs)}
