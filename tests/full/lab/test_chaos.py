"""`python -m tests.lab.chaos`: short runs on a database that is there."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from support import CHECKOUT, Connection, wait_for
from support.sql.helpers import insert

SHORT = ("--hold", "1", "--rate", "40", "--jobs", "0")


async def chaos(folder: Path, *words: str) -> tuple[int | None, str]:
    """Run it, with a folder for what it leaves; its exit code, what it has written."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.lab.chaos", *SHORT, *words),
        cwd=CHECKOUT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_faults_close_their_account_and_leave_others_alone(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    other = await insert(connection, "others", queue="theirs")

    code, output = await chaos(tmp_path, "--faults", "terminate,cut", "--url", database)

    assert code == 0, output
    assert "workers hit" in output, "or it has ended no session"
    assert "All is as promised." in output
    assert await connection.fetchval("select 1") == 1, "this session was not its own"
    status = await connection.fetchval(
        "select status from pgwake.jobs where id = $1", other
    )
    assert status == "pending"


async def test_a_job_that_is_lost_fails_the_run_and_is_left_to_be_looked_at(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    running = asyncio.ensure_future(
        chaos(tmp_path, "--faults", "snapshot", "--url", database)
    )

    async def is_one_gone() -> bool:
        return bool(
            await connection.fetchval(
                "delete from pgwake.jobs"
                " where status = 'completed' and payload ->> 'serial' = '7'"
                " returning true"
            )
        )

    await wait_for(is_one_gone)
    code, output = await running

    assert code == 1, output
    assert "acknowledged, and without a row (serials): 1 (7)" in output
    folder = Path(output.split()[-1])
    assert folder.parent == tmp_path
    assert (folder / "workers-1.log").exists()


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ("kill,flood", "flood: there are kill"),
        ("restart-fast", "left out: restart-fast: say how to restart the server"),
    ],
)
async def test_a_fault_that_can_not_be_made_is_named(
    database: str, tmp_path: Path, faults: str, told: str
) -> None:
    _, output = await chaos(tmp_path, "--faults", faults, "--url", database)

    assert told in output
