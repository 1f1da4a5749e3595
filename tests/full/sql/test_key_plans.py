"""What a check of a concurrency key reads: as much at many jobs as at few."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from support import Connection, database_url
from support.sql.fixtures import fixture
from support.sql.helpers import call, claim, claim_batch, insert, pairs, set_queue
from support.sql.plans import Case, Explained, buffers, check_case

# No dead rows of other tests.
pytestmark = pytest.mark.own_database

# Key "a": half of it is scheduled at a higher priority, the others are due. Key "full"
# has no room. Keys 1 to 20 have a job each.
LEASE = "00000000-0000-0000-0000-000000000001"
FILL = """
insert into pgwake.jobs_live (queue, kind, status, concurrency_key, priority, run_at)
select 'default', 'k', 'waiting', key, n % 2 * 5,
  case n % 2 when 0 then now() - interval '1 hour' else now() + interval '1 day' end
from generate_series(1, {count}) as n, unnest(array['a', 'busy', 'full']) as key
where key <> 'full' or n <= 1000
union all
select 'default', 'k', 'waiting', n::text, 0, now() from generate_series(1, 20) as n
union all
select 'default', 'k', 'pending', 'full', 0, now()
"""
# Its end hands the room of key "busy" on.
HOLDER = """
insert into pgwake.jobs_live (id, kind, status, concurrency_key, lease_id,
  lease_expires_at, claimed_by, started_at)
values (-1, 'k', 'running', 'busy', '{lease}', now(), 'w', now())
"""
RECHECKS = """
insert into pgwake.rechecks
select 'default', now(), key from unnest(array['a', 'full']) as key
union all select 'default', now(), n::text from generate_series(1, 20) as n
"""
KEY = "jobs_key_idx"


@pytest.fixture(scope="module", params=["few", "many"])
def keys_at(
    request: pytest.FixtureRequest,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    template: str,
    many: int,
) -> Iterator[str]:
    """The superuser's URL of a database with that many jobs waiting for one key."""
    count = many if request.param == "many" else 1000
    name = f"pgwake_keys_{count}"
    admin.execute(f"create database {name} template {template}")
    url = database_url(server, name, role="postgres")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("alter table pgwake.jobs_live set (autovacuum_enabled=off)")
        db.execute("set session_replication_role = replica")  # no trigger
        (make_index,) = db.execute(
            f"select pg_get_indexdef('pgwake.{KEY}'::regclass)"
        ).fetchone() or ("",)
        db.execute(f"drop index pgwake.{KEY}")
        db.execute(FILL.format(count=count))
        db.execute(HOLDER.format(lease=LEASE))
        db.execute(make_index)
        db.execute(RECHECKS)
        db.execute("analyze pgwake.jobs_live")
    yield url
    admin.execute(f"drop database {name} with (force)")


@fixture
async def explained(keys_at: str) -> AsyncIterator[Explained]:
    db = await asyncpg.connect(keys_at)
    yield await Explained.start(db)
    await db.close()


INDEXES = {KEY, "jobs_claim_idx", "jobs_live_pkey"}
CASES = {
    "claim 1": Case("from pgwake.claim_batch('default', 1)", INDEXES, 700),
    "claim 50": Case("from pgwake.claim_batch('default', 50)", INDEXES, 3000),
    "end": Case(
        f"pgwake.complete_jobs(array[-1], array['{LEASE}'::uuid])", INDEXES, 200
    ),
    "upkeep": Case("pgwake.flag_missed_keys(5)", INDEXES, 500),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_check_of_a_key_rides_its_indexes_within_its_bound(
    explained: Explained, case: str
) -> None:
    await check_case(explained, CASES[case])


async def test_many_that_are_scheduled_before_stand_in_nobodys_way(
    explained: Explained,
) -> None:
    transaction = explained.connection.transaction()
    await transaction.start()
    taken = await explained.connection.fetchval(
        "select array_agg(j.concurrency_key) from pgwake.claim_jobs('default', 50) as c"
        " join pgwake.jobs_live as j on j.id = c.id"
    )
    await transaction.rollback()
    # And the one that was pending.
    assert sorted(taken) == sorted(["a", "full", *map(str, range(1, 21))])


async def test_a_busy_key_with_5000_jobs_costs_the_next_one_nothing(
    db: Connection,
) -> None:
    arguments = {"queue": "default", "count": 1}
    await insert(db, concurrency_key="z")
    fresh = await buffers(db, "claim_batch", **arguments)
    await db.execute("delete from pgwake.jobs")
    await db.execute("delete from pgwake.rechecks")

    await insert(db, concurrency_key="k")
    await claim(db)
    await db.execute(
        "insert into pgwake.jobs (kind, concurrency_key)"
        " select 'noop', 'k' from generate_series(1, 5000)"
    )
    z = await insert(db, concurrency_key="z")
    assert await buffers(db, "claim_batch", **arguments) < fresh + 100
    assert [job["id"] for job in await claim(db)] == [z]
    # And when its rechecks are many, they are read once.
    await db.execute(
        "insert into pgwake.rechecks select 'default', now(), 'k'"
        " from generate_series(1, 5000)"
    )
    z = await insert(db, concurrency_key="z2")
    assert [job["id"] for job in await claim(db)] == [z]
    assert await claim(db) == []
    assert await db.fetchval("select count(*) from pgwake.rechecks") == 0


@pytest.mark.usefixtures("old_snapshot")
async def test_an_old_snapshot_makes_no_cliff_of_dead_rechecks(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.rechecks select 'default', now() - interval '1 minute',"
        " 'gone' from generate_series(1, 20000)"
    )
    while await db.fetchval("select count(*) from pgwake.rechecks"):
        await claim(db)

    cursor = (await claim_batch(db))["cursor"]
    assert cursor is not None
    far = "select (clock_timestamp() + interval '59 seconds')::text"
    cursor["keys"][1] = await db.fetchval(far)
    arguments = {"queue": "default", "count": 1}
    assert await buffers(db, "claim_batch", **arguments, cursor=cursor) < 100
    assert await buffers(db, "claim_batch", **arguments) > 100

    job_id = await insert(db, concurrency_key="new")
    row = await claim_batch(db, cursor=cursor)
    assert row["ids"] == [job_id]
    assert row["cursor"]["keys"][1] is not None, "the look from the head is kept"


async def test_a_queue_without_keys_pays_three_buffers_for_them(db: Connection) -> None:
    await insert(db)
    await set_queue(db)
    arguments = {"queue": "default", "count": 1}
    without = await buffers(db, "claim_batch", **arguments)
    await insert(db, queue="other", concurrency_key="a")
    assert await buffers(db, "claim_batch", **arguments) <= without + 3
    assert await call(db, "flag_missed_keys") == 0
    (job,) = await claim(db)
    await call(db, "complete_jobs", **pairs(job))


@pytest.mark.parametrize(
    "chosen",
    [
        {"concurrency_key": "7"},
        {"concurrency_key": "7", "queue": "default"},
        {"queue": "none"},
    ],
    ids=repr,
)
async def test_few_jobs_of_a_key_or_a_queue_are_cancelled_without_reading_the_others(
    explained: Explained, chosen: dict[str, str]
) -> None:
    assert await buffers(explained.connection, "cancel_jobs", **chosen) < 600


async def test_who_cancels_by_kind_alone_is_told_that_all_live_jobs_are_read(
    keys_at: str,
) -> None:
    db = await asyncpg.connect(keys_at)
    said: list[str] = []
    db.add_log_listener(lambda _, message: said.append(str(message)))
    transaction = db.transaction()
    await transaction.start()
    await db.execute(
        "update pg_class set reltuples = 2e6 where oid = 'pgwake.jobs_live'::regclass"
    )
    await call(db, "cancel_jobs", kind="none", queue="none")
    assert not said
    await call(db, "cancel_jobs", kind="none")
    await transaction.rollback()
    await db.close()
    (message,) = said
    assert "all live jobs are read, about 2000000" in message
