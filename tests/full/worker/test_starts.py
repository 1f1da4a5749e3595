"""Handlers' modules that can't be imported: at the first start, and later."""

import os
import signal
from pathlib import Path

import pytest

from support import Connection
from support.sql.helpers import insert
from support.worker.helpers import ended
from support.worker.processes import StartProcess

MODULE = """
from pgwake import job

@job("quick")
async def quick() -> None: ...
"""


async def test_code_that_is_away_for_a_while_is_tried_again(
    connection: Connection, start_process: StartProcess, database: str, tmp_path: Path
) -> None:
    """While a release is replaced: at the first start, and later."""
    worker = await start_process(
        *("-m", "pgwake", "run"), database_url=database, imports="release"
    )
    await worker.logged("worker can't start")
    module = tmp_path / "release.py"
    module.write_text(MODULE)
    await worker.started(1)
    module.rename(tmp_path / "away")
    os.kill(worker.children[-1], signal.SIGKILL)
    await worker.logged("worker can't start", 2 + len(worker.log("worker can't start")))
    module.write_text("raise RuntimeError")
    await worker.logged("handlers can't be imported")
    module.write_text(MODULE)
    await worker.started(2)
    await ended(connection, await insert(connection, "quick"))


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("raise SystemExit", "handlers can't be imported"),
        ("import release.absent", "worker can't start"),
    ],
)
async def test_code_that_never_could_be_imported_ends_the_supervisor_and_says_so(
    start_process: StartProcess, database: str, tmp_path: Path, text: str, event: str
) -> None:
    (tmp_path / "release.py").write_text(text)
    worker = await start_process(
        *("-m", "pgwake", "run"), database_url=database, imports="release"
    )
    assert await worker.exit_code() == 69
    assert len(worker.log(event)) == 5
    assert worker.log("no worker process could start", tries=5)
    assert not worker.log("process died")
