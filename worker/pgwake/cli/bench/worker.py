"""The worker that is measured: its process, and what it runs there."""

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pgwake.cli.own_worker import WorkerChild
from pgwake.jobs.registry import job
from pgwake.settings import Settings

# A worker as it is by default, but for the HTTP port, which is one of this machine's.
COMMAND = (
    *("-m", "pgwake", "run", "--import", __name__, "--http-port", "0"),
    *("--log-format", "json", "--log-level", "info"),
)
# Nobody else's: what a worker declares of them is removed at the end.
NOOP, LATENCY = "pgwake_bench_noop", "pgwake_bench_latency"

POLL_SECONDS = 0.005
_DELAYS = "PGWAKE_BENCH_DELAYS"  # the file that delays are noted in
_file = os.open(os.environ.get(_DELAYS, os.devnull), os.O_WRONLY | os.O_APPEND)


@job(NOOP)
async def noop(**payload: Any) -> None:
    """Do nothing, with whatever payload."""


@job(LATENCY)
async def latency(at: int) -> None:
    """Note how long ago that instant was, in nanoseconds of CLOCK_MONOTONIC."""
    os.write(_file, b"%.3f\n" % ((time.monotonic_ns() - at) / 1e6))


class MeasuredWorker(WorkerChild):
    """A child process that runs jobs; a context manager.

    Args:
        settings: Whose database it works on.
        command: What python is to run; it logs "worker started" as JSON.
    """

    def __init__(self, settings: Settings, command: Sequence[str]) -> None:
        super().__init__(settings, command)
        self._delays = self.log_path.with_name("delays")
        self._delays.touch()
        # Only what it is told to run, whatever is set for the workers of this place.
        self._environment |= {
            _DELAYS: str(self._delays),
            "PGWAKE_HTTP_HANDLERS": "{}",
            "PGWAKE_EXEC_HANDLERS": "{}",
            "PGWAKE_WEBHOOKS": "false",
        }

    async def started(self, processes: int = 1) -> None:
        """Wait until all its processes work, two minutes at most."""
        await self._wait(self.log_path, '"worker started"', processes, 120, "started")

    async def delays(self, jobs: int, seconds: float = 60) -> list[float]:
        """Wait until so many jobs have begun; by how many milliseconds too late."""
        await self._wait(self._delays, "\n", jobs, seconds, f"begun {jobs} jobs")
        return [float(line) for line in self._delays.read_text().splitlines()]

    async def _wait(
        self, path: Path, text: str, times: int, seconds: float, what: str
    ) -> None:
        """Wait until a file has a text so often.

        Raises:
            PgwakeError: The worker has ended, or the time is over.
        """
        read = partial(path.read_text, errors="replace")

        async def is_there() -> bool:
            return read().count(text) >= times

        if not await self.wait_until(is_there, seconds, POLL_SECONDS):
            raise self.error(f"has not {what} within {seconds:.0f} s")
