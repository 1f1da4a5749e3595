"""The runbook: whoever is woken at night can type what it says."""

import re

import psycopg
import pytest

from pgwake.cli.main import application
from support import CHECKOUT, Connection

# What stands for something in the runbook, and something for it.
PLACES = {
    "QUEUE": "default",
    "KIND": "noop",
    "NAME": "nightly",
    "STEP": "fold",
    "PID": "0",
    "ID": "1",
}


def typed(word: str) -> list[str]:
    """The runbook's commands that begin with a word, their places filled."""
    text = (CHECKOUT / "deploy" / "RUNBOOK.md").read_text()
    _, _, alerts = text.partition("\n## Alerts\n")
    found = re.findall(rf"`({word} [^`]+)`", " ".join(alerts.split()))
    for place, value in PLACES.items():
        found = [re.sub(rf"\b{place}\b", value, command) for command in found]
    return sorted(set(found))


async def test_every_query_of_the_runbook_runs(connection: Connection) -> None:
    queries = typed("select")
    assert len(queries) > 8
    for query in queries:
        await connection.execute(query)


@pytest.mark.usefixtures("role_url")  # the roles are there: init --roles makes none
def test_every_command_of_the_runbook_runs(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGWAKE_DATABASE_URL", database)
    with psycopg.connect(database) as connection:
        connection.execute("insert into pgwake.jobs (kind) values ('noop')")
        connection.execute("select pgwake.schedule('nightly', '0 2 * * *', 'noop')")
    commands = [one for one in typed("pgwake") if one != "pgwake schedule add"]
    assert len(commands) > 10
    for command in commands:
        # In this process: a dozen interpreters take their time to start.
        assert not application()(command.split()[1:], standalone_mode=False), command
