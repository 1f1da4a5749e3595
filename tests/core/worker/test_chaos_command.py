"""`pgwake chaos` on somebody's database: short runs through the command line."""

import asyncio
import json
from pathlib import Path

import pytest

from support import Connect, Connection, free_port, wait_for
from support.sql.helpers import insert
from support.worker.processes import Pgwake
from support.worker.scratch import census

SHORT = ("--hold", "1", "--rate", "40", "--processes", "1", "--seed", "1")
pytestmark = pytest.mark.timeout(240)  # workers start, on a busy machine, too


async def test_faults_close_their_account_and_leave_others_and_no_trace_behind(
    connection: Connection, pgwake: Pgwake
) -> None:
    other = await insert(connection, "others", queue="theirs")
    before = await census(connection)

    answer = await pgwake(
        *("chaos", "--faults", "terminate,cut", "--yes", "--json"), *SHORT
    )

    assert answer.code == 0, answer.errors
    told = json.loads(answer.output)
    assert told["closes"]
    assert [fault["fault"] for fault in told["faults"]] == ["terminate", "cut"]
    assert told["faults"][0]["victims"], "or it has ended no session"
    account = told["account"]
    assert account["enqueued"] == account["completed"] + account["failed_on_purpose"]
    assert account["lost"] == account["doubled_effects"] == 0
    assert "nothing: only its own workers' sessions are ended" in answer.errors
    assert await connection.fetchval("select 1") == 1, "this session was not its own"
    status = await connection.fetchval(
        "select status from pgwake.jobs where id = $1", other
    )
    assert status == "pending"
    assert await census(connection) == before


async def test_a_job_that_is_lost_fails_the_run_and_is_left_to_be_looked_at(
    connection: Connection, pgwake: Pgwake, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    running = asyncio.ensure_future(
        pgwake(
            *("chaos", "--faults", "snapshot", "--yes", "--keep", str(folder)), *SHORT
        )
    )

    async def is_one_gone() -> bool:
        return bool(
            await connection.fetchval(
                "delete from pgwake.jobs"
                " where status = 'completed' and payload ->> 'serial' = '7'"
                " returning true"
            )
        )

    await wait_for(is_one_gone, 150)
    answer = await running

    assert answer.code == 1, answer
    assert "acknowledged, and without a row (serials): 1 (7)" in answer.output
    assert f"Kept: the workers' logs, in {folder}" in answer.output
    assert (folder / "workers-1.log").exists()
    queue = await connection.fetchval("select queue from pgwake.jobs limit 1")
    assert f"pgwake purge --queue {queue} --yes" in answer.output


async def test_the_faults_are_listed_with_what_they_do_to_others(
    pgwake: Pgwake,
) -> None:
    answer = await pgwake("chaos", "--list", "--json")

    rows = json.loads(answer.output)
    assert len(rows) == 11
    assert all(row["what it does"] and row["to others"] for row in rows)


WRONG = [
    ("--faults kill,flood --yes", 2, "there is no 'flood', there are kill, stop, "),
    ("--rate 0 --yes", 2, "--rate"),
    ("--faults restart-fast --yes", 78, "restart-fast: say how to restart the server"),
    ("--faults kill", 2, "Add --yes"),
    ("--keep . --yes", 2, "there is something in it, name a new folder"),
]


@pytest.mark.parametrize(("words", "code", "told"), WRONG, ids=[w for w, _, _ in WRONG])
async def test_what_can_not_be_meant_is_refused_in_one_line(
    pgwake: Pgwake, tmp_path: Path, words: str, code: int, told: str
) -> None:
    (tmp_path / "something").touch()

    answer = await pgwake("chaos", *words.split())

    assert (answer.code, answer.output.count("Traceback")) == (code, 0), answer
    assert told in answer.output + answer.errors


async def test_a_database_that_is_not_there_is_told_in_one_line(pgwake: Pgwake) -> None:
    nowhere = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"

    answer = await pgwake("chaos", "--yes", "--database-url", nowhere)

    assert answer.code == 1
    assert "the database can't be reached" in answer.errors
    assert "Traceback" not in answer.errors


async def test_a_production_database_is_left_alone(
    connection: Connection, pgwake: Pgwake
) -> None:
    await connection.execute("select pgwake.adopt('production')")

    answer = await pgwake("chaos", "--yes")

    assert answer.code == 78
    assert "--in-production" in answer.errors


async def test_who_may_not_make_a_schema_is_told_what_to_grant(
    connection: Connection, connect: Connect, admin_url: str, pgwake: Pgwake
) -> None:
    admin = await connect(admin_url)
    name = await connection.fetchval("select current_database()")
    await admin.execute(
        f"alter database {name} owner to postgres;"
        f"revoke create on database {name} from pgwake_owner"
    )

    answer = await pgwake("chaos", "--faults", "kill", "--yes")

    assert answer.code == 78, answer
    assert "grant the role create on the database" in answer.errors
