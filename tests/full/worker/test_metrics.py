"""What /metrics shows after a run."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

from pgwake import Registry
from pgwake.database.statements.upkeep import CrashCount
from pgwake.observe.metrics import Metrics
from support import Connection, free_port, wait_for
from support.sql.helpers import insert, set_queue
from support.worker.helpers import embedded, ended, in_status, insert_some
from support.worker.metrics import Samples, fetch, shown
from support.worker.processes import StartProcess
from support.worker.registries import waiting


async def test_a_run_is_counted_by_queue_and_kind(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("good", queue="mail")
    async def good() -> None: ...

    @registry.job("bad", queue="mail", max_attempts=2)
    async def bad() -> None:
        raise ValueError

    await set_queue(connection, "mail", backoff_base=timedelta(0))
    ids = [await insert(connection, "good", queue="mail") for _ in range(3)]
    ids.append(await insert(connection, "bad", queue="mail"))
    async with embedded(database, registry) as worker:
        for job_id in ids:
            await ended(connection, job_id)
        good_ones = {"queue": "mail", "kind": "good"}
        bad_ones = {"queue": "mail", "kind": "bad"}
        samples = await shown(
            worker, lambda s: s.total("pgwake_jobs_failed", **bad_ones) == 1
        )

    assert samples.total("pgwake_jobs_claimed", **good_ones) == 3
    assert samples.total("pgwake_jobs_completed", **good_ones) == 3
    assert samples.total("pgwake_jobs_claimed", **bad_ones) == 2
    assert samples.total("pgwake_jobs_retried", **bad_ones) == 1
    assert samples.total("pgwake_job_queue_seconds", **good_ones) == 3
    assert samples.total("pgwake_job_execution_seconds", **bad_ones) == 2
    assert samples.total("pgwake_claim_seconds") >= 2
    assert samples.total("pgwake_flush_seconds") >= 2


async def test_counters_start_at_nothing_whatever_the_table_holds(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("good")
    async def good() -> None: ...

    async with embedded(database, registry):
        await ended(connection, await insert(connection, "good"))
    async with embedded(database, registry) as worker:
        assert Samples(worker.metrics.render()).total("pgwake_jobs_completed") == 0


async def test_slots_show_how_many_there_are_and_how_many_are_busy(
    connection: Connection, database: str
) -> None:
    registry, go = waiting()
    ids = [await insert(connection, "wait") for _ in range(2)]
    async with embedded(database, registry, queues="default:7") as worker:
        for job_id in ids:
            await in_status(connection, job_id, "running")
        labels = {"queue": "default"}
        samples = await shown(
            worker, lambda s: s.total("pgwake_slots_busy", **labels) == 2
        )
        assert samples.total("pgwake_slots", **labels) == 7
        go.set()
        for job_id in ids:
            await ended(connection, job_id)
        await shown(worker, lambda s: s.total("pgwake_slots_busy") == 0)


async def test_the_queues_gauges_fall_back_to_nothing(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.1)
    registry, go = waiting()
    await insert_some(connection, "wait", 20)
    async with embedded(database, registry, queues="default:2") as worker:
        samples = await shown(
            worker, lambda s: s.total("pgwake_queue_pending_jobs") == 18
        )
        assert samples.total("pgwake_queue_running_jobs", queue="default") == 2
        assert samples.total("pgwake_queue_oldest_pending_age_seconds") > 0
        go.set()
        for gauge in ("pending_jobs", "running_jobs", "oldest_pending_age_seconds"):
            name = f"pgwake_queue_{gauge}"
            await shown(worker, lambda s, name=name: s.total(name) == 0)  # type: ignore[misc]


async def test_a_blocked_loop_shows_in_its_lag(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("block")
    async def block() -> None:
        time.sleep(1.2)  # noqa: ASYNC251, that is the point

    async with embedded(database, registry) as worker:
        job_id = await insert(connection, "block")
        await shown(worker, lambda s: s.total("pgwake_loop_lag_seconds") > 0.5)
        await ended(connection, job_id)
        await shown(worker, lambda s: s.total("pgwake_loop_lag_seconds") < 0.5)


async def test_jobs_given_back_are_counted_by_reason(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    begun = asyncio.Event()

    @registry.job("wait")
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    await insert(connection, "wait")
    async with embedded(database, registry, grace=0) as worker:
        await begun.wait()
    released = {"queue": "default", "kind": "wait", "reason": "shutdown"}

    assert (
        Samples(worker.metrics.render()).total("pgwake_jobs_released", **released) == 1
    )


async def test_a_worker_process_serves_its_metrics(
    connection: Connection,
    start_worker: StartProcess,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    port, shared = free_port(), tmp_path / "of-the-application"
    shared.mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(shared))
    await start_worker(http_port=port, processes=2)
    await ended(connection, await insert(connection, "noop"))
    pages: list[Samples] = []

    async def both_show_it() -> bool:
        pages[:] = [Samples((await fetch(port + n, "/metrics")).text) for n in range(2)]
        completed = [p.total("pgwake_jobs_completed", kind="noop") for p in pages]
        listening = [p.total("pgwake_listener_up") for p in pages]
        return sorted(completed) == [0, 1] and listening == [1, 1]

    await wait_for(both_show_it)
    for page in pages:
        # What a process costs its machine, by the names that everybody knows.
        assert page.total("process_resident_memory_bytes") > 0
        assert page.total("pgwake_slots") == 10
    assert not list(shared.iterdir())


def test_series_are_bounded_whatever_kinds_arrive() -> None:
    metrics = Metrics(["known"])
    before = len(metrics.render().splitlines())
    for n in range(1000):
        metrics.crashed(CrashCount("default", f"kind-{n}", 1, 0, 0))
    after = Samples(metrics.render())

    assert after.label_values("pgwake_jobs_crashed", "kind") == {"(unknown)"}
    assert len(metrics.render().splitlines()) <= before + 4


def test_metrics_can_be_made_any_number_of_times() -> None:
    first, second = Metrics(["a"]), Metrics(["a"])
    first.crashed(CrashCount("default", "a", 2, 0, 0))

    assert Samples(first.render()).total("pgwake_jobs_crashed") == 2
    assert Samples(second.render()).total("pgwake_jobs_crashed") == 0


def test_no_metric_collides_with_those_of_the_application() -> None:
    # Everything of ours has our name, but for the two that describe the process.
    names = Samples(Metrics([]).render()).types

    assert {name.split("_")[0] for name in names} == {"pgwake", "process", "python"}
