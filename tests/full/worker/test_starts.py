"""Handlers' modules that can't be imported: at the first start, and later."""

import os
import signal
from pathlib import Path

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
    connection: Connection, start_worker: StartProcess, tmp_path: Path
) -> None:
    module = tmp_path / "release.py"
    module.write_text(MODULE)
    worker = await start_worker(imports="release")
    module.rename(tmp_path / "away")
    os.kill(worker.children[0], signal.SIGKILL)
    await worker.logged("worker can't start", 2)
    module.write_text("raise RuntimeError")
    await worker.logged("handlers can't be imported")
    module.write_text(MODULE)
    await worker.started(2)
    await ended(connection, await insert(connection, "quick"))


async def test_code_that_never_could_be_imported_ends_the_supervisor_and_says_so(
    start_process: StartProcess, database: str, tmp_path: Path
) -> None:
    (tmp_path / "release.py").write_text("raise SystemExit")
    worker = await start_process(
        *("-m", "pgwake", "run"), database_url=database, imports="release"
    )
    assert await worker.exit_code() == 69
    assert len(worker.log("handlers can't be imported")) == 5
    assert worker.log("no worker process could start", tries=5)
