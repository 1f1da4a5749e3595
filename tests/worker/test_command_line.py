"""The command line: what scripts get to see, and how it ends."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from pgwake import __version__
from sql.helpers import insert, job
from support import Connection
from worker.helpers import clean_environment


class Answer(NamedTuple):
    code: int
    output: str
    errors: str


Pgwake: TypeAlias = Callable[..., Awaitable[Answer]]


@pytest.fixture
def pgwake(database: str, tmp_path: Path) -> Pgwake:
    """Run `python -m pgwake` on the test's database, to its end."""

    async def run(*arguments: str, stdin: str = "", **variables: str) -> Answer:
        environment = {"PGWAKE_DATABASE_URL": database, **variables}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pgwake"),
            *arguments,
            cwd=tmp_path,
            env=clean_environment(environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Answer(process.returncode, output.decode(), errors.decode())

    return run


async def test_the_version_is_that_of_the_package(pgwake: Pgwake) -> None:
    answer = await pgwake("version")
    assert (answer.code, answer.output) == (0, f"pgwake {__version__}, schema 1\n")

    answer = await pgwake("version", "--json")
    assert json.loads(answer.output) == {"pgwake": __version__, "schema": 1}


async def test_a_schema_is_installed_where_there_is_none(
    pgwake: Pgwake, connection: Connection
) -> None:
    await connection.execute("drop schema pgwake cascade")
    answer = await pgwake("init")
    assert (answer.code, answer.output) == (0, "pgwake schema 1 is installed\n")
    again = await pgwake("init")
    assert again.code == 0

    await insert(connection, "kept")
    assert (await pgwake("init")).code == 0
    assert (await job(connection, 1))["kind"] == "kept"


async def test_a_job_is_enqueued_and_its_id_printed(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("enqueue", "mail", '{"to": "a"}')

    assert answer == Answer(0, "1\n", "")
    row = await job(connection, 1)
    assert (row["kind"], row["payload"], row["queue"]) == (
        "mail",
        {"to": "a"},
        "default",
    )


async def test_a_job_takes_what_the_options_say(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake(
        *("enqueue", "mail", "--queue", "my queue", "--priority", "-5"),
        *("--run-at", "2127-01-31T08:00+01:00", "--max-attempts", "3"),
        *("--unique-key", "k", "--json"),
    )

    assert json.loads(answer.output) == {"id": 1}
    row = await job(connection, 1)
    assert (row["queue"], row["priority"], row["payload"]) == ("my queue", -5, {})
    assert row["run_at"] == datetime(2127, 1, 31, 7, tzinfo=UTC)
    assert (row["max_attempts"], row["unique_key"]) == (3, "k")


async def test_a_delay_counts_from_now(pgwake: Pgwake, connection: Connection) -> None:
    await pgwake("enqueue", "mail", "--delay", "90.5")
    row = await job(connection, 1)

    assert row["run_at"] - row["created_at"] == timedelta(seconds=90.5)


async def test_a_payload_may_come_from_standard_input(
    pgwake: Pgwake, connection: Connection
) -> None:
    text = json.dumps({"text": 'é "quoted" \N{PILE OF POO}' * 20_000})
    answer = await pgwake("enqueue", "mail", "-", stdin=text)

    assert answer.code == 0
    assert (await job(connection, 1))["payload"] == json.loads(text)


async def test_a_unique_key_answers_with_the_live_job(
    pgwake: Pgwake, connection: Connection
) -> None:
    first = await pgwake("enqueue", "mail", "--unique-key", "k")
    second = await pgwake("enqueue", "mail", "--unique-key", "k")
    assert second.output == first.output == "1\n"

    refused = await pgwake(
        *("enqueue", "mail", "--unique-key", "k", "--on-conflict", "raise")
    )
    assert refused.code == 1
    assert "PW005" in refused.errors
    assert await connection.fetchval("select count(*) from pgwake.jobs") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{"], "not JSON"),
        (["[1]"], "must be a JSON object"),
        (['{"a": NaN}'], "JSON"),
        (['{"a": 1e400}'], "JSON"),
        (['{"a": "\\u0000"}'], "u0000"),
        (['{"a": "\\ud800"}'], "surrogate"),
        (["{}", "--run-at", "2127-01-31T08:00"], "add an offset"),
        (["{}", "--run-at", "tomorrow"], "--run-at"),
        (["{}", "--delay", "nan"], "--delay"),
        (["{}", "--delay", "inf"], "--delay"),
        (["{}", "--delay", "1e18"], "--delay"),
        (["{}", "--delay", "-1"], "delay"),
        (["{}", "--delay", "1", "--run-at", "2127-01-31T08:00Z"], "both given"),
        (["{}", "--priority", "101"], "priority"),
        (["{}", "--priority", "99999999999"], "priority"),
        (["{}", "--max-attempts", "0"], "max_attempts"),
        (["{}", "--queue", ""], "jobs_queue_is_1_to_128_bytes"),
        (["{}", "--on-conflict", "ask"], "on_conflict"),
    ],
)
async def test_what_can_not_be_meant_is_refused_with_exit_code_1(
    pgwake: Pgwake, connection: Connection, arguments: list[str], said: str
) -> None:
    answer = await pgwake("enqueue", "mail", *arguments)

    assert (answer.code, answer.output) == (1, "")
    assert said in answer.errors
    assert "Traceback" not in answer.errors
    assert await connection.fetchval("select count(*) from pgwake.jobs") == 0


@pytest.mark.parametrize(
    "arguments",
    [["enqueue"], ["nothing"], ["show", "one"], ["enqueue", "m", "--delay", "soon"]],
)
async def test_wrong_usage_has_exit_code_2(
    pgwake: Pgwake, arguments: list[str]
) -> None:
    answer = await pgwake(*arguments)

    assert (answer.code, answer.output) == (2, "")
    assert "Traceback" not in answer.errors


async def test_a_job_is_shown_wherever_it_lies(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection, "mail", payload={"to": "a"})
    shown = json.loads((await pgwake("show", "1", "--json")).output)
    assert (shown["id"], shown["status"], shown["payload"]) == (
        1,
        "pending",
        {"to": "a"},
    )

    await connection.execute("select pgwake.cancel_job(1)")
    shown = json.loads((await pgwake("show", "1")).output)
    assert shown["status"] == "cancelled"


async def test_a_job_that_is_not_there_is_told_with_its_code(pgwake: Pgwake) -> None:
    answer = await pgwake("show", "4711")

    assert (answer.code, answer.output) == (1, "")
    assert "4711" in answer.errors
    assert "PW001" in answer.errors


async def test_the_statistics_can_be_read_by_scripts(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection, "mail", queue="mail")
    await insert(connection, "mail")
    rows = json.loads((await pgwake("stats", "--json")).output)
    assert {row["queue"]: row["pending_count"] for row in rows} == {
        "default": 1,
        "mail": 1,
    }
    assert all(row["oldest_pending_age"] >= 0 for row in rows)

    (row,) = json.loads((await pgwake("stats", "mail", "--json")).output)
    assert (row["queue"], row["enqueued_total"]) == ("mail", 1)


async def test_the_statistics_of_no_queue_are_an_empty_list(pgwake: Pgwake) -> None:
    assert json.loads((await pgwake("stats", "--json")).output) == []


async def test_a_table_for_people_shows_names_and_drives_no_terminal(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection, "mail", queue="[red]a\x1b[31m")
    answer = await pgwake("stats", COLUMNS="200")

    assert "pending" in answer.output
    assert "[red]a" in answer.output
    assert "\x1b[31m" not in answer.output


async def test_a_database_that_can_not_be_reached_is_told_in_one_line(
    pgwake: Pgwake,
) -> None:
    nobody = "postgresql://me:very-secret@127.0.0.1:1/nowhere"
    answer = await pgwake("stats", PGWAKE_DATABASE_URL=nobody)

    assert answer.code == 1
    assert answer.errors.count("\n") == 1
    assert "the database can't be reached" in answer.errors
    assert "secret" not in answer.errors


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        (["stats"], {"PGWAKE_DATABASE_URL": ""}, "PGWAKE_DATABASE_URL"),
        (["stats"], {"PGWAKE_DATABASE_URL": "mysql://h/d"}, "PGWAKE_DATABASE_URL"),
        (["stats"], {"PGWAKE_QUERY_TIMEOUT": "0"}, "PGWAKE_QUERY_TIMEOUT"),
        (["run"], {}, "--import MODULE"),
        (["run", "--import", "no_such_module"], {}, "no_such_module"),
        (["run", "--import", "worker.handlers", "--lease", "0"], {}, "--lease"),
        (["run", "--import", "worker.handlers", "--queue", "a:0"], {}, "--queue"),
        (["run", "--import", "json"], {}, "no handlers"),
    ],
)
async def test_settings_that_can_not_work_have_exit_code_78(
    pgwake: Pgwake, arguments: list[str], variables: dict[str, str], named: str
) -> None:
    answer = await pgwake(*arguments, **{"PGWAKE_HTTP_PORT": "0", **variables})

    assert answer.code == 78, answer
    assert named in answer.errors
    assert "Traceback" not in answer.errors


async def test_a_message_is_one_line_however_long(pgwake: Pgwake) -> None:
    answer = await pgwake("stats", PGWAKE_DATABASE_URL="")

    assert answer.errors.startswith("pgwake: no database: set PGWAKE_DATABASE_URL")
    assert answer.errors.count("\n") == 1


async def test_a_database_without_the_schema_ends_a_run_with_exit_code_78(
    pgwake: Pgwake, connection: Connection
) -> None:
    await connection.execute("drop schema pgwake cascade")
    answer = await pgwake(
        *("run", "--import", "worker.handlers", "--http-port", "0"),
        TEST_DIARY="unused",
    )

    assert answer.code == 78
    assert "pgwake init" in answer.errors


async def test_the_password_is_in_no_ones_list_of_processes(
    database: str, start_worker: object
) -> None:
    from worker.helpers import StartProcess  # noqa: PLC0415

    start: StartProcess = start_worker  # type: ignore[assignment]
    worker = await start()
    assert "owner@" in database
    for pid in (worker.pid, *worker.children):
        assert "owner@" not in Path(f"/proc/{pid}/cmdline").read_text()
