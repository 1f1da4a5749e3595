"""What concurrency keys, max_running and a rate cost: a backlog with and without.

As drain, with a worker of ten slots. The limits are such that they hold nothing up for
long: more keys than slots, more room than slots, a rate that is never reached.
"""

from functools import partial

from .drain import drained
from .measure import Bench, Run

QUICK = {"jobs": 5_000, "repeats": 1}


async def run(bench: Bench, *, jobs: int = 20_000, repeats: int = 3) -> list[Run]:
    """Drain under each condition."""
    drain = partial(drained, bench, jobs)
    return await bench.rounds(
        {
            "no limits": drain,
            "1,000 keys": partial(drain, keys=1000),
            "1,000 keys, 10 of each": partial(
                drain, keys=1000, policy="key_limit = 10"
            ),
            "1 key, 10 of it": partial(drain, keys=1, policy="key_limit = 10"),
            "max_running": partial(drain, policy="max_running = 1000"),
            "rate": partial(drain, policy="rate_limit = 1e6"),
        },
        repeats,
    )
