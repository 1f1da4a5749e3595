"""An account that the tests' handlers pay into, in their jobs' transactions."""

from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from pgwake import Worker
from support import Connection
from support.worker import helpers
from support.worker.helpers import Row
from support.worker.metrics import Samples

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
    connection: Connection, url: str, handler: Callable[..., Any]
) -> tuple[Row, list[Any]]:
    """Run one job of a handler to its end; its row, and the log."""
    with capture_logs() as lines:
        row = await helpers.run(connection, url, handler, max_attempts=1)
    return row, lines
