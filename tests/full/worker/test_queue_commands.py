"""pgwake queues and list, and what every command does with what can't be meant."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from support import Connection
from support.sql.helpers import call, insert, job_in, pair, rows, running, set_queue
from support.worker.helpers import insert_some
from support.worker.processes import Answer, Pgwake, clean_environment
from support.worker.terminals import at_terminal


async def test_queues_are_shown_with_their_policy_and_what_is_in_them(
    pgwake: Pgwake, connection: Connection
) -> None:
    assert await pgwake("queues") == Answer(0, "", "no queue has jobs or policy\n")
    assert (await pgwake("queues", "--json")).json == []

    await job_in(connection, "failed", queue="plain")
    await insert(connection, queue="plain")
    await set_queue(connection, "empty", max_running=3, rate_limit=0.5, max_attempts=7)
    await set_queue(connection, "short", keep_order=True)
    await connection.execute("select pgwake.pause_queue('plain')")
    await connection.execute("select pgwake.pause_queue('short', '2199-01-01Z')")

    shown = (await pgwake("queues", "--json")).json
    empty, plain, short = shown
    assert [row["name"] for row in shown] == ["empty", "plain", "short"]
    assert (empty["max_running"], empty["rate_limit"]) == (3, 0.5)
    assert (empty["is_paused"], empty["paused_until"]) == (False, None)
    assert empty["policy"] == {"max_attempts": 7}
    assert (plain["is_paused"], plain["paused_until"]) == (True, "infinity")
    assert (plain["pending_count"], plain["failed_count"]) == (1, 1)
    assert plain["policy"] == {}
    assert short["paused_until"].startswith("2199-01-01")
    assert short["policy"] == {"keep_order": True}

    answer = await pgwake("queues")
    assert len(answer.output.splitlines()) == 4
    assert "until resumed" in answer.output
    assert '{"max_attempts":7}' in answer.output


async def test_jobs_are_found_by_their_keys_their_worker_and_their_payload(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection, "a", unique_key="u", payload={"order": {"id": 7}, "x": 1})
    await insert(connection, "a", concurrency_key="c")
    await insert(connection, "b", payload={"order": {"id": 8}})
    await rows(connection, "claim_next_job", worker="w1")

    async def found(*filters: str) -> list[int]:
        return [row["id"] for row in (await pgwake("list", *filters, "--json")).json]

    assert await found("--unique-key", "u") == [1]
    assert await found("--concurrency-key", "c") == [2]
    assert await found("--worker", "w1") == [1]
    assert await found("--payload", '{"order": {"id": 7}}') == [1]
    assert await found("--payload", '{"order": {}}') == [3, 1]
    assert await found("--payload", "{}", "--kind", "b") == [3]
    answer = await pgwake("list", "--payload", "[7]")
    assert answer.code == 1
    assert "--payload must be a JSON object" in answer.errors


@pytest.mark.parametrize("command", ["list", "stats", "queues"])
async def test_on_a_narrow_terminal_each_value_has_a_line(
    database: str, connection: Connection, tmp_path: Path, command: str
) -> None:
    await insert(connection, "a" * 50, queue="q" * 50)
    narrow = await at_terminal(database, tmp_path, command, columns=40)
    lines = narrow.text.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert narrow.code == 0
    assert "q" * 40 in lines
    assert max(map(len, lines)) <= 40
    wide = await at_terminal(database, tmp_path, command, columns=250)
    assert len(wide.text.strip().splitlines()) == 2


@pytest.mark.parametrize("command", ["stats", "failed", "workers", "list"])
async def test_at_80_columns_a_row_is_a_line_without_what_matters_least(
    database: str, connection: Connection, tmp_path: Path, command: str
) -> None:
    held = await running(connection, kind="send_email", queue="emails")
    error = "ConnectionError: [Errno 111] Connect call failed ('127.0.0.1', 5432)"
    await call(connection, "fail_job", **pair(held), error=error, retryable=False)
    for n in range(2):
        await connection.execute(
            "select pgwake.report_worker($1, 'web-7f8b9c-abcde', 1, $2, '{noop}', '1')",
            f"web-7f8b9c-abcde:123{n}:0f736187",
            ["default", "emails", "imports-from-partners"],
        )
    shown = await at_terminal(database, tmp_path, command, columns=80)
    lines = re.sub(r"\x1b\[\d*m", "", shown.text).split("\r\n")
    header, *body = [line for line in lines if line]

    assert max(map(len, lines)) <= 80
    assert len(body) == (3 if command == "workers" else 1)
    match command:
        case "stats":
            assert re.split(r" {2,}", header)[-3:] == ["oldest", "queued ms", "run ms"]
        case "failed":
            assert "ConnectionError: [Errno 111]" in body[0]
            assert "\N{HORIZONTAL ELLIPSIS}" in body[0]
        case "workers":
            assert body[2] == "2 live processes on 1 host: 0 jobs running"
        case _:
            assert {"id", "queue", "kind", "status", "attempt"} <= set(header.split())


async def test_several_queues_have_a_total_and_none_is_said(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("stats")
    assert answer.output == "no queues yet: no job has been enqueued\n"
    answer = await pgwake("stats", "x")
    assert answer.output == "queue x is not there: it has never had a job\n"

    await insert(connection)
    assert "total" not in (await pgwake("stats")).output
    await insert_some(connection, "a", 1500)
    await insert(connection, queue="b")
    last = (await pgwake("stats")).output.splitlines()[-1]
    assert last.split()[:3] == ["total", "1,502", "0"]

    await connection.execute(
        "insert into pgwake.jobs (queue, kind, run_at)"
        " select 'a', 'noop', now() + n % 2 * interval '1 h'"
        " from generate_series(1, 20002) as n"
    )
    a, b, *_ = (await pgwake("stats")).output.splitlines()[1:]
    assert (a.count("≈"), b.count("≈")) == (2, 0)


@pytest.mark.parametrize(
    ("flags", "start"), [(["--json"], b'[{"queue":"default"'), ([], b"queue")]
)
async def test_statistics_are_watched_through_a_pipe_too(
    database: str,
    connection: Connection,
    tmp_path: Path,
    flags: list[str],
    start: bytes,
) -> None:
    await insert(connection)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pgwake", "stats", "--watch", *flags),
        cwd=tmp_path,
        env=clean_environment({"PGWAKE_DATABASE_URL": database}),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    seen = 0
    while seen < 2:
        seen += (await process.stdout.readline()).startswith(start)
    process.terminate()
    await process.wait()


@pytest.mark.parametrize("flag", ["--json", "--limit=1000"])
async def test_a_reader_that_goes_away_is_no_fault_of_the_database(
    database: str, connection: Connection, tmp_path: Path, flag: str
) -> None:
    await insert_some(connection, "a" * 128, 1000)  # more than a pipe holds
    process = await asyncio.create_subprocess_shell(
        f"{sys.executable} -m pgwake list --limit 1000 {flag} | head -c 10",
        cwd=tmp_path,
        env=clean_environment({"PGWAKE_DATABASE_URL": database}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert len(output) == 10
    assert b"database" not in errors
    assert b"Traceback" not in errors
