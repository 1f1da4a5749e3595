"""A busy queue uses up few transaction ids, an idle one none."""

from support import Connection
from support.sql.helpers import call, claim, insert_many, pairs, row_count

NEXT = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


async def test_a_batch_of_a_hundred_jobs_takes_three(connection: Connection) -> None:
    before = await connection.fetchval(NEXT)
    for _ in range(100):
        await insert_many(connection, 100)
        await call(connection, "complete_jobs", **pairs(*await claim(connection, 100)))

    # Other sessions of the server, autovacuum's among them, may take some.
    assert await connection.fetchval(NEXT) - before < 400


async def test_polls_of_an_empty_queue_take_none(connection: Connection) -> None:
    async with connection.transaction():
        for function in ("claim_batch", "claim_jobs"):
            await row_count(connection, function, queue="default", count=10)
        await call(connection, "next_run_at")
        await row_count(connection, "get_queue_stats")
        taken = "select pg_current_xact_id_if_assigned()::text"
        assert await connection.fetchval(taken) is None


async def test_the_renewal_of_a_hundred_leases_takes_one(
    connection: Connection,
) -> None:
    await insert_many(connection, 100)
    held = await claim(connection, 100)
    before = await connection.fetchval(NEXT)
    await call(connection, "extend_leases", **pairs(*held))

    assert await connection.fetchval(NEXT) - before < 10
