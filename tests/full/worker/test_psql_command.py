"""pgwake psql: psql on the database that the settings name."""

from pathlib import Path

import pytest

from pgwake.cli.psql import split_password
from support import Connection
from support.sql.helpers import insert
from support.worker.processes import Pgwake
from support.worker.terminals import at_terminal


async def test_psql_is_opened_on_the_database(
    pgwake_program: Pgwake, connection: Connection
) -> None:
    await insert(connection, "mail")
    answer = await pgwake_program(
        "psql", "--", "-Atc", "select kind, current_database() from pgwake.jobs"
    )
    database = await connection.fetchval("select current_database()")
    assert (answer.code, answer.output) == (0, f"mail|{database}\n")


async def test_it_is_an_interactive_one(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    await insert(connection, "mail")
    shown = await at_terminal(
        database, tmp_path, "psql", typed="\\pset pager off\nselect 6 * 7;\n\\q\n"
    )
    assert shown.code == 0
    assert "42" in shown.text


async def test_where_it_is_not_installed_it_is_said_how_to_install_it(
    pgwake_program: Pgwake, tmp_path: Path
) -> None:
    answer = await pgwake_program("psql", PATH=str(tmp_path))

    assert answer.code == 1
    assert "apt install postgresql-client" in answer.errors


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("postgresql://a:b%40c@h:1/d", ("postgresql://a@h:1/d", "b@c")),
        ("postgresql://a@h/d?sslmode=require", None),
        ("postgresql:///d?host=/run", None),
        (
            "postgresql:///d?host=/run&password=b%40c&options=-c%20a%3Db",
            ("postgresql:///d?host=%2Frun&options=-c%20a%3Db", "b@c"),
        ),
        ("postgresql://a:b@h/d?password=c", ("postgresql://a@h/d", "b")),
        ("postgresql://a:@h1:1,[::1]:2/d", ("postgresql://a@h1:1,[::1]:2/d", "")),
    ],
)
def test_the_password_is_no_word_that_others_can_see(
    url: str, parts: tuple[str, str] | None
) -> None:
    assert split_password(url) == (parts or (url, None))
