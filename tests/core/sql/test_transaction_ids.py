"""A busy queue uses up few transaction ids, an idle one none."""

from support import Connection
from support.sql.helpers import call, claim, insert_many, pairs, row_count

NEXT = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


async def test_a_batch_of_a_hundred_jobs_takes_four(db: Connection) -> None:
    before = await db.fetchval(NEXT)
    for _ in range(100):
        await insert_many(db, 100)
        await call(db, "complete_jobs", **pairs(*await claim(db, 100)))

    # Other sessions of the server, autovacuum's among them, may take some.
    assert await db.fetchval(NEXT) - before < 500


async def test_polls_of_an_empty_queue_take_none(db: Connection) -> None:
    async with db.transaction():
        for function in ("claim_batch", "claim_jobs"):
            await row_count(db, function, queue="default", count=10)
        await call(db, "next_run_at")
        await row_count(db, "get_queue_stats")
        taken = "select pg_current_xact_id_if_assigned()::text"
        assert await db.fetchval(taken) is None


async def test_the_renewal_of_a_hundred_leases_takes_one(db: Connection) -> None:
    await insert_many(db, 100)
    held = await claim(db, 100)
    before = await db.fetchval(NEXT)
    await call(db, "extend_leases", **pairs(*held))

    assert await db.fetchval(NEXT) - before < 10
