"""What /metrics shows of the whole database, and for how long."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pgwake import Registry
from pgwake.database.embedded import EmbeddedServer
from pgwake.observe.metrics import Metrics
from pgwake.observe.sampler import MAX_SAMPLE_SECONDS, Sampler
from support import Connect, Connection, free_port, wait_for
from support.sql.helpers import call, insert
from support.worker.helpers import Row, embedded, ended
from support.worker.metrics import Samples, fetch
from support.worker.metrics import shown as until_shown
from support.worker.registries import quick

UPKEEP = "pgwake_upkeep_succeeded_timestamp_seconds"
DATABASE: Row = {
    "queue": None,
    "schedule_lag": timedelta(0),
    "oldest_snapshot_age": timedelta(seconds=7),
    "notification_queue_usage": 0.5,
    "worker_count": 1,
}
NOTHING: Row = {
    "pending_count": 0,
    "scheduled_count": 0,
    "waiting_count": 0,
    "running_count": 0,
    "failed_count": 0,
    "oldest_pending_age": None,
    "avg_queue_time_ms": None,
    "avg_execution_time_ms": None,
    "enqueued_total": 0,
    "completed_total": 0,
    "failed_total": 0,
    "worker_count": 0,
    "is_paused": False,
}


def row(queue: str, **columns: Any) -> Row:
    return {"queue": queue, **NOTHING, **columns}


def shown(metrics: Metrics) -> Samples:
    return Samples(metrics.render())


def test_the_series_of_a_queue_end_with_the_queue() -> None:
    metrics = Metrics([])
    metrics.show(DATABASE, [row("a", pending_count=3), row("b")])
    assert shown(metrics).total("pgwake_queue_pending_jobs", queue="a") == 3

    metrics.show(DATABASE, [row("b")])
    assert 'queue="a"' not in metrics.render().decode()
    assert shown(metrics).label_values("pgwake_queue_pending_jobs", "queue") == {"b"}


def test_a_thousand_queues_have_200_series_and_one_for_the_rest() -> None:
    metrics = Metrics([])
    rows = [
        row(
            f"q{n}",
            pending_count=1,
            enqueued_total=n,
            oldest_pending_age=timedelta(seconds=1000 - n),
            worker_count=3 if n < 20 else 0,
        )
        for n in range(1000)
    ]
    own = metrics.show(DATABASE, rows)

    samples = shown(metrics)
    queues = samples.label_values("pgwake_queue_pending_jobs", "queue")
    # Those that are worked on, and those that have had the most jobs.
    busy = {f"q{n}" for n in (*range(20), *range(820, 1000))}
    assert queues == busy | {"(other)"}
    assert {one["queue"] for one in own} == busy
    assert samples.total("pgwake_queue_pending_jobs", queue="(other)") == 800
    assert samples.total("pgwake_queue_pending_jobs") == 1000
    name = "pgwake_queue_oldest_pending_age_seconds"
    assert samples.total(name, queue="(other)") == 1000 - 20


def test_who_has_series_keeps_them_whatever_the_others_do() -> None:
    metrics = Metrics([])
    rows = [row(f"q{n:03}", enqueued_total=1) for n in range(200)]
    metrics.show(DATABASE, rows)
    metrics.show(DATABASE, [*rows, row("new", enqueued_total=10**6, worker_count=9)])

    queues = shown(metrics).label_values("pgwake_queue_paused", "queue")
    assert queues == {one["queue"] for one in rows} | {"(other)"}


def test_a_queue_that_is_called_as_the_rest_is_counted_with_it() -> None:
    metrics = Metrics([])
    metrics.show(DATABASE, [row("(other)", pending_count=2), row("a")])

    assert shown(metrics).total("pgwake_queue_pending_jobs", queue="(other)") == 2


def test_a_counter_of_the_database_never_falls() -> None:
    metrics = Metrics([])
    name = "pgwake_queue_jobs_completed"
    for counted, expected in ((10, 10), (4, 10), (9, 10), (12, 12)):
        metrics.show(DATABASE, [row("a", completed_total=counted)])
        assert shown(metrics).total(name, queue="a") == expected


def test_an_odd_name_of_a_queue_breaks_no_scrape() -> None:
    metrics = Metrics([])
    odd = 'a"b\\c\nd{e="f"} \u202e 🎉'
    metrics.show(DATABASE, [row(odd, pending_count=2)])

    assert shown(metrics).total("pgwake_queue_pending_jobs", queue=odd) == 2


async def test_queues_that_are_folded_are_no_part_of_the_history(
    connection: Connection,
) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind, queue)"
        " select 'noop', 'q' || n from generate_series(1, 300) as n"
    )
    sampler = Sampler(Metrics([]))
    await sampler.sample(connection)

    ((_, points),) = sampler.history.samples
    assert len(points) == 200


async def test_the_whole_database_is_shown_with_its_workers(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.1)
    await call(connection, "pause_queue", queue="later")
    async with embedded(database, quick()) as worker:
        await ended(connection, await insert(connection, "quick"))
        await insert(connection, "quick", queue="later")
        counted = {"queue": "default"}
        samples = await until_shown(
            worker,
            lambda s: (
                s.total("pgwake_queue_jobs_completed", **counted) == 1
                and s.total("pgwake_queue_jobs_enqueued", queue="later") == 1
            ),
        )

    assert samples.total("pgwake_queue_workers", **counted) == 1
    assert samples.total("pgwake_queue_workers", queue="later") == 0
    assert samples.total("pgwake_queue_paused", queue="later") == 1
    assert samples.total("pgwake_queue_paused", **counted) == 0
    assert samples.total("pgwake_database_up") == 1


async def test_of_two_workers_in_one_process_each_counts_its_own(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.1)
    ports = free_port(), free_port()
    async with (
        embedded(database, quick("a"), queues="a", http_port=ports[0]),
        embedded(database, quick("b"), queues="b", http_port=ports[1]),
    ):
        await ended(connection, await insert(connection, "quick", queue="a"))
        for _ in range(2):
            await ended(connection, await insert(connection, "quick", queue="b"))
        pages: list[Samples] = []

        async def is_shown() -> bool:
            pages[:] = [Samples((await fetch(port, "/metrics")).text) for port in ports]
            both = [page.total("pgwake_queue_jobs_completed") for page in pages]
            return both == [3, 3]

        await wait_for(is_shown)
    assert [page.total("pgwake_jobs_completed") for page in pages] == [1, 2]
    for page in pages:
        assert page.total("pgwake_queue_workers") == 2


async def test_without_its_database_a_worker_shows_nothing_of_it_and_is_scraped(
    spare_server: EmbeddedServer,
    spare_database: str,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.1)
    monkeypatch.setattr("pgwake.observe.database.FRESH_SECONDS", 2)
    port, registry = free_port(), Registry()

    @registry.job("quick")
    async def handler() -> None: ...

    async def page() -> Samples:
        return Samples((await fetch(port, "/metrics")).text)

    async def is_shown() -> bool:
        return (await page()).total("pgwake_queue_jobs_completed") == 1

    async def is_gone() -> bool:
        shown = await page()
        return not (
            shown.label_values("pgwake_queue_jobs_completed", "queue")
            or shown.label_values("pgwake_queue_pending_jobs", "queue")
            or shown.has("pgwake_oldest_snapshot_age_seconds")
        )

    async with embedded(spare_database, registry, http_port=port):
        connection = await connect(spare_database)
        await ended(connection, await insert(connection, "quick"))
        await wait_for(is_shown)
        await asyncio.to_thread(spare_server._halt, "immediate")
        await wait_for(is_gone)
        shown = await page()
        assert shown.total("pgwake_database_up") == 0
        # What the process itself has counted stays.
        assert shown.total("pgwake_jobs_completed") == 1
        await asyncio.to_thread(spare_server._launch)
        await wait_for(is_shown)
        assert (await page()).total("pgwake_database_up") == 1


async def test_a_sample_that_hangs_holds_up_neither_a_scrape_nor_the_upkeep(
    connect: Connect,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.1)
    monkeypatch.setattr("pgwake.observe.database.FRESH_SECONDS", 1)
    monkeypatch.setattr("pgwake.observe.sampler.DEADLINE", 0.3)
    monkeypatch.setattr("pgwake.observe.sampler.MAX_SAMPLE_SECONDS", 0.5)
    port = free_port()

    async def page() -> Samples:
        return Samples((await fetch(port, "/metrics")).text)

    async def is_shown() -> bool:
        return (await page()).has("pgwake_schedule_lag_seconds")

    async def is_gone() -> bool:
        return not await is_shown()

    async with embedded(database, quick(), http_port=port):
        await wait_for(is_shown)
        other = await connect()
        # Without the steps that need what is locked: fold, retention and recount.
        await other.execute(
            "begin; select pg_advisory_xact_lock(1885828971, n)"
            " from unnest('{2, 3, 5}'::int[]) as n;"
            " lock table pgwake.counts in access exclusive mode"
        )
        before = (await page()).total(UPKEEP, step="children")
        await wait_for(is_gone)
        sampled = (await page()).total(UPKEEP, step="sample")

        async def is_kept_up() -> bool:
            return (await page()).total(UPKEEP, step="children") > before

        await wait_for(is_kept_up)
        assert (await page()).total(UPKEEP, step="sample") == sampled
        await other.execute("rollback")
        await wait_for(is_shown)


async def test_the_more_samplers_there_are_the_longer_each_waits(
    connection: Connection,
) -> None:
    sampler = Sampler(Metrics([]))

    async def waits(workers: int) -> float:
        """The shortest of some, since the machine may be busy with others."""
        await connection.execute(
            "select pgwake.report_worker('w' || n, 'h', 1, '{a}', '{}')"
            " from generate_series(1, $1) as n",
            workers,
        )
        seconds = []
        for _ in range(5):
            assert await sampler.sample(connection)
            seconds.append(sampler.seconds)
        return min(seconds)

    assert await waits(0) == 0
    assert 0 < await waits(1) < await waits(20) <= MAX_SAMPLE_SECONDS
    assert await waits(5000) == MAX_SAMPLE_SECONDS
