"""process=True: plain functions in processes, each for one job at a time."""

import asyncio
import os
import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pgwake import ConfigurationError, Registry, Worker
from pgwake.jobs.registry import registry
from support import Connection, wait_for
from support.sql.helpers import insert, job, set_queue
from support.worker import process_handlers
from support.worker.helpers import (
    Row,
    all_ended,
    embedded,
    ended,
    in_status,
    insert_some,
    reasons,
)
from support.worker.metrics import Samples
from support.worker.processes import Diary, StartProcess, gone, is_alive


@pytest.fixture(autouse=True)
def _diary_of_this_process(diary: Diary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of an embedded worker note what they do as well."""
    monkeypatch.setenv("TEST_DIARY", str(diary.path))


def with_processes(database: str, **changes: Any) -> Worker:
    """An embedded worker with the handlers of process_handlers."""
    return embedded(database, registry, **changes)


async def run(connection: Connection, kind: str, **payload: Any) -> Row:
    """Insert a job, and wait for its end; its row."""
    job_id = await insert(connection, kind, payload=payload, max_attempts=1)
    return await ended(connection, job_id)


async def pids(connection: Connection, count: int) -> list[int]:
    """Where so many jobs have run, one after the other."""
    return [(await run(connection, "pid"))["result"] for _ in range(count)]


async def test_a_handler_in_a_process_sees_its_job_and_its_result_is_stored(
    connection: Connection, database: str
) -> None:
    payload = {"text": "Zoë", "number": 1}
    async with with_processes(database):
        row = await run(connection, "apart", **payload)

    assert row["result"].pop("pid") != os.getpid()
    assert row["result"] == {
        "id": row["id"],
        "kind": "apart",
        "queue": "default",
        "attempt": 1,
        "max_attempts": 1,
        "payload": payload,
        "arguments": payload,
        "should_stop": False,
        "created_at": row["created_at"].isoformat(),
    }


async def test_a_process_is_kept_for_the_next_job_and_replaced_after_so_many(
    connection: Connection, database: str
) -> None:
    async with with_processes(database, process_max_jobs=2):
        first, again, second, once_more, third = await pids(connection, 5)

    assert first == again != second == once_more != third
    for pid in (first, second, third):
        await gone(pid)


async def test_there_are_no_more_processes_than_slots(
    connection: Connection, database: str
) -> None:
    ids = [await insert(connection, "pid") for _ in range(20)]
    async with with_processes(database, queues="default:2"):
        ran_in = {(await ended(connection, i))["result"] for i in ids}
        assert 1 <= len(ran_in) <= 2


async def test_what_holds_the_interpreters_lock_holds_up_no_other_job(
    connection: Connection, database: str, diary: Diary
) -> None:
    deaf = await insert(connection, "sleep in C", payload={"seconds": 60})
    async with with_processes(database):
        await diary.has(job=deaf, event="start")
        for kind in ("noop", "echo", "pid"):
            assert (await run(connection, kind))["status"] == "completed"
        (entry,) = diary.entries(job=deaf)
        assert is_alive(entry["pid"])
        # A cancellation kills it all the same.
        await connection.execute("select pgwake.cancel_job($1)", deaf)
        row = await ended(connection, deaf)
        assert not is_alive(entry["pid"])

    assert (row["status"], row["attempt"]) == ("cancelled", 1)


async def test_a_job_that_timed_out_is_killed_alone(
    connection: Connection, database: str, diary: Diary, tmp_path: Path
) -> None:
    await set_queue(connection, backoff_base=timedelta(0))
    go = tmp_path / "go"
    neighbour = await insert(connection, "hold apart", payload={"until": str(go)})
    late = await insert(connection, "spin apart briefly", payload={"seconds": 60})
    async with with_processes(database):
        await diary.has(job=neighbour, event="start")
        row = await ended(connection, late)
        go.touch()
        other = await ended(connection, neighbour)

    assert (row["status"], reasons(row)) == ("failed", ["timeout", "timeout"])
    assert row["errors"][0]["message"] == "timed out after 0.5 s"
    # Its time began when it did, not while its process was started.
    first, second = diary.entries(job=late, event="start")
    assert first["pid"] != second["pid"]
    assert (other["status"], other["attempt"]) == ("completed", 1)


async def test_who_is_over_the_memory_limit_or_keeps_half_of_it_is_replaced(
    connection: Connection, database: str
) -> None:
    async with with_processes(database, process_memory=256, queues="default:1"):
        (before,) = await pids(connection, 1)
        row = await run(connection, "allocate", mebibytes=1000)
        (after,) = await pids(connection, 1)
        fits = await run(connection, "allocate", mebibytes=100)
        kept_in = [
            (await run(connection, "leak", mebibytes=50))["result"] for _ in range(4)
        ]

    assert (row["status"], reasons(row)) == ("failed", ["failed"])
    message = (
        "MemoryError: over the 256 MiB that PGWAKE_PROCESS_MEMORY allows a process"
    )
    assert row["errors"][0]["message"] == message
    assert "in allocate" in row["errors"][0]["traceback"]
    assert before != after
    assert fits["result"] == "100 MiB"
    assert kept_in[0] == after
    assert None not in kept_in
    assert len(set(kept_in)) > 1


async def test_a_job_whose_process_dies_fails_alone_and_uses_up_its_attempts(
    connection: Connection, database: str, diary: Diary, tmp_path: Path
) -> None:
    cases: list[tuple[str, Row, str]] = [
        ("segfault", {}, "its process ended by SIGSEGV"),
        ("leave", {"code": 3}, "its process ended with exit code 3"),
        ("leave", {"code": 0}, "its process ended with exit code 0"),
    ]
    await set_queue(connection, backoff_base=timedelta(0))
    go = tmp_path / "go"
    neighbour = await insert(connection, "hold apart", payload={"until": str(go)})
    async with with_processes(database, queues="default:2") as worker:
        await diary.has(job=neighbour, event="start")
        for kind, payload, message in cases:
            dead = await insert(connection, kind, payload=payload, max_attempts=2)
            row = await ended(connection, dead)
            end = (row["status"], row["attempt"], row["crash_count"])
            assert end == ("failed", 2, 0), message
            assert reasons(row) == ["crashed", "crashed"], message
            assert row["errors"][0]["message"] == message
        go.touch()
        other = await ended(connection, neighbour)
        samples = Samples(worker.metrics.render())

    assert (other["status"], other["attempt"]) == ("completed", 1)
    for kind, count in (("segfault", 1), ("leave", 2)):
        assert samples.total("pgwake_jobs_failed", kind=kind) == count


async def test_a_forked_process_does_not_keep_its_dead_parents_job_running(
    connection: Connection, database: str, diary: Diary
) -> None:
    async with with_processes(database):
        row = await run(connection, "die beside another")

    assert row["errors"][0]["message"] == "its process ended by SIGKILL"
    (entry,) = diary.entries(event="started")
    await gone(entry["other"])


async def test_a_process_that_is_killed_while_it_is_idle_costs_no_attempt(
    connection: Connection, database: str
) -> None:
    async with with_processes(database, queues="default:1"):
        (first,) = await pids(connection, 1)
        os.kill(first, signal.SIGKILL)
        job_id = await insert(connection, "pid")
        row = await ended(connection, job_id)

    assert (row["status"], row["attempt"], row["errors"]) == ("completed", 1, None)
    assert row["result"] != first


async def test_a_lost_lease_kills_the_process_and_nothing_of_it_is_written(
    connection: Connection, database: str, diary: Diary
) -> None:
    job_id = await insert(connection, "hold apart", payload={"until": "/never"})
    async with with_processes(database, lease=1):
        (entry,) = await diary.has(job=job_id, event="start")
        await connection.execute(
            "update pgwake.jobs_live set lease_id = gen_random_uuid(),"
            " lease_expires_at = 'infinity', claimed_by = 'another' where id = $1",
            job_id,
        )
        await gone(entry["pid"])
    row = await job(connection, job_id)

    assert (row["status"], row["claimed_by"]) == ("running", "another")
    assert row["errors"] is None


async def test_a_job_that_is_cancelled_while_its_process_starts_is_never_begun(
    connection: Connection,
    database: str,
    diary: Diary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Every Python that starts from now on takes its time.
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    async with with_processes(database):
        job_id = await insert(connection, "spin apart", payload={"seconds": 60})
        await in_status(connection, job_id, "running")
        await connection.execute("select pgwake.cancel_job($1)", job_id)
        row = await ended(connection, job_id)

    assert (row["status"], diary.entries()) == ("cancelled", [])


async def test_a_cancelled_job_takes_what_it_has_started_with_it(
    connection: Connection, database: str, diary: Diary
) -> None:
    async with with_processes(database):
        job_id = await insert(connection, "start another")
        await diary.has(event="started", job=job_id)
        (entry,) = diary.entries(event="started")
        await connection.execute("select pgwake.cancel_job($1)", job_id)
        assert (await ended(connection, job_id))["status"] == "cancelled"
        await gone(entry["other"])


async def test_a_stop_gives_back_what_outlasts_its_grace_and_ends_all_processes(
    connection: Connection, database: str, diary: Diary
) -> None:
    async with with_processes(database, grace=0.2, queues="default:2"):
        (idle,) = await pids(connection, 1)
        first = await insert(connection, "spin apart", payload={"seconds": 60})
        second = await insert(connection, "sleep in C", payload={"seconds": 60})
        await diary.has(2, event="start")
    row, other = await job(connection, first), await job(connection, second)

    for given_back in (row, other):
        assert (given_back["status"], given_back["attempt"]) == ("pending", 0)
        assert (given_back["bounce_count"], given_back["errors"]) == (1, None)
    for pid in {idle, *(entry["pid"] for entry in diary.entries(event="start"))}:
        assert not is_alive(pid)


async def test_a_job_that_ends_within_the_grace_of_a_stop_is_completed(
    connection: Connection, database: str, diary: Diary
) -> None:
    job_id = await insert(connection, "spin apart", payload={"seconds": 0.3})
    async with with_processes(database):
        await diary.has(job=job_id, event="start")

    assert (await job(connection, job_id))["status"] == "completed"


async def test_no_process_outlives_a_worker_that_is_killed(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker(imports="support.worker.process_handlers", processes=1)
    idle = (await run(connection, "pid"))["result"]
    holds = await insert(connection, "hold apart", payload={"until": "/never"})
    deaf = await insert(connection, "sleep in C", payload={"seconds": 60})
    await diary.has(2, event="start")
    running = [entry["pid"] for entry in diary.entries(event="start")]
    assert idle in running
    again = (await run(connection, "pid"))["result"]  # idle by now
    worker.send(signal.SIGSTOP)  # the supervisor starts no other
    os.kill(worker.children[0], signal.SIGKILL)

    for pid in (*running, again):
        await gone(pid)
    for job_id in (holds, deaf):
        assert (await job(connection, job_id))["status"] == "running"


async def test_a_supervised_workers_processes_log_as_it_does_and_end_with_it(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker(imports="support.worker.process_handlers", grace=0)
    await run(connection, "log", text="is here")
    line = await worker.logged("is here")
    assert line["worker"] == (await worker.logged("worker started"))["worker"]

    job_id = await insert(connection, "sleep in C", payload={"seconds": 60})
    (entry,) = await diary.has(job=job_id, event="start")
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    await gone(entry["pid"])
    assert (await job(connection, job_id))["status"] == "pending"


async def test_exceptions_come_back_with_their_traceback_and_outcomes_as_elsewhere(
    connection: Connection, database: str
) -> None:
    async with with_processes(database, queues="default:1"):
        row = await run(connection, "raise apart", what="unpicklable")
        left = await run(connection, "raise apart", what="exit")
        invalid = await run(connection, "raise apart", what="invalid")
        discarded = await run(connection, "raise apart", what="discard")
        retried, snoozed = [
            await put_off(
                connection,
                await insert(connection, "raise apart", payload={"what": what}),
            )
            for what in ("retry", "snooze")
        ]

    (error,) = row["errors"]
    assert (error["reason"], error["message"]) == (
        "failed",
        "UnpicklableError: it holds a lambda",
    )
    assert "process_handlers.py" in error["traceback"]
    assert "in raise_apart" in error["traceback"]
    assert "pgwake/processes/child" not in error["traceback"]
    assert left["errors"][0]["message"] == "SystemExit: 3"
    assert reasons(invalid) == ["invalid"]

    assert (discarded["status"], reasons(discarded)) == ("failed", ["discarded"])
    assert discarded["errors"][0]["message"] == "withdrawn"
    (error,) = retried["errors"]
    assert error["message"] == "ConnectionError: 429, slow down"
    assert "in raise_apart" in error["traceback"]
    assert (snoozed["attempt"], snoozed["errors"]) == (0, None)
    for row in (retried, snoozed):
        wait = row["run_at"] - datetime.now(row["run_at"].tzinfo)
        assert timedelta(seconds=900) < wait < timedelta(seconds=1001)


async def put_off(connection: Connection, job_id: int) -> Row:
    """Wait until a job has run and is to run again much later; its row."""

    async def is_put_off() -> bool:
        row = await job(connection, job_id)
        later = row["run_at"] - row["created_at"] > timedelta(seconds=900)
        return bool(later and row["status"] == "pending")

    await wait_for(is_put_off)
    return await job(connection, job_id)


async def test_payloads_are_checked_and_results_made_into_json_in_the_process(
    connection: Connection, database: str
) -> None:
    async with with_processes(database, queues="default:1"):
        large = await run(connection, "return apart", what="large")
        nothing = await run(connection, "return apart", what="nothing")
        unfit = await run(connection, "return apart", what="object")
        wrong = await ended(
            connection,
            await insert(connection, "allocate", payload={"mebibytes": "many"}),
        )

    assert len(large["result"]) == 1_000_000
    assert (nothing["status"], nothing["result"]) == ("completed", None)
    assert (unfit["status"], reasons(unfit)) == ("failed", ["invalid"])
    # A dead letter at once.
    assert (wrong["status"], wrong["attempt"]) == ("failed", 1)
    assert reasons(wrong) == ["invalid"]
    said = wrong["errors"][0]["message"]
    assert "the payload does not fit allocate: mebibytes" in said


async def test_prints_go_where_the_workers_do_and_signals_are_the_workers_to_act_on(
    connection: Connection,
    database: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    async with with_processes(database):
        await run(connection, "print", text="is here")
        output, errors = capfd.readouterr()
        assert (await run(connection, "signal itself"))["result"] == "went on"

    assert "is here" in output.splitlines()
    assert "is here" in errors.splitlines()


async def test_a_module_that_a_process_cannot_import_fails_the_job_alone(
    connection: Connection,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "fragile.py").write_text(
        "import os\n"
        "if 'FRAGILE' in os.environ:\n"
        "    raise RuntimeError('not here')\n"
        "def handler() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import fragile  # type: ignore[import-not-found]  # noqa: PLC0415, made just now

    own = Registry()
    own.job("fragile", process=True)(fragile.handler)
    own.job("pid", process=True)(process_handlers.pid)
    monkeypatch.setenv("FRAGILE", "1")
    async with embedded(database, own):
        row = await run(connection, "fragile")
        assert (await run(connection, "pid"))["status"] == "completed"

    assert (row["status"], reasons(row)) == ("failed", ["failed"])
    assert row["errors"][0]["message"] == "RuntimeError: not here"


def plain() -> None: ...


async def on_the_loop() -> None: ...


class Callable:
    def __call__(self) -> None: ...


def test_a_function_that_no_process_would_find_is_refused() -> None:
    def nested() -> None: ...

    cases: list[tuple[Any, str]] = [
        (nested, "not at the top of its module"),
        (lambda: None, "not at the top of its module"),
        (on_the_loop, "is async"),
        (Callable(), "is no function"),
    ]
    for function, why in cases:
        with pytest.raises(ConfigurationError, match=f"kind: .*{why}"):
            Registry().job("kind", process=True)(function)


async def test_a_worker_does_not_start_with_a_function_of_the_program_itself(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "__module__", "__main__")
    own = Registry()
    own.job("kind", process=True)(plain)

    with pytest.raises(ConfigurationError, match="put it into a module"):
        async with embedded(database, own):
            await asyncio.sleep(0)


async def test_a_worker_does_not_start_if_a_name_stands_for_another_function(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Registry()
    module = ModuleType("replaced")
    exec("def handler(): ...", vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, "replaced", module)
    vars(module)["handler"].__module__ = "replaced"
    own.job("kind", process=True)(vars(module)["handler"])
    vars(module)["handler"] = plain

    with pytest.raises(ConfigurationError, match=r"kind: .*handler of replaced"):
        async with embedded(database, own):
            await asyncio.sleep(0)


async def test_many_jobs_in_a_few_processes_are_each_run_once(
    connection: Connection, database: str
) -> None:
    await insert_some(connection, "pid", 60)
    async with with_processes(database, queues="default:2", process_max_jobs=20):
        await all_ended(connection)

    counts = await connection.fetch(
        "select result, count(*) from pgwake.jobs_finished group by 1"
    )
    assert sum(count for _, count in counts) == 60
    assert max(count for _, count in counts) <= 20


async def test_a_handler_steps_sleeps_and_waits_by_the_socket(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection, "steps apart", max_attempts=1)
    async with with_processes(database):
        await in_status(connection, job_id, "waiting")
        await connection.execute(
            """select pgwake.emit_event('apart:go', '{"by": 1}')"""
        )
        row = await ended(connection, job_id)
        (pid,) = await pids(connection, 1)

    assert row["status"] == "completed", row["errors"]
    first, payload, said = row["result"]
    assert (first, payload) == (pid, {"by": 1})
    assert "already" in said
