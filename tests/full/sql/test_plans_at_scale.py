"""Every hot statement rides its index and touches as much at many rows as at few.

Whatever is scheduled, dead, or known to the planner. Bounds are in buffers, since they
are the same on any machine.
"""

import itertools
from collections.abc import AsyncIterator, Iterator

import asyncpg
import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from support import database_url
from support.sql.fixtures import fixture
from support.sql.plans import Case, Explained, check_case

# 20 queues of 5 priorities; "later" has a few due ones behind what is scheduled at the
# same and at a higher priority, "future" none; "few" has ten jobs.
FILL = """
insert into pgwake.jobs_live (queue, kind, priority, run_at)
select 'q' || n % 20, 'a', n / 20 % 5, now() - random() * interval '1 hour'
from generate_series(1, {due}) as n
union all
select queue, 'a', n % 2 * 5, now() + interval '1 day'
from generate_series(1, {later}) as n,
  (values ('later', {later}), ('future', 100)) as q(queue, count)
where n <= q.count
union all
select 'later', 'a', 0, now() from generate_series(1, 300)
union all
select 'few', 'a', 0, now() from generate_series(1, 10)
"""
HOLD = """
with held as (
  select j.id, j.lease_id from pgwake.claim_jobs('{queue}', {count}, '{worker}') as j
)
select count(*) from held
"""
WEAR = """
select cardinality(pgwake.complete_jobs(array_agg(j.id), array_agg(j.lease_id)))
from pgwake.claim_jobs('{queue}', 10000, 'w0') as j
"""


LIVE, CLAIM, LEASE = "jobs_live_pkey", "jobs_claim_idx", "jobs_lease_idx"
CLAIMING, ENDING = {CLAIM, LIVE}, {LIVE}
CURSOR = "cursor => nullif(current_setting('pgwake.cursor', true), '')::jsonb"
HELD = "array(select id from held), array(select lease_id from held)"
QUEUES = ["q7", "few", "later", "future", "unknown"]
CASES = {
    **{
        f"claim {count} of {queue}": Case(
            f"from pgwake.claim_batch('{queue}', {count}, {CURSOR} -> '{queue}')",
            CLAIMING,
            200 + 25 * count,
        )
        for queue, count in itertools.product(QUEUES, (1, 20))
    },
    **{
        f"claim a suspect of {queue}": Case(
            f"from pgwake.claim_batch('{queue}', 9, suspects => true)", CLAIMING, 200
        )
        for queue in QUEUES
    },
    "claim_jobs": Case("from pgwake.claim_jobs('q7', 20)", CLAIMING, 700),
    **{
        f"claim_next_job of {queue}": Case(
            f"from pgwake.claim_next_job('{queue}')", CLAIMING, 250
        )
        for queue in QUEUES
    },
    **{
        f"next_run_at of {queue}": Case(f"pgwake.next_run_at('{queue}')", {CLAIM}, 100)
        for queue in QUEUES
    },
    "next_run_ats": Case(
        f"from pgwake.next_run_ats(string_to_array('{' '.join(QUEUES)}', ' '))",
        {CLAIM},
        100,
    ),
    "next_suspect_run_at": Case(
        f"pgwake.next_suspect_run_at(string_to_array('{' '.join(QUEUES)}', ' '))",
        {CLAIM, LEASE},
        100,
    ),
    "complete_jobs": Case(f"pgwake.complete_jobs({HELD})", ENDING, 800),
    "fail_jobs": Case(f"pgwake.fail_jobs({HELD})", ENDING, 1200),
    "fail_jobs for good": Case(
        f"pgwake.fail_jobs({HELD}, retryables => array_fill(false, array[20]))",
        ENDING,
        1800,
    ),
    "release_jobs": Case(f"pgwake.release_jobs({HELD})", ENDING, 1200),
    "extend_leases": Case(f"pgwake.extend_leases({HELD})", ENDING, 1200),
    "sweep of none": Case("from pgwake.sweep_expired_leases()", {LEASE}, 100),
    "sweep of 20": Case(
        "set_config('pgwake.clock_offset', '1 hour', true),"
        " set_config('pgwake.sweep_at', '', true),"
        " (select count(*) from pgwake.sweep_expired_leases(20))",
        {LEASE, LIVE},
        24_000,  # an entry of the index, and its row, for each that is dead
    ),
    "release_worker_jobs": Case(
        "from pgwake.release_worker_jobs('w10')", {LEASE, LIVE}, 40_000
    ),
}


@pytest.fixture(scope="module", params=["few", "many", "dead"])
def queue_at(
    request: pytest.FixtureRequest,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    template: str,
    many: int,
) -> Iterator[str]:
    """The superuser's URL of a database with that in it, and 1,000 running jobs."""
    size = request.param
    name = f"pgwake_scale_{size}"
    admin.execute(f"create database {name} template {template}")
    url = database_url(server, name, role="postgres")
    count = {"due": 100, "later": 100}
    if size == "many":
        count = {"due": many, "later": many}
    with psycopg.connect(url, autocommit=True) as db, psycopg.connect(url) as holder:
        db.execute("alter table pgwake.jobs_live set (autovacuum_enabled=off)")
        db.execute("set session_replication_role = replica")  # no trigger
        if size == "dead":
            holder.execute("set transaction isolation level repeatable read")
            holder.execute("select pg_current_xact_id()")
            for queue in ("q7", "few", "later", "future"):
                db.execute(
                    "insert into pgwake.jobs_live (queue, kind, priority, run_at)"
                    " select %s, 'a', 4, now() - (1 + random()) * interval '1 hour'"
                    " from generate_series(1, 20000) as n",
                    [queue],
                )
                for _ in range(2):
                    db.execute(WEAR.format(queue=queue))
        _fill(db, count)
        db.execute(
            "insert into pgwake.jobs_live (queue, kind) select 'held', 'a'"
            " from generate_series(1, 1020)"
        )
        for n in range(11):
            db.execute(HOLD.format(queue="held", count=100, worker=f"w{n}"))
        db.execute("analyze pgwake.jobs_live")
        db.execute("begin")
        db.execute(LEARN)
        (cursors,) = db.execute(
            "select current_setting('pgwake.cursor', true)"
        ).fetchone() or ("",)
        db.execute("rollback")
        db.execute(f"alter database {name} set pgwake.cursor = '{cursors or ''}'")
        yield url
    admin.execute(f"drop database {name} with (force)")


def _fill(db: psycopg.Connection, count: dict[str, int]) -> None:
    """Insert as fast as can be: the index is made afterwards."""
    make_index = db.execute(
        f"select pg_get_indexdef('pgwake.{CLAIM}'::regclass)"
    ).fetchone()
    assert make_index
    if count["due"] > 1000:
        db.execute(f"drop index pgwake.{CLAIM}")
    db.execute(FILL.format(**count))
    if count["due"] > 1000:
        db.execute(make_index[0])


@fixture
async def explained(queue_at: str) -> AsyncIterator[Explained]:
    db = await asyncpg.connect(queue_at)
    yield await Explained.start(db)
    await db.close()


# Claims as a session does that has been at it for some time: it knows its cursors.
LEARN = """
do $$
begin
  for n in 1..3 loop
    perform from unnest(array['q7', 'few', 'later', 'future', 'unknown']) as q(name),
      pgwake.claim_jobs(q.name, 1);
  end loop;
end
$$
"""
# The next look from the head, and sweep of what is dead, are as far away as can be.
PREPARE = """
select set_config('pgwake.cursor', jsonb_object_agg(c.queue, c.cursor ||
  jsonb_build_object('head_at', clock_timestamp() + interval '59 s'))::text, false)
from jsonb_each(nullif(current_setting('pgwake.cursor', true), '')::jsonb)
  as c(queue, cursor)
having count(*) > 0;
select pgwake.sweep_expired_leases();
select set_config('pgwake.sweep_at', (clock_timestamp() + interval '59 s')::text, false)
where current_setting('pgwake.sweep_at', true) <> '';
create temp table held as
select id, lease_id from pgwake.jobs_live
where status = 'running' and claimed_by = 'w1' limit 20;
"""


@pytest.mark.parametrize("case", CASES)
async def test_a_hot_statement_rides_its_index_within_its_bound(
    explained: Explained, case: str
) -> None:
    await explained.connection.execute(PREPARE)
    await check_case(explained, CASES[case])
