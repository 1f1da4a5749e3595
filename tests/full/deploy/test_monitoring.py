"""Two real worker processes under load, a real Prometheus, and deploy/'s own files."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from full.deploy.monitoring import metrics_of, queries, rules
from full.deploy.prometheus import Prometheus
from support import Connect, Connection, free_port, wait_for
from support.sql.helpers import call, insert
from support.worker.helpers import ended, in_status
from support.worker.metrics import Samples, fetch
from support.worker.processes import Diary, StartProcess

StartPrometheus: TypeAlias = Callable[..., Awaitable[Prometheus]]

VARIABLES = {
    "job": "pgwake",
    "instance": ".+",
    "queue": ".+",
    "__rate_interval": "15s",
}


@pytest.fixture
async def start_prometheus(tmp_path: Path) -> AsyncIterator[StartPrometheus]:
    """Start a Prometheus that scrapes these ports; see Prometheus.start."""
    started: list[Prometheus] = []

    async def start(*ports: int, **changes: tuple[str, str]) -> Prometheus:
        directory = tmp_path / "prometheus"
        directory.mkdir()
        started.append(await Prometheus.start(directory, list(ports), changes))
        return started[-1]

    yield start
    for prometheus in started:
        await prometheus.stop()


def two_ports() -> int:
    """A port that is free, as is the next."""
    while True:
        port = free_port()
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", port + 1)),
        ):
            return port


@contextlib.asynccontextmanager
async def load(connection: Connection) -> AsyncIterator[None]:
    """Keep inserting jobs that are done, fail, are retried and are delayed."""

    async def insert_for_ever() -> None:
        while True:
            await connection.execute(
                "insert into pgwake.jobs (kind, payload, max_attempts, run_at)"
                " select * from (values"
                "  ('noop', '{}'::jsonb, 1, now()),"
                "  ('echo', '{\"a\": 1}', 1, now()),"
                "  ('fail', '{\"message\": \"no\"}', 2, now()),"
                "  ('noop', '{}', 1, now() + interval '1 s')) as j"
            )
            await asyncio.sleep(0.1)

    task = asyncio.create_task(insert_for_ever())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def mishaps(connection: Connection, diary: Diary, tmp_path: Path) -> None:
    """Whatever else can happen to jobs: each of it once."""
    # First, since what the process has counted dies with it.
    mark = {"mark": str(tmp_path / "mark")}
    await ended(connection, await insert(connection, "die once", payload=mark))
    await call(connection, "pause_queue", queue="paused")
    await insert(connection, queue="paused")
    await connection.execute(
        "select pgwake.schedule('often', kind => 'noop', every => '5 seconds')"
    )
    await insert(connection, "nobody knows it")
    await connection.execute(
        "insert into pgwake.jobs (kind, expires_at) values ('noop', '2001-01-01')"
    )
    until = tmp_path / "until"
    ids = [
        await insert(connection, "hold", payload={"until": str(until)})
        for _ in range(2)
    ]
    for job_id in ids:
        await diary.has(event="start", job=job_id)
    await call(connection, "cancel_job", job_id=ids[0])
    await in_status(connection, ids[0], "cancelled")
    await call(connection, "force_fail_job", job_id=ids[1], reason="no lease is left")
    until.touch()


async def test_every_panel_and_every_rule_finds_what_it_asks_for(
    connect: Connect,
    start_worker: StartProcess,
    start_prometheus: StartPrometheus,
    diary: Diary,
    tmp_path: Path,
) -> None:
    port = two_ports()
    await start_worker(http_port=port, processes=2, log_jobs_per_second=0)
    prometheus = await start_prometheus(port, port + 1)
    empty = queries(**VARIABLES)
    empty += [("", rule["record"]) for rule in rules() if "record" in rule]

    async def all_answer() -> bool:
        await asyncio.sleep(0.5)
        for asked in empty[:]:
            if await prometheus.values(asked[1]):
                empty.remove(asked)
        return not empty

    async with load(await connect()):
        await mishaps(await connect(), diary, tmp_path)
        try:
            await wait_for(all_answer)
        except AssertionError:
            raise AssertionError(f"no data: {empty}") from None
        pages = [await fetch(port + n, "/metrics") for n in range(2)]

    shown = set().union(*(Samples(page.text).types for page in pages))
    asked = [query for _, query in queries(**VARIABLES)]
    asked += [rule["expr"] for rule in rules()]
    named = set().union(*map(metrics_of, asked))
    assert {name.removesuffix("_total") for name in named} <= shown
    groups = (await prometheus.ask("rules"))["groups"]
    problems = [
        (rule["name"], rule["lastError"])
        for group in groups
        for rule in group["rules"]
        if rule["health"] != "ok"
    ]
    assert problems == []
    said = [one["annotations"] for one in (await prometheus.ask("alerts"))["alerts"]]
    assert said, "what the load did alerts nobody"
    assert "<error" not in str(said)


async def test_an_alert_fires_and_is_over_when_a_worker_comes(
    connection: Connection,
    start_worker: StartProcess,
    start_prometheus: StartPrometheus,
) -> None:
    port = two_ports()
    workers = await start_worker(http_port=port, processes=2)
    prometheus = await start_prometheus(
        port, port + 1, PgwakeQueueWithoutWorker=("> 60", "> 1")
    )
    without_worker = "PgwakeQueueWithoutWorker"

    async def fires() -> bool:
        await asyncio.sleep(0.1)
        return bool(await prometheus.alerts(without_worker, queue="orders"))

    async def is_over() -> bool:
        return not await fires()

    async def nobody_answers() -> bool:
        return bool(await prometheus.alerts("PgwakeNoWorkerAnswers", job="pgwake"))

    await insert(connection, queue="orders")
    await wait_for(fires)
    assert not await nobody_answers()
    await start_worker(queues="orders:1")
    await wait_for(is_over)
    workers.send(signal.SIGTERM)
    assert await workers.exit_code() == 0
    await wait_for(nobody_answers)


async def test_each_loop_that_is_broken_alerts_until_it_is_mended(
    connect: Connect,
    start_worker: StartProcess,
    start_prometheus: StartPrometheus,
) -> None:
    port = two_ports()
    await start_worker(http_port=port, processes=2, poll_interval=1)
    prometheus = await start_prometheus(
        port,
        port + 1,
        PgwakeClaimsStalled=("< 45", "< 3"),
        PgwakeSchedulesStalled=("< 45", "< 3"),
        PgwakeSweepStalled=("< 45", "< 14"),  # a worker that is new does not sweep yet
    )
    loops = {"PgwakeClaimsStalled", "PgwakeSchedulesStalled", "PgwakeSweepStalled"}
    firing: set[str] = set()

    async def are(expected: set[str]) -> None:
        async def so() -> bool:
            await asyncio.sleep(0.1)
            data = await prometheus.ask("alerts")
            firing.clear()
            firing.update(one["labels"]["alertname"] for one in data["alerts"])
            return firing & loops == expected

        try:
            await wait_for(so)
        except AssertionError:
            raise AssertionError(f"{firing}, not {expected}") from None

    broken, sweeper = await connect(), await connect()
    functions = "claim_rows", "due_schedules"
    for name in functions:
        await broken.execute(f"alter function pgwake.{name} rename to {name}_gone")
    await sweeper.execute("begin; select pg_advisory_xact_lock(1885828971, 1)")
    await insert(broken)
    await are(loops)
    # All else is well, and says so.
    others = {"PgwakeDatabaseDown", "PgwakeListenerDown", "PgwakeLoopBlocked"}
    assert not firing & others
    for name in functions:
        await broken.execute(f"alter function pgwake.{name}_gone rename to {name}")
    await sweeper.execute("rollback")
    await are(set())
