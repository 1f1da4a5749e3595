"""The Django project tests/examples/django_shop: its commands, and its worker."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support import CHECKOUT
from support.worker.processes import WorkerProcess, clean_environment

PROJECT = CHECKOUT / "tests" / "examples" / "django_shop"


def manage(url: str, *words: str, code: int = 0, **variables: str) -> str:
    """Run manage.py, warnings as errors; what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "manage.py", *words],
        cwd=PROJECT,
        env=clean_environment({"SHOP_DATABASE_URL": url, **variables}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@asynccontextmanager
async def working(
    url: str, *words: str, project: Path = PROJECT
) -> AsyncIterator[WorkerProcess]:
    """A worker of the project, started from elsewhere."""
    process = await WorkerProcess.start(
        *(str(project / "manage.py"), "pgwake_worker", *words),
        *("--http-port", "0", "--log-format", "json"),
        directory=Path("/"),
        environment={"SHOP_DATABASE_URL": url, "PGWAKE_POLL_INTERVAL": "3600"},
    )
    try:
        await process.started()
        yield process
    finally:
        await process.close()
