"""The log: a line a job with its fields, and never a payload."""

import asyncio
import contextlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from pgwake import AsyncQueue, NewJob
from pgwake.jobs.attempt import Attempt
from pgwake.observe import logs
from pgwake.observe.joblog import JobLog
from support import Connection, free_port
from support.sql.helpers import call, insert, job
from support.worker.helpers import Row, all_ended, ended, insert_some, settings
from support.worker.processes import StartProcess, clean_environment
from support.worker.terminals import at_terminal

CANARY = "canary-7f3a"


async def test_each_end_of_a_job_is_a_line_of_json_with_its_fields(
    connection: Connection, start_worker: StartProcess
) -> None:
    worker = await start_worker()
    job_id = await insert(connection, "nap", payload={"seconds": 0.05})
    odd = {"message": 'two\nlines "quoted" \x1b[31m'}
    for kind, payload in [("fail", odd), ("unheard\nof\x1b[31m", {})]:
        await insert(connection, kind, payload=payload)
    row = await ended(connection, job_id)
    line = await worker.logged("job completed", job=job_id)

    assert line["worker"] == row["claimed_by"]
    assert (line["kind"], line["queue"], line["attempt"]) == ("nap", "default", 1)
    assert 0 <= line["queue_ms"] < 20_000
    assert 50 <= line["execution_ms"] < 20_000
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")

    failed = await worker.logged("attempt failed, will retry")
    assert failed["error"] == f"ValueError: {odd['message']}"
    assert "handlers.py" in failed["traceback"]
    assert failed["level"] == "warning"
    await worker.logged("job released", reason="unknown_kind")
    for each in worker.lines:
        assert list(each)[:3] == ["timestamp", "level", "event"]
    # What is no JSON has been read as an event that is the whole line.
    assert all("level" in line for line in worker.lines)


async def test_what_a_library_warns_of_is_a_line_like_any_other(
    start_worker: StartProcess,
) -> None:
    port = free_port()
    worker = await start_worker(http_host="127.0.0.1", http_port=port)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"no HTTP\r\n\r\n")
    line = await worker.logged("Invalid HTTP request received.")
    writer.close()

    assert line["level"] == "warning"
    assert line["logger"] == "pgwake.http"


async def test_no_payload_ever_reaches_the_log(
    connection: Connection, start_worker: StartProcess
) -> None:
    worker = await start_worker("--log-level", "debug", lease=1)
    payload = {"secret": CANARY}
    ids = {
        kind: await insert(
            connection, kind, payload=payload, metadata=payload, max_attempts=1
        )
        for kind in ("noop", "echo", "nap", "unheard of")
    }
    too_large = {"secret": CANARY, "filling": "x" * 1_048_000}
    ids["too large"] = await insert(
        connection, "echo", payload=too_large, max_attempts=1
    )
    cancelled = await insert(
        connection, "nap", payload={"seconds": 60}, unique_key=CANARY
    )
    for kind in ("noop", "echo", "nap", "too large"):
        await ended(connection, ids[kind])
    await call(connection, "cancel_job", job_id=cancelled)
    await ended(connection, cancelled)
    await worker.logged("job released", reason="unknown_kind")
    await worker.logged("job failed for good", kind="nap")

    assert CANARY not in json.dumps(worker.lines)


async def test_a_result_that_is_refused_shows_nothing_of_its_row(
    connection: Connection, start_worker: StartProcess
) -> None:
    # What PostgreSQL has to say of a violated check holds the whole row.
    await connection.execute(
        "alter table pgwake.jobs add constraint no_echo"
        " check (kind <> 'echo' or status <> 'completed')"
    )
    worker = await start_worker()
    job_id = await insert(
        connection, "echo", payload={"secret": CANARY}, max_attempts=1
    )
    row = await ended(connection, job_id)
    await worker.logged("job failed for good", job=job_id)

    (error,) = row["errors"]
    assert 'check constraint "no_echo"' in error["message"]
    assert CANARY not in error["message"]
    assert CANARY not in json.dumps(worker.lines)


async def test_beyond_a_rate_completed_jobs_are_summed_up(
    connection: Connection, start_worker: StartProcess
) -> None:
    worker = await start_worker("--queue", "default:50", log_jobs_per_second=3)
    await insert_some(connection, "noop", 500)
    await all_ended(connection)
    await worker.close()

    written = len(worker.log("job completed"))
    summed = sum(line["count"] for line in worker.log("jobs completed, without lines"))
    assert written + summed == 500
    assert 3 <= written < 100


async def test_failed_jobs_each_have_their_line_whatever_the_rate(
    connection: Connection, start_worker: StartProcess
) -> None:
    worker = await start_worker(log_jobs_per_second=0)
    await connection.execute(
        "insert into pgwake.jobs (kind, payload, max_attempts)"
        " select 'fail', '{\"message\": \"m\"}', 1 from generate_series(1, 30)"
    )
    await worker.logged("job failed for good", 30)
    await ended(connection, await insert(connection, "noop"))

    assert not worker.log("job completed")


class Claimed:
    """As much of a job as its line needs."""

    id, kind, queue, attempt = 1, "kind", "queue", 1
    queue_seconds = seconds = 0.001
    run = None


def human(event: str = "something", processes: int = 1, **fields: Any) -> str:
    """What a line looks like on a terminal, without its colours."""
    output = io.StringIO()
    configured = structlog.get_config()
    try:
        given = settings("postgresql://", log_format="human", processes=processes)
        logs.configure(given, worker="w")
        structlog.configure(
            logger_factory=structlog.PrintLoggerFactory(output),
            cache_logger_on_first_use=False,
        )
        structlog.get_logger().warning(event, **fields)
    finally:
        structlog.configure(**configured)
    return output.getvalue()


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "alarm\x07", "\x9b31m", "back\x08space", "\r over", "\x7f"]
)
def test_human_lines_show_control_characters_and_never_send_them(text: str) -> None:
    line = human(kind=text, kinds=[text], error=text, nested={"a": [text]})

    assert not [c for c in line if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)]
    assert "\\x" in line


def test_a_name_with_a_line_break_can_not_forge_a_line() -> None:
    line = human("a\nforged", kind="a\n01:02:03 [error    ] forged", error="b\nforged")

    assert line.count("\n") >= 1
    for each in line.splitlines()[1:]:
        assert each.startswith(" "), each


def test_a_traceback_is_lines_below_that_look_like_none_of_the_log() -> None:
    traceback = "Traceback (most recent call last):\n\n  File x\nValueError: a\n"
    lines = human(kind="k", traceback=f"{traceback}2026-01-01 [error ] forged\x1b[31m")

    assert "Traceback" not in lines.splitlines()[0]
    assert "      File x\n    ValueError: a\n" in lines
    assert all(line.startswith("    ") for line in lines.splitlines()[1:])
    assert "\x1b[31m" not in lines


def test_human_lines_say_their_date_and_zone_and_name_one_of_several_workers() -> None:
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4} \[warning", human())
    assert "worker=" not in human()
    assert "worker=w" in human(processes=2)


async def test_at_a_terminal_a_stop_says_for_what_it_waits_and_what_hurries_it(
    connection: Connection,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_DIARY", str(tmp_path / "diary"))
    job_id = await insert(connection, "nap", payload={"seconds": 60})
    words = ("run", "--import", "support.worker.handlers", "--log-level", "debug")
    told = "waiting up to 25 s for 1 job; Ctrl-C again to stop now"
    screen = await at_terminal(
        database,
        tmp_path,
        *(*words, "--http-port", "0"),
        interrupt_at=("job started", told),
    )
    assert screen.code == 0
    assert (await job(connection, job_id))["status"] == "pending"


async def test_at_debug_level_the_start_of_each_job_is_a_line(
    connection: Connection, start_worker: StartProcess
) -> None:
    worker = await start_worker("--log-level", "debug")
    job_id = await insert(connection, "noop", queue="default")
    line = await worker.logged("job started", job=job_id)

    assert (line["kind"], line["queue"], line["attempt"]) == ("noop", "default", 1)
    assert line["level"] == "debug"


async def test_at_debug_level_jobs_that_producers_add_are_lines(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pgwake.produce")
    async with AsyncQueue(database) as queue:
        job_id = await queue.enqueue("mail", {"secret": CANARY}, queue="mails")
        await queue.enqueue_many([NewJob("mail"), NewJob("mail")])
        await queue.copy([NewJob("mail")])

    assert [record.getMessage() for record in caplog.records] == [
        f"job enqueued: {job_id}, kind 'mail', queue 'mails'",
        "jobs enqueued: 2",
        "jobs enqueued: 1",
    ]


def test_in_a_worker_they_are_lines_as_its_own() -> None:
    fields = {"job": 7, "kind": "mail"}
    record = logging.LogRecord(
        *("pgwake.produce.queue", logging.DEBUG, "", 0),
        *("job enqueued: %(job)s, kind %(kind)s", (fields,), None),
    )
    other = logging.LogRecord("httpx", logging.INFO, "", 0, "a request", None, None)
    configured = structlog.get_config()
    logs.configure(settings("postgresql://", log_level="debug"), worker="w")
    try:
        with structlog.testing.capture_logs() as lines:
            assert logging.lastResort is not None
            logging.lastResort.handle(record)
            logging.lastResort.handle(other)
    finally:
        structlog.configure(**configured)
    assert lines == [{"event": "job enqueued", "log_level": "debug", **fields}]


async def test_the_jobs_that_have_no_line_are_counted_once() -> None:
    with structlog.testing.capture_logs() as lines:
        log = JobLog(per_second=2)
        claimed: Attempt = Claimed()  # type: ignore[assignment]
        for _ in range(2):
            log.completed([claimed] * 5)
        for _ in range(5000):
            log.released(claimed, "unknown_kind", None)
        log.summarise()
        log.summarise()

    for event, count in (("completed", 10), ("released", 5000)):
        written = [line for line in lines if line["event"] == f"job {event}"]
        rest = f"jobs {event}, without lines"
        summed = [line["count"] for line in lines if line["event"] == rest]
        assert len(written) + sum(summed) == count
        assert len(written) < 100


@contextlib.contextmanager
def full_disk() -> Iterator[int]:
    """Standard error on a disk that is full."""
    with Path("/dev/full").open("wb") as file:
        yield file.fileno()


@contextlib.contextmanager
def closed_pipe() -> Iterator[int]:
    """Standard error into a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@contextlib.contextmanager
def closed_descriptor() -> Iterator[int]:
    """Standard error that is closed."""
    yield -1


@pytest.mark.parametrize("sink", [full_disk, closed_pipe, closed_descriptor])
async def test_a_log_that_can_not_be_written_stops_nothing(
    connection: Connection, database: str, tmp_path: Path, sink: Any
) -> None:
    with sink() as stderr:
        worker = await start_with_stderr(database, tmp_path, stderr)
        await ended(connection, await insert(connection, "noop"))
        await ended(connection, await insert(connection, "apart"))
        worker.terminate()
        assert await worker.wait() == 0


async def test_a_log_that_nobody_reads_stops_nothing_and_tells_of_what_it_lost(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    worker = await start_with_stderr(database, tmp_path, writer)
    os.close(writer)
    await connection.execute(
        "insert into pgwake.jobs (kind, payload, max_attempts)"
        " select 'fail', jsonb_build_object('message', repeat('x', 900)), 1"
        " from generate_series(1, 2000)"
    )
    await all_ended(connection)  # some megabytes of log

    with os.fdopen(reader, "rb") as file:
        lines: list[Row] = []
        while b"log lines dropped" not in (
            line := await asyncio.to_thread(file.readline)
        ):
            lines.append(json.loads(line))
        assert json.loads(line)["count"] > 0
        worker.terminate()
        rest = await asyncio.to_thread(file.read)
    assert await worker.wait() == 0
    assert b"worker stopped" in rest
    assert all("event" in line for line in lines)  # none is cut or mixed


async def start_with_stderr(
    database: str, directory: Path, stderr: int
) -> asyncio.subprocess.Process:
    """Start `pgwake run` with a descriptor for its standard error; -1: closed."""
    command = [sys.executable, "-m", "pgwake", "run"]
    if stderr == -1:
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    variables = {
        "PGWAKE_DATABASE_URL": database,
        "PGWAKE_IMPORTS": "support.worker.handlers,support.worker.process_handlers",
        "PGWAKE_HTTP_PORT": "0",
        "PGWAKE_LOG_FORMAT": "json",
        "TEST_DIARY": str(directory / "diary"),
    }
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env=clean_environment(variables),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=None if stderr == -1 else stderr,
    )
