"""What a claim has taken whose answer was lost: nobody's, and not for long."""

import asyncpg

from pgwake.database.embedded import EmbeddedServer
from support import Connection, wait_for
from support.sql.helpers import insert
from support.worker.helpers import all_ended, embedded
from support.worker.registries import quick

CLAIMS_THAT_WAIT = """
select count(*) from pg_stat_activity
where query like '%claim_rows%' and wait_event = 'SyncRep'
"""


async def wait_for_standby(connection: Connection, name: str) -> None:
    """Let every commit wait for a standby of that name; '': for none."""
    await connection.execute(f"alter system set synchronous_standby_names = '{name}'")
    await connection.execute("select pg_reload_conf()")


async def test_jobs_whose_claims_were_given_up_run_at_once(
    spare_server: EmbeddedServer, spare_database: str
) -> None:
    connection = await asyncpg.connect(spare_server.url)
    database = await asyncpg.connect(spare_database)
    await database.execute("set synchronous_commit = off")

    async def two_claims_wait() -> bool:
        return bool(await connection.fetchval(CLAIMS_THAT_WAIT) >= 2)

    try:
        async with embedded(spare_database, quick(), query_timeout=1):
            # No standby confirms: each claim is given up, and another one made.
            await wait_for_standby(connection, "nobody")
            for _ in range(30):
                await insert(database, kind="quick")
            await wait_for(two_claims_wait)
            await wait_for_standby(connection, "")

            await all_ended(database)

        rows = await database.fetch(
            "select status, attempt, crash_count, count(*) from pgwake.jobs"
            " group by 1, 2, 3"
        )
        assert [tuple(row) for row in rows] == [("completed", 1, 0, 30)]
    finally:
        await connection.close()
        await database.close()
