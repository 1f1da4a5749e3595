"""What the benchmarks' workers run."""

import time

from pgwake import job
from pgwake.cli.bench.handlers import latency, noop, note

job("noop")(noop)
job("latency")(latency)


@job("delayed")
async def delayed(at: float) -> None:
    """Note how long ago that instant was, in seconds of this machine's clock."""
    note((time.time() - at) * 1000)
