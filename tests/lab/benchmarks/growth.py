"""What jobs leave behind in the storage: sizes after each million that went through."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pgwake.cli.bench.measure import Figures

from .measure import Bench, Run

QUICK = {"jobs": 20_000, "every": 10_000}
MODULE = "tests.lab.benchmarks.storage"
IS_THERE = find_spec(MODULE) is not None


async def run(
    bench: Bench, *, jobs: int = 5_000_000, every: int = 1_000_000
) -> list[Run]:
    """Drive so many jobs through a queue."""
    storage: Any = import_module(MODULE)
    async with bench.database() as (url, _):
        rows = await storage.run(url, jobs, every)
    return [Run(f"{row['jobs']:,} jobs", _flat(row)) for row in rows]


def _flat(row: dict[str, Any]) -> Figures:
    """The row's numbers; sizes of relations in megabytes."""
    sizes = {**row["bytes"], "jobs_finished": row["finished"]}
    numbers = {
        name: one
        for name, one in row.items()
        if isinstance(one, int | float) and name not in ("jobs", "finished")
    }
    return {**numbers, **{f"{name}_mb": size / 1e6 for name, size in sizes.items()}}
