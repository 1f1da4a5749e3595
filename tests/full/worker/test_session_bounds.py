"""How many sessions a worker has: never more than deploy/CONNECTIONS.md says."""

import asyncio
from collections import Counter

from pgwake import Job, Registry
from support import Connect, Connection, free_port, wait_for
from support.worker.api import TOKEN, client
from support.worker.helpers import all_ended, embedded

QUEUES = [f"q{n}" for n in range(5)]
INSERT = """
insert into pgwake.jobs (queue, kind)
select q, 'work' from unnest($1::text[]) as q, generate_series(1, 30)
"""
SESSIONS = """
select coalesce(nullif(substring(application_name from '/\\w+$'), ''),
  substring(application_name from '^\\w+:producer'), 'own') as what, count(*)::int
from pg_stat_activity
where datname = current_database() and application_name like 'pgwake:%'
group by 1
"""
# As in the table of deploy/CONNECTIONS.md, "How many sessions".
BOUNDS = {"own": 5, "/tx": 4 + 1, "/http": 4 + 1, "pgwake:producer": 5}


async def test_a_busy_worker_never_has_more_sessions_than_documented(
    connection: Connection, connect: Connect, database: str
) -> None:
    registry = Registry()
    watcher = await connect()
    most: Counter[str] = Counter()
    at_once = 0
    open_blocks = 0

    @registry.job("quick", queue="q0")
    async def quick() -> None: ...

    @registry.job("work")
    async def work(job: Job) -> None:
        nonlocal at_once, open_blocks
        await quick.enqueue()
        async with job.transaction() as transaction:
            open_blocks += 1
            at_once = max(at_once, open_blocks)
            await transaction.execute("select pg_sleep(0.02)")
            open_blocks -= 1

    async def watch() -> None:
        while True:
            for what, count in await watcher.fetch(SESSIONS):
                most[what] = max(most[what], count)

    port = free_port()
    queues = ",".join(f"{name}:20" for name in QUEUES)
    settings = {"http_port": port, "api_token": TOKEN, "transaction_sessions": 4}
    async with (
        embedded(database, registry, queues=queues, **settings),
        client(port) as api,
        api.stream("GET", "/api/events") as events,
    ):
        assert events.status_code == 200
        watching = asyncio.create_task(watch())
        await connection.execute(INSERT, QUEUES)
        while await connection.fetchval("select exists (select from pgwake.jobs_live)"):
            asked = (api.get("/api/queue/stats") for _ in range(8))
            assert {a.status_code for a in await asyncio.gather(*asked)} == {200}
        watching.cancel()
        await all_ended(connection)

        async def only_those_at_rest() -> bool:
            rows = await watcher.fetch(SESSIONS)
            return ("own", BOUNDS["own"]) in [tuple(row) for row in rows]

        await wait_for(only_those_at_rest)
    assert at_once == 4
    assert most == {key: min(most[key], bound) for key, bound in BOUNDS.items()}
