"""What serves the page: `pgwake serve` in a thread of the tests, or a worker."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TypeAlias

from pgwake import Settings
from pgwake.http.standalone import StandaloneServer
from support import PATIENCE, free_port
from support.worker.processes import clean_environment

TOKEN = "a-token-of-the-tests-own"  # noqa: S105, for a server that lives as long


class Site:
    """What `pgwake serve` runs, on a port that it keeps; started in a moment."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._settings: dict[str, object] = {
            "api_token": TOKEN,
            "http_host": "127.0.0.1",
            "http_port": self.port,
            **settings,
        }
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._web: StandaloneServer | None = None

    def start(self, **settings: object) -> None:
        """Start it, perhaps with other settings than before; wait until it is ready."""
        self._settings |= settings
        self._launch()
        deadline = time.monotonic() + PATIENCE
        while self._readiness() != 200:
            assert time.monotonic() < deadline, "not ready"
            time.sleep(0.01)

    def _launch(self) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._web = StandaloneServer(Settings.load(**self._settings), "tests")
        await self._web.run()

    def stop(self) -> None:
        """Stop it, and wait for its end."""
        if self._thread is None:
            return
        assert self._loop is not None
        assert self._web is not None
        self._loop.call_soon_threadsafe(self._web.stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._thread = None

    def _readiness(self) -> int | None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()


class WorkerSite(Site):
    """`pgwake run`, a process of its own, with the handlers of worker/handlers.py."""

    def __init__(self, settings: Mapping[str, object], directory: Path) -> None:
        super().__init__(
            {"imports": "support.worker.handlers", "cancel_grace": 1, **settings}
        )
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def _launch(self) -> None:
        environment = {f"PGWAKE_{k.upper()}": str(v) for k, v in self._settings.items()}
        environment["TEST_DIARY"] = str(self._directory / "diary")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pgwake", "run"],
            cwd=self._directory,
            env=clean_environment(environment),
        )

    def stop(self) -> None:
        """Stop it at once, and wait for its end."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._process = None


StartSite: TypeAlias = Callable[..., Site]
