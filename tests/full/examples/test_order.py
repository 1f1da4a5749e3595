"""An order is paid; worker and database are killed on the way; it ends right."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psycopg
import pytest

from pay import pay
from pgwake.database.embedded import EmbeddedServer
from support import CHECKOUT, free_port, psql, wait_for
from support.worker.processes import WorkerProcess, clean_environment

HERE = CHECKOUT / "tests" / "examples" / "order"
STOCK = {"apple": 10, "pear": 5, "plum": 7}


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """The URL of the service that sends receipts, and the folder where they are."""
    receipts = tmp_path / "receipts"
    receipts.mkdir()
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "post:service", "--port", str(port)),
        cwd=HERE,
        env=clean_environment({"SHOP_RECEIPTS": str(receipts)}),
    )
    yield f"http://127.0.0.1:{port}/receipts", receipts
    process.terminate()
    await process.wait()


@asynccontextmanager
async def worker(
    database: str, url: str, binaries: Path
) -> AsyncIterator[WorkerProcess]:
    """A worker of the shop's, as the README starts it."""
    started = await WorkerProcess.start(
        *("-m", "pgwake", "run", "--import", "steps", "--queue", "shop"),
        *("--http", f"send_receipt={url}", "--exec", "report=sh report.sh"),
        *("--http-port", "0"),
        directory=HERE,
        environment={
            "PGWAKE_DATABASE_URL": database,
            "PGWAKE_LEASE": "2",
            "SHOP_URL": database,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        },
    )
    try:
        await started.started()
        yield started
    finally:
        await started.close()


def open_order(database: str, pieces: dict[str, int]) -> int:
    """Fill the stock, and have a customer order that much."""
    with psycopg.connect(database) as connection:
        for item, count in STOCK.items():
            connection.execute("insert into shop.stock values (%s, %s)", [item, count])
        row = connection.execute(
            "insert into shop.orders (customer) values ('eve@example.org') returning id"
        ).fetchone()
        assert row is not None
        for item, count in pieces.items():
            connection.execute(
                "insert into shop.lines values (%s, %s, %s)", [row[0], item, count]
            )
        return int(row[0])


def answer(database: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute(statement).fetchall()


async def ended(database: str, order: int) -> str:
    """Wait for an order to be done or to have failed."""

    async def is_ended() -> bool:
        status = answer(database, f"select status from shop.orders where id = {order}")
        return status[0][0] in ("done", "failed")

    await wait_for(is_ended)
    rows = answer(database, f"select status from shop.orders where id = {order}")
    return str(rows[0][0])


async def test_a_paid_order_ends_right_though_worker_and_database_are_killed(
    own_server: EmbeddedServer,
    own_database: str,
    binaries: Path,
    post: tuple[str, Path],
) -> None:
    url, receipts = post
    psql(own_server, own_database, "-f", str(HERE / "shop.sql"))
    order = open_order(own_database, {"apple": 3, "pear": 2, "plum": 1})

    with psycopg.connect(own_database) as connection:  # paid, but rolled back
        pay(connection, order)
        connection.rollback()
    assert answer(own_database, "select count(*) from pgwake.jobs") == [(0,)]

    async with worker(own_database, url, binaries) as first:
        with closing(psycopg.connect(own_database)) as holder:
            # Somebody counts the pears, so the step that takes them waits.
            holder.execute("select from shop.stock where item = 'pear' for update")
            with psycopg.connect(own_database) as connection:
                report = pay(connection, order)
            await wait_for_taken(own_database, 2)

            os.kill(first.children[0], signal.SIGKILL)
            first.send(signal.SIGKILL)
            await first.exit_code()
            await asyncio.to_thread(own_server.restart)

    async with worker(own_database, url, binaries):
        assert await ended(own_database, order) == "done"

    stock = answer(own_database, "select item, pieces from shop.stock order by item")
    assert stock == [("apple", 7), ("pear", 3), ("plum", 6)]
    assert [json.loads(path.read_text()) for path in receipts.glob("*.json")] == [
        {"order": order, "to": "eve@example.org"}
    ]
    states = answer(own_database, "select status, count(*) from pgwake.jobs group by 1")
    assert states == [("completed", 5)]
    ((result,),) = answer(
        own_database, f"select result from pgwake.jobs where id = {report}"
    )
    assert isinstance(result, dict)
    assert sorted(
        (part["kind"], part["result"].get("item"), part["result"].get("left"))
        for part in result.values()
        if part["kind"] == "take_from_stock"
    ) == [("take_from_stock", item, left) for item, left in stock]


async def wait_for_taken(database: str, count: int) -> None:
    """Wait until so many lines have been taken from the stock."""

    async def are_taken() -> bool:
        rows = answer(
            database,
            "select count(*) from pgwake.jobs"
            " where kind = 'take_from_stock' and status = 'completed'",
        )
        return rows == [(count,)]

    await wait_for(are_taken)


async def test_an_order_that_can_not_be_filled_has_failed_and_is_not_reported(
    own_server: EmbeddedServer,
    own_database: str,
    binaries: Path,
    post: tuple[str, Path],
) -> None:
    url, _ = post
    psql(own_server, own_database, "-f", str(HERE / "shop.sql"))
    order = open_order(own_database, {"apple": 3, "pear": 6})
    with psycopg.connect(own_database) as connection:
        report = pay(connection, order)

    async with worker(own_database, url, binaries):
        assert await ended(own_database, order) == "failed"

        async def is_cancelled() -> bool:
            return answer(
                own_database, f"select status from pgwake.jobs where id = {report}"
            ) == [("cancelled",)]

        await wait_for(is_cancelled)
    rows = answer(own_database, "select pieces from shop.stock where item = 'pear'")
    assert rows == [(5,)]
