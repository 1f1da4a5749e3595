"""From its metrics alone it shows which loop of a worker is broken.

The thresholds of the alert rules are minutes; here they are seconds.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import time

import pytest

from pgwake import Worker
from support import Connect, Connection, wait_for
from support.relay import Relay
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended
from support.worker.metrics import Samples
from support.worker.registries import quick

SECONDS = 4

Signal = Callable[[Samples], bool]


def stands(step: str) -> Signal:
    """A step of the upkeep has not been done for long."""

    def fires(page: Samples) -> bool:
        name = "pgwake_upkeep_succeeded_timestamp_seconds"
        return time() - page.total(name, step=step) > SECONDS

    return fires


def claims_stand(page: Samples) -> bool:
    """Jobs are due and slots are free, but no claim is answered."""
    succeeded = page.total("pgwake_claim_succeeded_timestamp_seconds", queue="default")
    return (
        page.total("pgwake_queue_oldest_pending_age_seconds", queue="default") > SECONDS
        and page.total("pgwake_slots_busy") < page.total("pgwake_slots")
        and time() - succeeded > SECONDS
    )


def schedules_are_late(page: Samples) -> bool:
    """A schedule should have fired long ago."""
    return page.total("pgwake_schedule_lag_seconds") > SECONDS


def listener_is_down(page: Samples) -> bool:
    """Nothing wakes the worker."""
    return page.total("pgwake_listener_up") == 0


@asynccontextmanager
async def renamed(connection: Connection, function: str) -> AsyncIterator[None]:
    """Without a function of pgwake's."""
    rename = "alter function pgwake.{} rename to {}"
    await connection.execute(rename.format(function, "broken"))
    yield
    await connection.execute(rename.format("broken", function))


async def until(worker: Worker, *signals: Signal, fire: bool) -> None:
    async def are_so() -> bool:
        page = Samples(worker.metrics.render())
        return all(signal(page) is fire for signal in signals)

    await wait_for(are_so)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.3)


async def test_claims_that_are_refused_show(
    connection: Connection, connect: Connect, database: str
) -> None:
    owner = await connect()
    async with embedded(database, quick(), poll_interval=1) as worker:
        await ended(connection, await insert(connection, "quick"))
        async with renamed(owner, "claim_rows"):
            job_id = await insert(connection, "quick")
            await until(worker, claims_stand, fire=True)
        await ended(connection, job_id)
        await until(worker, claims_stand, fire=False)


async def test_schedules_that_nobody_fires_show(
    connection: Connection, connect: Connect, database: str
) -> None:
    owner = await connect()
    signals = schedules_are_late, stands("schedules")
    await connection.execute(
        "select pgwake.schedule('often', every => '1 second', kind => 'quick')"
    )
    async with embedded(database, quick()) as worker:
        await until(worker, *signals, fire=False)
        async with renamed(owner, "due_schedules"):
            await until(worker, *signals, fire=True)
        await until(worker, *signals, fire=False)


async def test_a_listener_that_is_cut_off_shows(
    connection: Connection, database: str
) -> None:
    async with (
        Relay.before(database) as relay,
        embedded(
            database, quick(), listen_url=relay.url, poll_interval=1, query_timeout=2
        ) as worker,
    ):
        await until(worker, listener_is_down, fire=False)
        relay.freeze()
        await until(worker, listener_is_down, fire=True)
        await ended(connection, await insert(connection, "quick"))  # by the poll
        await relay.heal()
        await until(worker, listener_is_down, fire=False)


async def test_a_sweep_that_never_ends_shows_with_every_worker(
    connect: Connect, database: str
) -> None:
    stuck = await connect()
    signal = stands("sweep")
    async with embedded(database, quick(), lease=1) as worker:
        await until(worker, signal, fire=False)
        await stuck.execute("begin; select pg_advisory_xact_lock(1885828971, 1)")
        # Others answer: it is not the database, nor the upkeep as a whole.
        await until(worker, signal, fire=True)
        await until(worker, stands("children"), fire=False)
        await stuck.execute("rollback")
        await until(worker, signal, fire=False)


async def test_samples_that_are_refused_show(connect: Connect, database: str) -> None:
    owner = await connect()
    async with embedded(database, quick()) as worker:
        await until(worker, stands("sample"), fire=False)
        async with renamed(owner, "get_metrics"):
            await until(worker, stands("sample"), fire=True)
        await until(worker, stands("sample"), fire=False)
