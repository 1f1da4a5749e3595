"""What the benchmarks' workers run."""

import time
from typing import Any

from pgwake import job


@job("noop")
async def noop(**payload: Any) -> None:
    """Do nothing, with whatever payload."""


@job("wakeup")
async def wakeup(at: float) -> float:
    """Return the milliseconds since that instant, by this machine's clock."""
    return (time.time() - at) * 1000
