"""Of several processes one does the database's upkeep, and when it dies the next."""

import signal
from contextlib import AsyncExitStack
from time import time

from support import Connect, Connection, wait_for
from support.worker.helpers import embedded
from support.worker.metrics import Samples
from support.worker.processes import StartProcess
from support.worker.registries import quick

TURNS = 5
WORKERS = 4
LAST = "select worker, id from pgwake.upkeep_turns"
CALLS = "select calls from pg_stat_user_functions where funcname = $1"
DONE_AT = "pgwake_upkeep_succeeded_timestamp_seconds"


async def test_one_process_does_it_for_all(
    connection: Connection, connect: Connect, admin_url: str, database: str
) -> None:
    name = database.rpartition("/")[2]
    admin = await connect(admin_url)
    await admin.execute(f'alter database "{name}" set track_functions = pl')

    async def has_turned() -> bool:
        row = await connection.fetchrow(LAST)
        return row is not None and row["id"] >= TURNS

    async with AsyncExitStack() as stack:
        started = time()
        workers = [
            await stack.enter_async_context(embedded(database, quick()))
            for _ in range(WORKERS)
        ]
        await wait_for(has_turned)
        done_by, turns = await connection.fetchrow(LAST) or ("", 0)

        def have_heard() -> bool:
            pages = [Samples(worker.metrics.render()) for worker in workers]
            return all(page.total(DONE_AT, step="children") > started for page in pages)

        await wait_for(have_heard)  # those too that have not done it
    assert done_by in [worker.name for worker in workers]

    async def calls(function: str) -> int:
        return await connection.fetchval(CALLS, function) or 0

    async def have_told() -> bool:
        return await calls("forget_worker") == WORKERS

    await wait_for(have_told)
    _, turns = await connection.fetchrow(LAST) or ("", turns)
    # Every turn has it once, but the last one of a worker that has ended meanwhile.
    assert turns - WORKERS <= await calls("recheck_children") <= turns
    assert await calls("flag_missed_keys") < turns


async def test_the_next_goes_on_when_one_is_killed(
    connection: Connection, start_application: StartProcess, database: str
) -> None:
    process = await start_application(test_worker_name="first")

    async def is_done_by(worker: str) -> bool:
        return bool(await connection.fetchval(LAST) == worker)

    await wait_for(lambda: is_done_by("first"))
    async with embedded(database, quick()) as second:
        process.send(signal.SIGKILL)
        await process.exit_code()
        await wait_for(lambda: is_done_by(second.name))
    assert await connection.fetchval(LAST) is None  # it has left it to the next
