"""Jobs that take their process down: neither endless, nor at the cost of others."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from time import monotonic

import pytest
from structlog.testing import capture_logs

from pgwake import Job, Registry
from pgwake.engine import quarantine
from pgwake.supervise.supervisor import Supervisor
from pgwake.worker_names import new_worker_name
from support import Connection, free_port, wait_for
from support.sql.helpers import insert
from support.worker.helpers import (
    all_ended,
    embedded,
    ended,
    in_status,
    reasons,
    settings,
)
from support.worker.metrics import Samples, fetch
from support.worker.processes import Diary, StartProcess, gone


async def test_a_job_that_always_kills_its_process_is_failed_with_the_workers_named(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    await start_worker("--queue", "default:5")
    poison = await insert(connection, "die", priority=1, concurrency_key="k")
    others = [
        await insert(connection, "nap", payload={"seconds": 0.3}) for _ in range(20)
    ]
    # Its key goes on with the next when it has failed, without a poll.
    keyed = {"payload": {"seconds": 0}, "concurrency_key": "k"}
    others += [await insert(connection, "nap", **keyed) for _ in range(5)]
    row = await ended(connection, poison, within=60)
    await all_ended(connection)

    assert (row["status"], row["crash_count"]) == ("failed", 5)
    assert reasons(row) == ["crashed"] * 5
    # Five workers, each of them named. Crashes 1 and 2 gave the attempt back.
    workers = [error["worker"] for error in row["errors"]]
    assert len(set(workers)) == 5
    assert [error["attempt"] for error in row["errors"]] == [1, 1, 1, 2, 3]
    starts = diary.entries(job=poison, event="start")
    assert [int(worker.split(":")[1]) for worker in workers] == [
        entry["pid"] for entry in starts
    ]

    # From crash 2 on it ran alone: no other process but its own died with it.
    alone = {entry["pid"] for entry in starts[2:]}
    assert not [e for e in diary.entries(kind="nap") if e["pid"] in alone]
    for job_id in others:
        row = await ended(connection, job_id)
        assert (row["status"], row["attempt"]) == ("completed", 1)
        # Whoever was beside it has no more than its first two crashes to tell of.
        assert reasons(row) == ["crashed"] * row["crash_count"]
        assert row["crash_count"] <= 2


async def test_a_job_that_kills_its_process_once_runs_again_at_once_beside_others(
    connection: Connection, start_worker: StartProcess, diary: Diary, tmp_path: Path
) -> None:
    port = free_port()
    worker = await start_worker(http_port=port)  # with the lease of five minutes
    mark = str(tmp_path / "mark")
    job_id = await insert(connection, "die once", payload={"mark": mark})
    row = await ended(connection, job_id)

    assert (row["status"], row["attempt"], row["crash_count"]) == ("completed", 1, 1)
    (error,) = row["errors"]
    assert error["reason"] == "crashed"
    assert f"the worker died; worker {error['worker']}" == error["message"]
    # In the process that takes all jobs, not in quarantine.
    assert not worker.log("process started", suspects=True)
    assert diary.entries(event="end")[0]["pid"] == worker.children[1]

    async def is_counted_once() -> bool:
        page = Samples((await fetch(port, "/metrics")).text)
        return page.total("pgwake_jobs_crashed", kind="die once") == 1

    await wait_for(is_counted_once)


async def test_a_suspect_runs_in_a_process_of_its_own_that_ends_after_it(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker()
    job_id = await insert(connection, "note", crash_count=2)
    # Put there by hand, so nobody has crashed and told of it: the poll finds it.
    await ended(connection, job_id)
    quarantine = await worker.logged("process started", suspects=True)
    await gone(quarantine["pid"])

    (entry,) = diary.entries(event="start")
    assert entry["pid"] == quarantine["pid"] != worker.children[0]


async def test_no_job_of_an_embedded_worker_waits_for_a_suspect(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, done = Registry(), {"until": "done"}
    events = {name: asyncio.Event() for name in ("a", "b", "done")}
    events["done"].set()
    order: list[int] = []

    @registry.job("hold")
    async def hold(job: Job, until: str) -> None:
        order.append(job.id)
        await events[until].wait()

    async def quick_one() -> None:
        await ended(connection, await insert(connection, "hold", payload=done))

    neighbour = await insert(connection, "hold", payload={"until": "a"})
    async with embedded(database, registry, poll_interval=0.1):
        await wait_for(lambda: neighbour in order)
        suspects = [
            await insert(connection, "hold", payload={"until": until}, crash_count=2)
            for until in ("b", "done")
        ]
        await quick_one()  # while the suspect waits for an idle moment
        assert not set(suspects) & set(order)
        events["a"].set()
        await wait_for(lambda: suspects[0] in order)
        await quick_one()  # while it runs
        assert suspects[1] not in order  # suspects run one at a time
        events["b"].set()
        for job_id in suspects:
            assert (await ended(connection, job_id))["status"] == "completed"

        # One that is due for long does not wait for an idle moment.
        monkeypatch.setattr(quarantine, "PATIENCE_SECONDS", 0.0)
        events["a"].clear()
        neighbour = await insert(connection, "hold", payload={"until": "a"})
        await wait_for(lambda: neighbour in order)
        suspect = await insert(connection, "hold", payload=done, crash_count=2)
        await ended(connection, suspect)
        events["a"].set()


async def test_a_supervisor_gives_back_only_what_its_own_child_had(
    connection: Connection, start_worker: StartProcess, diary: Diary, tmp_path: Path
) -> None:
    await start_worker("--queue", "default:1")
    await start_worker("--queue", "default:1")
    go = tmp_path / "go"
    ids = [await insert(connection, "hold", payload={"until": str(go)}) for _ in "ab"]
    entries = await diary.has(2, event="start")
    victim, survivor = entries
    os.kill(victim["pid"], signal.SIGKILL)
    await diary.has(2, job=victim["job"], event="start")
    row = await in_status(connection, survivor["job"], "running")
    assert row["crash_count"] == 0
    go.touch()
    for job_id in ids:
        assert (await ended(connection, job_id))["status"] == "completed"
    assert len(diary.entries(job=survivor["job"], event="start")) == 1


async def test_a_crash_loop_of_the_process_itself_is_slowed_down(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    longest = "pgwake.database.connection.random.uniform"
    monkeypatch.setattr(longest, lambda _, most: most)  # else it is drawn
    supervisor = Supervisor(settings(database, processes=1))
    with capture_logs() as lines:
        supervising = asyncio.create_task(supervisor.run())
        begun = monotonic()

        def deaths() -> int:
            died = [line for line in lines if line["event"] == "process died"]
            assert {line["exit"] for line in died} <= {3}
            return len(died)

        await wait_for(lambda: deaths() == 4)
        supervisor._stop()
        await supervising
    assert monotonic() - begun > 0.4 + 0.8


async def test_a_process_that_can_not_be_started_is_tried_again_a_few_times(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    supervisor = Supervisor(settings(database, processes=1))
    with capture_logs() as lines:
        assert await supervisor.run() == 69
    events = [line["event"] for line in lines]
    assert events == ["process not started"] * 5 + ["no worker process could start"]


def test_worker_names_are_never_used_twice() -> None:
    assert len({new_worker_name() for _ in range(1000)}) == 1000
