"""Every attempt is counted when it begins and once when it ends, whoever dies."""

import asyncio
import os
import random
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from pgwake import Registry
from support import Connection, free_port, wait_for
from support.sql.helpers import call, insert, set_queue
from support.worker.helpers import all_ended, embedded, ended, insert_some
from support.worker.metrics import Samples, fetch
from support.worker.processes import Diary, StartProcess, gone
from support.worker.registries import quick

QUEUES = "default:5,fragile:5"


def begun(pages: list[Samples]) -> float:
    return sum(page.total("pgwake_jobs_claimed") for page in pages)


def over(pages: list[Samples]) -> float:
    """Ended by the one who had them, or taken from it and returned."""
    names = ("completed", "retried", "failed", "cancelled", "released")
    return sum(
        page.total("pgwake_jobs_crashed", outcome="returned")
        + sum(page.total(f"pgwake_jobs_{name}") for name in names)
        for page in pages
    )


def total(pages: list[Samples], name: str, **labels: str) -> float:
    return sum(page.total(f"pgwake_{name}", **labels) for page in pages)


async def scrape(*ports: int) -> list[Samples]:
    return [Samples((await fetch(port, "/metrics")).text) for port in ports]


async def test_what_began_has_ended_or_was_taken_when_a_process_is_killed(
    connection: Connection,
    start_worker: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    port, go = free_port(), tmp_path / "go"
    await set_queue(connection, "fragile", max_crashes=1)
    worker = await start_worker(http_port=port, processes=2, queues=QUEUES)
    for _ in range(6):
        await ended(connection, await insert(connection, "noop"))
    await ended(
        connection,
        await insert(connection, "fail", payload={"message": "x"}, max_attempts=1),
    )
    held = [
        await insert(connection, "hold", queue=queue, payload={"until": str(go)})
        for queue in ("default", "fragile")
        for _ in range(5)
    ]
    starts = await diary.has(len(held), event="start")

    async def all_claims_are_shown() -> bool:
        return total(await scrape(port, port + 1), "slots_busy") == len(held)

    await wait_for(all_claims_are_shown)
    pages = await scrape(port, port + 1)
    assert begun(pages) == over(pages) + len(held)

    # Whoever has one of the default queue: it returns; those of the other one fail.
    (victim, *_) = [s["pid"] for s in starts if s["job"] in held[:5]]
    lost = [s["job"] for s in starts if s["pid"] == victim]
    last = pages[worker.children.index(victim)]
    os.kill(victim, signal.SIGKILL)
    await gone(victim)
    await worker.started(3)
    await diary.has(len(held) + sum(job in held[:5] for job in lost), event="start")
    go.touch()
    await all_ended(connection)

    async def is_all_counted() -> bool:
        pages[:] = [last, *await scrape(port, port + 1)]
        return begun(pages) == over(pages)

    await wait_for(is_all_counted)
    returned = sum(job in held[:5] for job in lost)
    assert total(pages, "jobs_crashed", outcome="returned") == returned
    assert total(pages, "jobs_crashed", outcome="failed") == len(lost) - returned
    # A dead letter is one, by whatever it became so.
    assert total(pages, "jobs_failed") == 1 + len(lost) - returned
    assert total(pages, "jobs_failed") == await connection.fetchval(
        "select sum(failed_total) from pgwake.get_queue_stats()"
    )


async def test_a_job_that_dies_in_quarantine_is_a_dead_letter_as_any_other(
    connection: Connection, start_worker: StartProcess
) -> None:
    port = free_port()
    await set_queue(connection, "default", max_crashes=3, backoff_base=timedelta(0))
    await start_worker(http_port=port, processes=2)
    row = await ended(connection, await insert(connection, "die"))
    assert (row["status"], row["crash_count"]) == ("failed", 3)

    # Its third run is alone, in a process whose page nobody sees.
    async def is_counted() -> bool:
        try:
            pages = await scrape(port, port + 1)
        except ConnectionError:  # one of those that it took down is not yet back
            return False
        return (
            total(pages, "jobs_crashed", kind="die", outcome="failed") == 1
            and total(pages, "jobs_failed", kind="die") == 1
            and total(pages, "jobs_claimed", kind="die") >= 1
        )

    await wait_for(is_counted)


async def test_the_databases_counters_are_right_whoever_is_killed_when(
    connection: Connection, start_worker: StartProcess
) -> None:
    # What a process did since its last scrape dies with it: only these can be right.
    worker = await start_worker(processes=2)
    await connection.execute(
        "insert into pgwake.jobs (kind, payload, max_attempts)"
        """ select 'fail', '{"message": "x"}', 1 from generate_series(1, 50)"""
    )
    for life in range(3):
        await insert_some(connection, "noop", 300)
        await asyncio.sleep(random.uniform(0.02, 0.2))  # noqa: S311
        os.kill(worker.children[-1], signal.SIGKILL)
        await gone(worker.children[-1])
        await worker.started(3 + life)
    await all_ended(connection, 60)

    row = await connection.fetchrow("select * from pgwake.get_metrics() offset 1")
    assert row is not None
    assert (row["enqueued_total"], row["completed_total"], row["failed_total"]) == (
        950,
        900,
        50,
    )


async def test_jobs_swept_from_a_silent_worker_are_counted_by_what_became_of_them(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    await set_queue(connection, "default", max_crashes=1)
    for kind in ("failed", "cancelled"):
        registry.job(kind)(lambda: None)
        await insert(connection, kind)
    await connection.execute(
        "select pgwake.claim_jobs('default', 9, 'gone', interval '1 second')"
    )
    ids = await connection.fetch("select id, kind from pgwake.jobs_live order by id")
    await call(connection, "cancel_job", job_id=ids[1]["id"])
    await connection.execute(
        "insert into pgwake.jobs (kind, expires_at) values ('failed', now())"
    )
    async with embedded(database, registry, lease=1) as worker:
        for job_id, _ in ids:
            await ended(connection, job_id)

        await wait_for(
            lambda: total([Samples(worker.metrics.render())], "jobs_crashed") == 2
        )
        await wait_for(
            lambda: total([Samples(worker.metrics.render())], "jobs_expired") == 1
        )
        pages = [Samples(worker.metrics.render())]
    for outcome in ("failed", "cancelled"):
        assert total(pages, "jobs_crashed", kind=outcome, outcome=outcome) == 1
        assert total(pages, f"jobs_{outcome}", kind=outcome) == 1
    assert total(pages, "jobs_claimed") == 0


async def test_what_a_blocked_worker_gives_back_is_counted(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time  # noqa: PLC0415

    monkeypatch.setattr("pgwake.engine.lifeline.watchdog.BLOCKED_SECONDS", 1.0)
    registry = quick()
    blocked: list[int] = []

    @registry.job("block")
    async def block() -> None:
        blocked.append(1)
        time.sleep(3)  # noqa: ASYNC251, that is the point

    # A worker that is that fast claims ahead: what it has then waits behind the block.
    await connection.execute(
        "insert into pgwake.jobs (kind)"
        " select case when n % 1000 = 0 then 'block' else 'quick' end"
        " from generate_series(1, 1999) as n"
    )
    async with embedded(database, registry, queues="default:1") as worker:
        await all_ended(connection)

        async def is_all_counted() -> bool:
            pages = [Samples(worker.metrics.render())]
            return begun(pages) == over(pages)

        await wait_for(is_all_counted)
        pages = [Samples(worker.metrics.render())]
    assert blocked == [1]
    assert total(pages, "jobs_released", reason="unstarted") > 0
