"""The policy that decorators declare, and that operators set before it."""

from datetime import timedelta
from typing import Any

import pytest

from pgwake import ConfigurationError, Registry, Settings
from support import Connection, wait_for
from support.sql.helpers import insert, job, set_queue
from support.worker.helpers import asleep, embedded, ended, reasons
from support.worker.registries import quick, waiting

QUICK = {"backoff_base": 0.001, "backoff_jitter": 0}
SET = "update pgwake.kinds set {} where name = 'fail'"


def failing(**policy: Any) -> Registry:
    registry = Registry()

    @registry.job("fail", **policy)
    async def fail() -> None:
        raise ValueError

    return registry


async def test_the_decorators_attempts_and_backoff_hold_before_the_queues(
    connection: Connection, database: str
) -> None:
    hour = timedelta(hours=1)
    await set_queue(connection, max_attempts=9, backoff_base=hour, backoff_cap=hour)
    job_id = await insert(connection, "fail")

    async with embedded(database, failing(max_attempts=2, **QUICK)):
        row = await ended(connection, job_id)

    assert (row["status"], row["attempt"]) == ("failed", 2)


async def test_what_an_operator_sets_holds_at_once_and_before_the_decorators(
    connection: Connection, database: str
) -> None:
    async with embedded(database, failing(max_attempts=5, **QUICK)):
        before = await ended(connection, await insert(connection, "fail"))
        await connection.execute(SET.format("max_attempts = 1"))
        after = await ended(connection, await insert(connection, "fail"))

    assert (before["attempt"], after["attempt"]) == (5, 1)


@pytest.mark.parametrize(
    ("declared", "operator", "queue"),
    [(0.05, None, 3600), (3600, 0.05, 3600), (None, None, 0.05)],
)
async def test_a_time_limit_is_the_operators_then_the_decorators_then_the_queues(
    connection: Connection,
    database: str,
    declared: float | None,
    operator: float | None,
    queue: float,
) -> None:
    await set_queue(connection, timeout=timedelta(seconds=queue))
    registry, _ = waiting("fail", max_attempts=1, timeout=declared)
    async with embedded(database, registry):
        if operator is not None:
            limit = f"timeout = interval '{operator} s'"
            await connection.execute(SET.format(limit))
        row = await ended(connection, await insert(connection, "fail"))

    assert (row["status"], reasons(row)) == ("failed", ["timeout"])
    assert row["errors"][0]["message"] == "timed out after 0.05 s"


async def test_the_decorators_lease_and_priority_hold(
    connection: Connection, database: str
) -> None:
    registry, _ = waiting("fail", lease=7, priority=3)
    async with embedded(database, registry, grace=0):
        job_id = await insert(connection, "fail")

        async def runs() -> bool:
            return bool((await job(connection, job_id))["status"] == "running")

        await wait_for(runs)
        row = await job(connection, job_id)

    assert row["priority"] == 3
    assert row["lease_expires_at"] - row["started_at"] == timedelta(seconds=7)


async def test_the_newest_version_of_two_workers_declares(
    connection: Connection, database: str
) -> None:
    new = embedded(database, failing(max_attempts=1, **QUICK), app_version="1.10")
    old = embedded(database, failing(max_attempts=3, **QUICK), app_version="1.9")
    async with new, old:
        row = await ended(connection, await insert(connection, "fail"))

    assert row["attempt"] == 1


@pytest.mark.parametrize("version", ["v1", "1.", "1..2", "1.2-beta", " 1"])
def test_a_version_that_is_not_numbers_with_dots_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match="PGWAKE_APP_VERSION"):
        Settings.load(app_version=version)


async def test_a_worker_that_can_not_declare_or_report_itself_works_all_the_same(
    connection: Connection, database: str
) -> None:
    for name in ("declare_kinds", "report_worker", "forget_worker"):
        await connection.execute(f"drop function pgwake.{name}")
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        row = await ended(connection, await insert(connection, "quick"))

    assert row["status"] == "completed"
