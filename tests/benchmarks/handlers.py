"""What the benchmarks' workers run."""

import os
import time
from typing import Any

from pgwake import job

DELAYS = "PGWAKE_BENCH_DELAYS"  # the file that delays are noted in

_file = os.open(os.environ.get(DELAYS, os.devnull), os.O_WRONLY | os.O_APPEND)


def note(milliseconds: float) -> None:
    """Append a delay to the file: a job's handler has begun."""
    os.write(_file, b"%.3f\n" % milliseconds)


@job("noop")
async def noop(**payload: Any) -> None:
    """Do nothing, with whatever payload."""


@job("latency")
async def latency(at: int) -> None:
    """Note how long ago that instant was, in nanoseconds of CLOCK_MONOTONIC."""
    note((time.monotonic_ns() - at) / 1e6)


@job("delayed")
async def delayed(at: float) -> None:
    """Note how long ago that instant was, in seconds of this machine's clock."""
    note((time.time() - at) * 1000)
