"""pgwake as a driver of the peers' runner, from the checkout that PGWAKE_SRC names.

The worker is the one that `pgwake run` starts, with its defaults, in the driver's own
process, where the runner counts CPU; its log goes to a file.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, f"{os.environ['PGWAKE_SRC']}/worker")

import asyncpg
from kit import Peer, run  # type: ignore[import-not-found]  # the runner's

from pgwake.database.install import install
from pgwake.database.statements.install import adopt
from pgwake.engine.worker import Worker
from pgwake.jobs.registry import Registry
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.version import __version__

ONE = "insert into pgwake.jobs (kind, payload) values ('noop', $1)"
PAYLOAD = '{"t0":0}'


class Pgwake(Peer):  # type: ignore[misc]  # nobody has typed it
    name = "pgwake"
    version = __version__
    always_uvloop = True
    pending_sql = "select count(*) from pgwake.jobs_live"
    profiles: ClassVar = {"default": "as `pgwake run` starts it, with uvloop"}

    async def setup(self) -> None:
        await install(self.dsn)
        connection = await asyncpg.connect(self.dsn)
        await adopt(connection, guard=False)  # each run is in a copy of it
        await connection.close()

    async def open_producer(self, conns: int) -> None:
        self.pool = await asyncpg.create_pool(self.dsn, min_size=conns, max_size=conns)

    async def put(self, t0: int) -> None:
        await self.pool.execute(ONE, json.dumps({"t0": t0}))

    async def put_many(self, n: int) -> None:
        await self.pool.copy_records_to_table(
            "jobs",
            schema_name="pgwake",
            columns=["kind", "payload"],
            records=[("noop", PAYLOAD)] * n,
        )

    async def work(self, conc: int, hit: Any) -> None:
        registry = Registry()

        @registry.job("noop")
        async def noop(t0: int, pad: str = "") -> None:  # noqa: ARG001, of 2 kB
            hit(t0)

        settings = Settings.load(
            database_url=self.dsn, queues=f"default:{conc}", http_port=0
        )
        sys.stderr = _open_log()
        logs.configure(settings, worker="benchmark")
        async with Worker(settings, registry):
            await asyncio.Event().wait()


def _open_log() -> Any:
    return Path(os.environ["PGWAKE_BENCH_LOG"]).open("a", buffering=1)


if __name__ == "__main__":
    run(Pgwake)
