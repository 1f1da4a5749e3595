"""A process with many queues: it asks for idle ones together, and takes few locks."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pgwake import Worker
from pgwake.database.embedded import EmbeddedServer
from support import Connect, create_installed_database, wait_for
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended
from support.worker.metrics import wakeups
from support.worker.registries import quick

ROOM = 100  # for queues, each with two locks, in half of the server's
QUEUES = [f"q{n}" for n in range(ROOM + 30)]
SETTINGS = {
    "max_connections": "40",
    "max_locks_per_transaction": "10",
    "track_functions": "pl",
}
CALLS = "select calls from pg_stat_user_functions where funcname = $1"
LOCKS = "select count(*) from pg_locks where locktype = 'advisory'"


@pytest.fixture
def small_server(binaries: Path) -> Iterator[EmbeddedServer]:
    """A server with few locks."""
    with EmbeddedServer(binaries=binaries, settings=SETTINGS) as server:
        yield server


async def test_idle_queues_are_polled_together_and_leave_room_for_other_locks(
    small_server: EmbeddedServer, connect: Connect
) -> None:
    url = create_installed_database(small_server, "pgwake_small")
    connection = await connect(url)

    async def calls(function: str) -> int:
        return await connection.fetchval(CALLS, function) or 0

    async def have_locks() -> bool:
        return bool(await connection.fetchval(LOCKS) == 2 * ROOM)

    async def is_woken(worker: Worker, queue: str, cause: str) -> bool:
        """Whether a job has: not one that comes while its queue is looked at."""
        job_id = await insert(connection, "quick", queue=queue)
        assert (await ended(connection, job_id))["status"] == "completed"
        return wakeups(worker, queue=queue, cause=cause) > 0

    with capture_logs() as logs:
        async with embedded(
            url, quick(), queues=",".join(f"{q}:1" for q in QUEUES), poll_interval=0.5
        ) as worker:
            await wait_for(have_locks)
            asleep = await connection.fetch(
                "select q, pgwake.is_notify_lock_held(q) from unnest($1::text[]) as q",
                QUEUES,
            )
            for cause, has_lock in (("poll", False), ("notify", True)):
                queue = next(q for q, is_held in asleep if is_held == has_lock)
                await wait_for(partial(is_woken, worker, queue, cause))
            assert await connection.fetchval(LOCKS) <= 2 * ROOM

    assert any("no room" in line["event"] for line in logs)
    (started,) = [line for line in logs if line["event"] == "worker started"]
    assert started["queues"].endswith(f",q19:1 and {len(QUEUES) - 20} more")

    async def have_told() -> bool:
        return await calls("forget_worker") == 1

    await wait_for(have_told)
    # Claims are for those that come before it is a crowd, and for those that have jobs.
    assert 0 < await calls("claim_rows") < len(QUEUES)
