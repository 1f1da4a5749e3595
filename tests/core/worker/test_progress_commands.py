"""How far running jobs are, as the commands show it."""

import json

import pytest

from pgwake.cli.shared.tables import progress_cell
from support import Connection
from support.sql.helpers import running
from support.worker.processes import Pgwake


async def with_progress(connection: Connection, progress: object) -> int:
    held = await running(connection, kind="import")
    await connection.execute(
        "select pgwake.set_progress($1, $2, $3)", held["id"], held["lease_id"], progress
    )
    job_id: int = held["id"]
    return job_id


async def test_the_commands_show_it(pgwake: Pgwake, connection: Connection) -> None:
    job_id = await with_progress(connection, {"share": 0.4, "step": "copy " * 20})

    shown = json.loads((await pgwake("show", str(job_id), "--json")).output)
    assert shown["progress"]["share"] == 0.4
    (listed,) = json.loads((await pgwake("list", "--json")).output)
    assert listed["progress"] == shown["progress"]
    cut = '{"step":"copy copy copy copy copy copy …'
    for command in ("list", "stats"):
        answer = await pgwake(command)
        assert cut in answer.output, answer
    answer = await pgwake("explain", str(job_id))
    assert 'It reports: {"step": "copy copy' in answer.output


async def test_a_share_of_a_whole_is_a_bar(
    pgwake: Pgwake, connection: Connection
) -> None:
    await with_progress(connection, {"done": 400, "of": 1000})
    for command in ("list", "stats"):
        assert "████░░░░░░ 400 of 1,000" in (await pgwake(command)).output


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        ({"done": 0, "of": 3}, "░░░░░░░░░░ 0 of 3"),
        ({"done": 9, "of": 3}, "██████████ 9 of 3"),
        ({"done": 0, "of": 0}, '{"done":0,"of":0}'),
        ({"done": "a", "of": 3}, '{"done":"a","of":3}'),
        (0.25, "0.25"),
    ],
)
def test_what_is_no_share_of_a_whole_is_shown_as_it_is(
    progress: object, shown: str
) -> None:
    assert progress_cell(progress) == shown


async def test_without_any_there_is_nothing_of_it_to_see(
    pgwake: Pgwake, connection: Connection
) -> None:
    held = await running(connection, kind="import")

    assert "progress" not in (await pgwake("list")).output
    answer = await pgwake("stats")
    assert "import" not in answer.output
    assert "reports" not in (await pgwake("explain", str(held["id"]))).output


async def test_the_statistics_show_ten_of_their_queue(
    pgwake: Pgwake, connection: Connection
) -> None:
    for n in range(12):
        await with_progress(connection, n)
    other = await running(connection, kind="other", queue="other")
    await connection.execute(
        "select pgwake.set_progress($1, $2, $3)", other["id"], other["lease_id"], 1
    )

    assert (await pgwake("stats")).output.count("import") == 10
    of_other = (await pgwake("stats", "other")).output
    assert (of_other.count("import"), "other  other" in of_other) == (0, True)
