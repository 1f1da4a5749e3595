"""The command line: what scripts get to see, and how it ends."""

import json
import re

import pytest

from pgwake import __version__
from pgwake.cli.main import COMMANDS
from pgwake.version import SCHEMA_VERSION
from support import Connection
from support.sql import release
from support.sql.helpers import insert, job
from support.sql.next_schema import NEXT_VERSION, next_schema
from support.worker.processes import Answer, Pgwake

__all__ = ["next_schema"]


async def test_the_version_is_that_of_the_package(pgwake: Pgwake) -> None:
    told = f"pgwake {__version__}, schema {SCHEMA_VERSION}\n"
    for word in ("version", "--version"):
        answer = await pgwake(word)
        assert (answer.code, answer.output) == (0, told)

    answer = await pgwake("version", "--json")
    assert json.loads(answer.output) == {
        "pgwake": __version__,
        "schema": SCHEMA_VERSION,
    }


async def test_the_help_names_every_command(pgwake: Pgwake) -> None:
    answer = await pgwake("--help")

    assert answer.code == 0
    told = re.findall(r"^│ ([\w-]+) ", answer.output, re.MULTILINE)
    assert COMMANDS.keys() <= set(told)


@pytest.mark.parametrize("words", [["run"], ["serve"], ["schedule", "add"]])
async def test_a_command_tells_the_variables_and_defaults_of_its_options(
    typed: Pgwake, words: list[str]
) -> None:
    answer = await typed(*words, "--help", COLUMNS="80")
    told = " ".join(re.sub(r"[│╭╮╰╯─]", " ", answer.output).split())

    assert "[env: PGWAKE_DATABASE_URL]" in told
    if words != ["schedule", "add"]:
        assert "[env: PGWAKE_LOG_LEVEL; default: info]" in told
        assert "; default: 9808]" in told
    if words == ["run"]:
        assert (
            "How long a stop waits for jobs. [env: PGWAKE_GRACE; default: 25]" in told
        )
    if words == ["serve"]:
        assert "[env: PGWAKE_HTTP_HOST; default: 127.0.0.1]" in told


async def test_every_option_and_argument_has_a_help_that_can_be_read(
    typed: Pgwake,
) -> None:
    schedule = [f"schedule {name}" for name in ("list", "add", "remove", "next")]
    for command in [*COMMANDS.keys() - {"schedule"}, *schedule]:
        answer = await typed(*command.split(), "--help", COLUMNS="200")
        assert answer.code == 0
        assert "[[" not in answer.output, command
        assert "922337" not in answer.output, command
        for line in answer.output.splitlines():
            if line.startswith("│"):
                columns = re.split(r" {2,}", line.strip("│ "))
                assert columns[-1].endswith((".", "]", "+01:00", "…")), line


async def test_a_schema_is_installed_where_there_is_none(
    pgwake: Pgwake, connection: Connection
) -> None:
    await connection.execute("drop schema pgwake cascade")
    answer = await pgwake("init")
    installed = f"pgwake schema {SCHEMA_VERSION} is installed"
    assert (answer.code, answer.output) == (0, f"{installed}\n")
    assert "In your project: pip install pgwake" in answer.errors
    again = await pgwake("init")
    assert again == Answer(0, f"{installed}, as before\n", "")

    await insert(connection, "kept")
    assert (await pgwake("init")).code == 0
    assert (await job(connection, 1))["kind"] == "kept"


@pytest.mark.usefixtures("next_schema")
async def test_an_upgrade_says_from_where_to_where_by_what(
    pgwake: Pgwake, connection: Connection
) -> None:
    await connection.execute("drop schema pgwake cascade")
    await connection.execute(release.script(1))
    answer = await pgwake("init")
    done = ", ".join(map(str, range(2, NEXT_VERSION + 1)))
    told = f"pgwake schema {NEXT_VERSION} is installed: it was 1, migrated by {done}\n"
    assert (answer.code, answer.output) == (0, told)


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
    assert "`pgwake doctor`" in answer.errors
    assert "secret" not in answer.errors
