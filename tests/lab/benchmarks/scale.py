"""What ordered and limited work costs: keys, parents, max_running, a rate.

As drain, with a worker of ten slots, at a quarter of the backlog and at all of it.
Where only one job can run at a time, the backlog is smaller (serial_jobs).
"""

from functools import partial
from math import log

from pgwake.cli.bench.measure import Figures

from .drain import drained
from .measure import Bench, Measure, Run

QUICK = {"jobs": 2_000, "serial_jobs": 200, "repeats": 1}
PLAIN = "plain"


async def run(
    bench: Bench, *, jobs: int = 20_000, serial_jobs: int = 1_000, repeats: int = 3
) -> list[Run]:
    """Drain under each condition; compare with the plain drain of the same round."""
    drain = partial(_grown, bench, jobs)
    serial = partial(_grown, bench, serial_jobs)
    conditions: dict[str, Measure] = {
        PLAIN: drain,
        "1,000 keys": partial(drain, keys=1000),
        "1,000 keys, 10 of each": partial(drain, keys=1000, policy="key_limit = 10"),
        "a key a job": partial(drain, keys=jobs),
        "10 keys": partial(drain, keys=10),
        "1 key, 10 of it": partial(drain, keys=1, policy="key_limit = 10"),
        "1 key": partial(serial, keys=1),
        "chain of parents": partial(serial, is_chain=True),
        "max_running 10": partial(drain, policy="max_running = 10"),
        "max_running 1,000": partial(drain, policy="max_running = 1000"),
        "rate 100,000/s": partial(drain, policy="rate_limit = 1e5"),
    }
    runs: list[Run] = []
    for _ in range(repeats):
        of_round = await bench.rounds(conditions, 1)
        plain = [one.figures for one in of_round if one.condition == PLAIN]
        for one in of_round if plain else ():
            for name in ("jobs_per_second", "server_cpu_us"):
                if plain[0].get(name):
                    beside = one.figures[name] / plain[0][name]
                    one.figures[f"{name}_beside_plain"] = beside
        runs += of_round
    return runs


async def _grown(
    bench: Bench, jobs: int, *, keys: int = 0, is_chain: bool = False, policy: str = ""
) -> Figures:
    """Drain a backlog. Its exponent says how the cost grows with it: 1 is flat.

    The cost is the server's CPU, or where that is not known the time.
    """
    drain = partial(drained, bench, keys=keys, is_chain=is_chain, policy=policy)
    quarter, figures = await drain(max(jobs // 4, 1)), await drain(jobs)
    if quarter.get("server_cpu_us"):
        growth = figures["server_cpu_us"] / quarter["server_cpu_us"]
    else:
        growth = quarter["jobs_per_second"] / figures["jobs_per_second"]
    return {**figures, "exponent": 1 + log(max(growth, 0.01)) / log(4)}
