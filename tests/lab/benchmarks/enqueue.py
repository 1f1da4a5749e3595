"""How fast jobs are put in, with nobody asleep: rows a second."""

import functools
import json

import asyncpg

from pgwake.cli.bench.measure import Figures, insert_all
from pgwake.database.install import install

from .measure import Bench, Run

QUICK = {"jobs": 2_000, "repeats": 1}
CONNECTIONS = 10
MANY = 1_000  # rows a statement
PAYLOAD = json.dumps({"number": 1})
ONE = "insert into pgwake.jobs (kind, payload) values ('noop', $1)"
ROWS = "insert into pgwake.jobs (kind, payload) select 'noop', unnest($1::jsonb[])"


async def run(bench: Bench, *, jobs: int = 20_000, repeats: int = 5) -> list[Run]:
    """Insert in each way."""

    async def one_by_one(pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        await pool.execute(ONE, PAYLOAD)

    async def many_rows(pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        await pool.execute(ROWS, [PAYLOAD] * MANY)

    async def copy(pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        await pool.copy_records_to_table(
            "jobs",
            schema_name="pgwake",
            columns=["kind", "payload"],
            records=[("noop", PAYLOAD)] * MANY,
        )

    async def enqueue(insert: object, rows: int, connections: int) -> Figures:
        assert callable(insert)
        async with (
            bench.database() as (url, connection),
            asyncpg.create_pool(
                url, min_size=connections, max_size=connections
            ) as pool,
        ):
            await install(url)
            seconds = await insert_all(
                [functools.partial(insert, pool)] * connections, jobs // rows
            )
            stored = await connection.fetchval("select count(*) from pgwake.jobs")
        return {"jobs_per_second": stored / seconds}

    return await bench.rounds(
        {
            f"one by one, {CONNECTIONS} connections": functools.partial(
                enqueue, one_by_one, 1, CONNECTIONS
            ),
            f"{MANY:,} a statement": functools.partial(enqueue, many_rows, MANY, 1),
            f"COPY, {MANY:,} rows each": functools.partial(enqueue, copy, MANY, 1),
        },
        repeats,
    )
