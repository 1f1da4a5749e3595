"""An account that the tests' handlers pay into, in their jobs' transactions."""

from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from pgwake import Registry, Worker
from support import Connection
from support.sql.helpers import insert
from support.worker.helpers import Row, Samples, embedded, ended

ADD = "update account set balance = balance + 1"


async def create_account(connection: Connection) -> None:
    """Create the account, empty."""
    await connection.execute("create table account (balance int)")
    await connection.execute("insert into account values (0)")


async def balance(connection: Connection) -> int:
    """What has been paid."""
    found: int = await connection.fetchval("select balance from account")
    return found


def total(worker: Worker, name: str) -> float:
    """The sum of a metric, over its labels."""
    return Samples(worker.metrics.render()).total(f"pgwake_{name}")


async def run(
    connection: Connection, url: str, handler: Callable[..., Any], **options: Any
) -> tuple[Row, list[Any]]:
    """Run one job of a handler to its end; its row, and the log."""
    registry = Registry()
    registry.job("pay", max_attempts=1, **options)(handler)
    job_id = await insert(connection, "pay")
    with capture_logs() as lines:
        async with embedded(url, registry):
            row = await ended(connection, job_id)
    return row, lines
