"""What jobs leave behind in the storage: sizes after each million that went through.

Two connections drive batches of 100 through insert, claim_rows and complete_jobs,
while a third does the upkeep and autovacuum has its default settings. The hot leaf and
the counts are to stay bounded. Finished jobs are kept, so their leaf grows.
"""

import asyncio
import sys
from contextlib import AsyncExitStack
from time import monotonic

import asyncpg

from pgwake.database.connection import Connection
from pgwake.database.statements.bench import wal_bytes

from .contenders import PGWAKE
from .measure import Bench, Run, show

QUICK = {"jobs": 20_000, "every": 10_000}
BATCH = 100
UPKEEP = {"sweep": 1, "fold": 10, "retention": 60}
INSERT = """
insert into pgwake.jobs (kind, payload)
select 'noop', jsonb_build_object('number', i, 'text', (
  select string_agg(md5(n::text || random()::text), '')
  from generate_series(1, $2::int / 32) as n))
from generate_series(1, $1::int) as i
"""
CLAIM = """
select array_agg(c.id), array_agg(c.lease_id)
from pgwake.claim_rows('default', $1, 'storage') as c
where c.id is not null
"""
COMPLETE = "select cardinality(pgwake.complete_jobs($1, $2))"
# A heap with what lies in its TOAST table, and each index for itself.
SIZES = """
select c.relname, (pg_relation_size(c.oid) + coalesce(pg_total_relation_size(nullif(
  case when c.relkind = 'r' then c.reltoastrelid else 0 end, 0)), 0)) / 1e6
from pg_class as c
left join pg_index as i on i.indexrelid = c.oid
where c.relnamespace = 'pgwake'::regnamespace and c.relkind in ('r', 'i')
  and coalesce(i.indrelid, c.oid)::regclass::text ~ '^pgwake\\.(jobs_live|tall[a-z_]*)$'
union all
select 'jobs_finished', sum(pg_total_relation_size(relid)) / 1e6
from pg_partition_tree('pgwake.jobs_finished')
order by 1
"""
XID = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


class Drive:
    """The jobs that are to go through, and how many have."""

    def __init__(self, payload_bytes: int) -> None:
        self.inserted = 0
        self.done = 0
        self.payload_bytes = payload_bytes

    async def run_to(self, jobs: int, connection: Connection) -> None:
        while self.done < jobs:
            count = min(BATCH, jobs - self.inserted)
            self.inserted += count
            if count:
                await connection.execute(INSERT, count, self.payload_bytes)
            # The other may have taken some of these.
            ids, leases = await connection.fetchrow(CLAIM, BATCH) or ((), ())
            if ids:
                count = await connection.fetchval(COMPLETE, ids, leases)
                self.done += count  # not across an await: there are two of us


async def run(
    bench: Bench,
    *,
    jobs: int = 5_000_000,
    every: int = 1_000_000,
    payload_bytes: int = 0,
) -> list[Run]:
    """Drive so many jobs through a queue; each has about so many bytes of text."""
    async with AsyncExitStack() as stack:
        url, observer = await stack.enter_async_context(PGWAKE.database(bench))
        upkeep, *drivers = [await asyncpg.connect(url) for _ in range(3)]
        background = asyncio.create_task(_upkeep(upkeep))
        stack.callback(background.cancel)
        drive, runs = Drive(payload_bytes), list[Run]()
        started = monotonic()
        while drive.done < jobs:
            before = drive.done
            wal, xid = await wal_bytes(observer), await observer.fetchval(XID)
            target = min(before + every, jobs)
            await asyncio.gather(*(drive.run_to(target, one) for one in drivers))
            count = drive.done - before
            figures = {
                "jobs_per_second": drive.done / (monotonic() - started),
                "wal_bytes_a_job": (await wal_bytes(observer) - wal) / count,
                "xids_a_job": (await observer.fetchval(XID) - xid) / count,
                **{f"{n}_mb": float(mb) for n, mb in await observer.fetch(SIZES)},
            }
            runs.append(show(Run(f"{drive.done:,} jobs", figures)))
    return runs


async def _upkeep(connection: Connection) -> None:
    for second in range(sys.maxsize):
        for step, every in UPKEEP.items():
            if second % every == 0:
                await connection.execute("select pgwake.maintain($1)", step)
        await asyncio.sleep(1)
