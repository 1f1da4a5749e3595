"""python -m tests.lab.benchmarks.storage: what jobs leave behind in the storage.

Two connections drive batches of 100 through insert, claim_batch and complete_jobs,
while a third does the upkeep and autovacuum has its default settings. After each
million (or --every) the sizes of the hot leaf and the tallies are printed; they are
to stay bounded. Finished jobs are kept, so their leaf grows.
"""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeAlias

import asyncpg

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

BATCH = 100
UPKEEP = {"sweep": 1, "fold": 10, "retention": 60}
RESET = "drop schema if exists pgwake cascade"
INSERT = """
insert into pgwake.jobs (kind, payload)
select 'noop', jsonb_build_object('number', i) from generate_series(1, $1::int) as i
"""
INSERT_LARGE = """
insert into pgwake.jobs (kind, payload)
select 'noop', jsonb_build_object('number', i, 'text', (
  select string_agg(md5(i::text || random()::text), '')
  from generate_series(1, $2::int / 32)))
from generate_series(1, $1::int) as i
"""
CLAIM = """
select array(select j.id from unnest(b.jobs) as j),
  array(select j.lease_id from unnest(b.jobs) as j)
from pgwake.claim_batch('default', $1, 'storage') as b
"""
COMPLETE = "select cardinality(pgwake.complete_jobs($1, $2))"
# A heap with what lies in its TOAST table, and each index for itself.
SIZES = """
select c.relname, pg_relation_size(c.oid) + coalesce(pg_total_relation_size(nullif(
  case when c.relkind = 'r' then c.reltoastrelid else 0 end, 0)), 0)
  as bytes
from pg_class as c
left join pg_index as i on i.indexrelid = c.oid
where c.relnamespace = 'pgwake'::regnamespace and c.relkind in ('r', 'i')
  and coalesce(i.indrelid, c.oid)::regclass::text ~ '^pgwake\\.(jobs_live|tall[a-z_]*)$'
order by 1
"""
DEAD = """
select relname, n_dead_tup, autovacuum_count from pg_stat_user_tables
where relid = any (array['pgwake.jobs_live', 'pgwake.tallies']::regclass[])
"""
FINISHED = """
select sum(pg_total_relation_size(relid))::bigint
from pg_partition_tree('pgwake.jobs_finished')
"""
WAL = "select pg_current_wal_lsn() - '0/0'::pg_lsn"
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
            if count and self.payload_bytes:
                await connection.execute(INSERT_LARGE, count, self.payload_bytes)
            elif count:
                await connection.execute(INSERT, count)
            # The other may have taken some of these.
            ids, leases = await connection.fetchrow(CLAIM, BATCH) or ((), ())
            if ids:
                count = await connection.fetchval(COMPLETE, ids, leases)
                self.done += count  # not across an await: there are two of us


async def run(
    dsn: str,
    jobs: int = 5_000_000,
    every: int = 1_000_000,
    payload_bytes: int = 0,
    show: Callable[[dict[str, Any]], Awaitable[None]] | None = None,
) -> list[dict[str, Any]]:
    """Drive jobs through a database whose schema pgwake is made anew.

    Args:
        dsn: A scratch database.
        jobs: How many jobs.
        every: After how many jobs to look at the sizes.
        payload_bytes: About how many bytes of text, hard to compress, each payload has.
        show: Is given each row as soon as it is there.

    Returns:
        Rows fit for JSON: jobs and jobs_per_second so far; bytes of each relation by
        name; dead rows; WAL bytes and transaction ids a job since the last row, full
        page images included.
    """
    async with contextlib.AsyncExitStack() as stack:
        observer, upkeep, *drivers = [await _connect(stack, dsn) for _ in range(4)]
        await observer.execute(RESET)
        await install(dsn)
        await observer.execute("checkpoint")
        drive, rows = Drive(payload_bytes), list[dict[str, Any]]()
        background = asyncio.create_task(_upkeep(upkeep))
        stack.callback(background.cancel)
        started = monotonic()
        while drive.done < jobs:
            before = drive.done
            wal, xid = await observer.fetchval(WAL), await observer.fetchval(XID)
            target = min(before + every, jobs)
            await asyncio.gather(*(drive.run_to(target, one) for one in drivers))
            count = drive.done - before
            sizes = await observer.fetch(SIZES)
            row = {
                "jobs": drive.done,
                "jobs_per_second": round(drive.done / (monotonic() - started)),
                "wal_bytes_a_job": round(
                    float(await observer.fetchval(WAL) - wal) / count
                ),
                "xids_per_1000_jobs": round(
                    1000 * (await observer.fetchval(XID) - xid) / count, 1
                ),
                "finished": await observer.fetchval(FINISHED),
                "bytes": {row["relname"]: row["bytes"] for row in sizes},
                "dead": {
                    name: [dead, vacuums]
                    for name, dead, vacuums in await observer.fetch(DEAD)
                },
            }
            rows.append(row)
            if show is not None:
                await show(row)
    return rows


async def _connect(stack: contextlib.AsyncExitStack, dsn: str) -> Connection:
    connection = await asyncpg.connect(dsn)
    stack.callback(connection.terminate)
    return connection


async def _upkeep(connection: Connection) -> None:
    for second in range(sys.maxsize):
        for step, every in UPKEEP.items():
            if second % every == 0:
                await connection.execute("select pgwake.maintain($1)", step)
        await asyncio.sleep(1)


async def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)  # noqa: T201


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="a scratch database; else one is made")
    parser.add_argument("--jobs", type=int, default=5_000_000)
    parser.add_argument("--every", type=int, default=1_000_000)
    parser.add_argument("--payload-bytes", type=int, default=0)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.url or stack.enter_context(EmbeddedServer()).url
        asyncio.run(
            run(url, options.jobs, options.every, options.payload_bytes, _print)
        )


if __name__ == "__main__":
    _main()
