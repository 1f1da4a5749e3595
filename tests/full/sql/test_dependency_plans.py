"""What a check of children reads: as much behind many jobs as behind few."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from support import Connection, database_url
from support.sql.fixtures import fixture
from support.sql.helpers import call, claim, claim_batch, insert, pairs
from support.sql.plans import Case, Explained, buffers, check_case

# No dead rows of other tests.
pytestmark = pytest.mark.own_database

LEASE = "00000000-0000-0000-0000-000000000001"
# Job 0 completed, 1 runs, 2 failed; the others wait in a queue of their own, each for
# the one before.
FILL = """
insert into pgwake.jobs_live (id, queue, kind, status, has_parents_left, depends_on)
select n, 'others', 'k', 'waiting', true, array[n - 1]
from generate_series(1000, 1000 + {count}) as n;
insert into pgwake.jobs_live
  (id, queue, kind, status, lease_id, lease_expires_at, claimed_by, started_at)
values (1, 'parents', 'k', 'running', '{lease}', now(), 'w', now());
update pgwake.jobs_live set has_children = true where id = 1;
insert into pgwake.jobs_finished (id, kind, status, finished_at, finished_slot)
values (0, 'k', 'completed', now(), 7);
insert into pgwake.jobs_failed (id, kind, status, finished_at)
values (2, 'k', 'failed', now());
"""
# Queue "fresh" has children of all three; 50 of "freed" have lost their last parent.
CHILDREN = """
insert into pgwake.jobs_live (id, queue, kind, status, has_parents_left, depends_on)
select n, case when n <= 150 then 'fresh' else 'freed' end, 'k', 'waiting', true,
  array[n % 3]
from generate_series(101, 200) as n;
insert into pgwake.rechecks (queue, at, child_id)
select 'fresh', now() - interval '2 s', n from generate_series(101, 150) as n;
insert into pgwake.rechecks (queue, at, child_id, parent_id, has_failed)
select 'freed', now() - interval '2 s', n, 0, false
from generate_series(151, 200) as n;
insert into pgwake.dependencies (parent_id, child_id)
select n - 1, n from generate_series(1000, 1000 + {count}) as n
union all select 1, n from generate_series(1000, 1010) as n;
"""


@pytest.fixture(scope="module", params=["few", "many"])
def children_at(
    request: pytest.FixtureRequest,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    template: str,
    many: int,
) -> Iterator[str]:
    """The superuser's URL of a database with that many children that wait."""
    count = many if request.param == "many" else 1000
    name = f"pgwake_children_{count}"
    admin.execute(f"create database {name} template {template}")
    url = database_url(server, name, role="postgres")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("alter table pgwake.jobs_live set (autovacuum_enabled=off)")
        db.execute("set session_replication_role = replica")  # no trigger
        db.execute(FILL.format(count=count, lease=LEASE))
        db.execute(CHILDREN.format(count=count))
        db.execute("analyze pgwake.jobs_live, pgwake.dependencies")
    yield url
    admin.execute(f"drop database {name} with (force)")


@fixture
async def explained(children_at: str) -> AsyncIterator[Explained]:
    db = await asyncpg.connect(children_at)
    yield await Explained.start(db)
    await db.close()


LEAVES = {f"jobs_finished_{slot}_pkey" for slot in range(32)}
LIVE = {"jobs_live_pkey", "jobs_claim_idx", "jobs_children_idx"}
INDEXES = {"jobs_failed_pkey", *LIVE, *LEAVES}
CASES = {
    "fresh": Case("from pgwake.claim_batch('fresh', 50)", INDEXES, 6000),
    "freed": Case("from pgwake.claim_batch('freed', 50)", INDEXES, 4000),
    "upkeep": Case("pgwake.recheck_children()", INDEXES, 16_000),
    "end of a parent": Case(
        f"pgwake.complete_jobs(array[1], array['{LEASE}'::uuid])",
        LIVE,
        400,
    ),
    "results": Case(
        "from pgwake.get_parent_results(101)", {"jobs_live_pkey"} | INDEXES, 300
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_check_of_children_rides_its_indexes_within_its_bound(
    explained: Explained, case: str
) -> None:
    await check_case(explained, CASES[case])


async def test_a_child_that_has_many_parents_costs_each_of_them_the_same(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind) select 'k' from generate_series(1, 1000)"
    )
    await db.execute(
        "insert into pgwake.jobs (kind, depends_on)"
        " select 'k', array_agg(id) from pgwake.jobs"
    )
    arguments = {"queue": "default", "count": 1}
    jobs = await claim(db, 1000)  # which sees to them all
    first = 0
    for n, held in enumerate(jobs[:-1]):
        await call(db, "complete_jobs", **pairs(held))
        if n % 250 == 0:
            touched = await buffers(db, "claim_batch", **arguments)
            first = first or touched
            assert touched < first + 50
        assert await claim(db) == []


@pytest.mark.usefixtures("old_snapshot")
async def test_an_old_snapshot_makes_no_cliff_of_dead_rechecks_of_children(
    db: Connection,
) -> None:
    parent = await insert(db, queue="parents")
    await db.execute(
        "insert into pgwake.jobs (kind, depends_on)"
        " select 'k', array[$1::bigint] from generate_series(1, 10000)",
        parent,
    )
    (held,) = await claim(db, queue="parents")
    await call(db, "complete_jobs", **pairs(held))
    while await db.fetchval("select count(*) from pgwake.rechecks"):
        await claim(db, 100)  # the others are pending

    cursor = (await claim_batch(db))["cursor"]
    assert cursor is not None
    far = "select (clock_timestamp() + interval '59 seconds')::text"
    cursor["keys"][1] = await db.fetchval(far)
    arguments = {"queue": "default", "count": 1, "cursor": cursor}
    assert await buffers(db, "claim_batch", **arguments) < 300
    assert await call(db, "recheck_children") == 0
    look_at = "select current_setting('pgwake.children_at')::timestamptz"
    assert await db.fetchval(f"{look_at} > now()"), "not each second"


async def test_a_claim_sees_to_a_bounded_number_of_parents(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, run_at)"
        " select 'k', now() + interval '1 day' from generate_series(1, 2000)"
    )
    await db.execute(
        "insert into pgwake.jobs (kind, depends_on)"
        " select 'k', p.ids from generate_series(1, 30),"
        " (select array_agg(id) as ids from pgwake.jobs) as p"
    )
    rows = "select count(*) from pgwake.dependencies"
    one = {"queue": "default", "count": 1}
    assert await buffers(db, "claim_batch", **one) < 6000  # 600,000 of all parents
    for place in range(1, 4):
        assert await claim(db) == []
        assert await db.fetchval(rows) == 100 * place  # kept by the claim's commit
    assert await claim(db, 10_000) == []
    assert await db.fetchval(rows) == 1300
    await db.execute("update pgwake.rechecks set at = at - interval '2 seconds'")
    assert await call(db, "recheck_children") == 2000
    assert await buffers(db, "claim_batch", **one | {"queue": "other"}) < 60


async def test_a_queue_without_children_pays_nothing_for_them(db: Connection) -> None:
    await insert(db)
    arguments = {"queue": "default", "count": 1}
    without = await buffers(db, "claim_batch", **arguments)
    parent = await insert(db, queue="other")
    await insert(db, queue="other", depends_on=[parent])
    assert await buffers(db, "claim_batch", **arguments) <= without + 3
