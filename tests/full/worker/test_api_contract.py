"""/openapi.json is what the service does: schemathesis holds one against the other."""

import asyncio
import os
import sys
from pathlib import Path

from support import CHECKOUT, Connection
from support.sql.helpers import job_in
from support.worker.api import TOKEN, serving

CONFIG = Path(__file__).parent / "schemathesis.toml"
KEPT = CHECKOUT / ".hypothesis"  # the classes of all characters: two seconds' work


async def test_the_service_does_what_its_document_says(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    for state in ("completed", "failed", "cancelled", "running", "pending"):
        await job_in(connection, state)
    async with serving(database) as api:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "schemathesis"),
            *("--config-file", str(CONFIG)),
            *("run", f"{api.base_url}/openapi.json"),
            *("--header", f"Authorization: Bearer {TOKEN}"),
            *("--checks", "all", "--max-examples", "10"),
            *("--generation-deterministic", "--no-color"),
            *("--generation-allow-x00", "false"),  # these are refused, in another test
            cwd=tmp_path,
            env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(KEPT)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
