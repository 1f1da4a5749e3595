"""A worker whose handlers note how late they have begun."""

from collections.abc import Sequence

from pgwake.cli.bench.handlers import DELAYS
from pgwake.cli.stage import WorkerChild
from pgwake.settings import Settings

START_SECONDS = 120.0
POLL_SECONDS = 0.02


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
            DELAYS: str(self._delays),
            "PGWAKE_HTTP_HANDLERS": "{}",
            "PGWAKE_EXEC_HANDLERS": "{}",
            "PGWAKE_WEBHOOKS": "false",
        }

    async def started(self, processes: int = 1) -> None:
        """Wait until all its processes work.

        Raises:
            PgwakeError: It has ended, or has not started within two minutes.
        """

        async def have_started() -> bool:
            log = self.log_path.read_text(errors="replace")
            return log.count('"worker started"') >= processes

        if not await self.wait_until(have_started, START_SECONDS, POLL_SECONDS):
            raise self.error(f"has not started within {START_SECONDS:.0f} s")

    async def delays(self, jobs: int, seconds: float = 60) -> list[float]:
        """Wait until so many handlers have begun; by how many milliseconds too late.

        Raises:
            PgwakeError: It has ended, or they have not begun in time.
        """

        async def have_begun() -> bool:
            return self._delays.read_text().count("\n") >= jobs

        if not await self.wait_until(have_begun, seconds, POLL_SECONDS):
            raise self.error(f"has not begun {jobs} jobs within {seconds:.0f} s")
        return [float(line) for line in self._delays.read_text().splitlines()]
