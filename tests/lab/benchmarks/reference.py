"""A hand-written loop: how a team without a queue would run jobs from a plain table.

Two connections claim a hundred jobs each, and write their ends with the next claim: one
commit a hundred jobs. LISTEN wakes them; there are no leases, retries, limits or
metrics. With --delete it deletes done jobs.
"""

import asyncio
import json
import os
import signal
import sys

import asyncpg

from pgwake.cli.bench.worker import LATENCY, latency
from pgwake.supervise.main import run_loop

SCHEMA = """
create table plain_jobs (
  id bigint generated always as identity primary key,
  queue text not null default 'default',
  kind text not null,
  payload jsonb not null,
  state text not null default 'queued',
  priority int not null default 0,
  attempts int not null default 0,
  run_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  started_at timestamptz,
  finished_at timestamptz
);
create index plain_jobs_claim_idx on plain_jobs (queue, priority, id)
  where state = 'queued';
create function wake() returns trigger language plpgsql as $$
begin
  perform pg_notify('plain_jobs', '');
  return null;
end
$$;
create trigger wake after insert on plain_jobs
  for each statement execute function wake();
"""
CLAIM = """
update plain_jobs set state = 'running', attempts = attempts + 1, started_at = now()
where id = any (array(
  select id from plain_jobs
  where state = 'queued' and queue = 'default' and run_at <= now()
  order by priority, id limit 100 for update skip locked))
returning id, kind, payload
"""
KEEP = """
update plain_jobs set state = 'done', finished_at = now()
where id = any ($1::bigint[])
"""
DELETE = "delete from plain_jobs where id = any ($1::bigint[])"
POLL_SECONDS = 5


async def _run(url: str, end: str) -> None:
    listener = await asyncpg.connect(url)
    wakes = [asyncio.Event() for _ in range(2)]

    def wake(*_: object) -> None:
        for one in wakes:
            if not one.is_set():
                one.set()
                return

    await listener.add_listener("plain_jobs", wake)
    print('"worker started"', file=sys.stderr, flush=True)  # noqa: T201
    await listener.execute("select pg_advisory_lock_shared(1)")  # see Contender.hold
    await asyncio.gather(*(_loop(url, end, wake) for wake in wakes))


async def _loop(url: str, end: str, wake: asyncio.Event) -> None:
    connection = await asyncpg.connect(url)
    ended: list[int] = []
    while True:
        wake.clear()
        if ended:
            async with connection.transaction():
                await connection.execute(end, ended)
                rows = await connection.fetch(CLAIM)
        else:
            rows = await connection.fetch(CLAIM)
        await asyncio.gather(*(_handle(row) for row in rows))
        ended = [row["id"] for row in rows]
        if not rows:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await wake.wait()
            except TimeoutError:
                pass


async def _handle(row: asyncpg.Record) -> None:
    payload = json.loads(row["payload"])
    if row["kind"] == LATENCY:
        await latency(**payload)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    run_loop(_run(os.environ["PGWAKE_DATABASE_URL"], DELETE if sys.argv[1:] else KEEP))
