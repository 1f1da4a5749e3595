"""What the benchmark's worker runs."""

import os
import time
from typing import Any

from pgwake.jobs.registry import job

DELAYS = "PGWAKE_BENCH_DELAYS"  # the file that delays are noted in
# Nobody else's: what a worker declares of them is removed at the end.
NOOP, LATENCY = "pgwake_bench_noop", "pgwake_bench_latency"

_file = os.open(os.environ.get(DELAYS, os.devnull), os.O_WRONLY | os.O_APPEND)


def note(milliseconds: float) -> None:
    """Append a delay to the file: a job's handler has begun."""
    os.write(_file, b"%.3f\n" % milliseconds)


async def noop(**payload: Any) -> None:
    """Do nothing, with whatever payload."""


async def latency(at: int) -> None:
    """Note how long ago that instant was, in nanoseconds of CLOCK_MONOTONIC."""
    note((time.monotonic_ns() - at) / 1e6)


job(NOOP)(noop)
job(LATENCY)(latency)
