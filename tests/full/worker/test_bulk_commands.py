"""retry, cancel and purge of more jobs than one statement takes."""

import json
from pathlib import Path
from typing import Any

import pytest

from pgwake.cli.shared import batches as cli_bulk
from support import Connection
from support.worker.processes import Answer, Pgwake
from support.worker.terminals import at_terminal

COUNT = 2 * cli_bulk.BATCH + 500


async def dead(connection: Connection, count: int = COUNT, **columns: Any) -> None:
    names = "".join(f", {name}" for name in columns)
    values = "".join(f", '{value}'" for value in columns.values())
    await connection.execute(
        f"insert into pgwake.jobs (kind, status, finished_at, fingerprint{names})"
        f" select 'a', 'failed', pgwake.now() + g * interval '1 ms', 'f'{values}"
        f" from generate_series(1, {count}) as g"
    )


async def counts(connection: Connection) -> dict[str, int]:
    rows = await connection.fetch("select status, count(*) from pgwake.jobs group by 1")
    return {row[0]: row[1] for row in rows}


async def test_a_retry_takes_a_batch_after_the_other(
    pgwake: Pgwake, connection: Connection
) -> None:
    await dead(connection)
    answer = await pgwake("retry", "--kind", "a", "--limit", "9999", "--yes")
    assert answer == Answer(0, f"{COUNT} retried\n", "")
    assert await counts(connection) == {"pending": COUNT}


async def test_conflicts_at_the_head_hide_no_others(
    pgwake: Pgwake, connection: Connection
) -> None:
    stuck = cli_bulk.BATCH + 1
    await connection.execute(
        "insert into pgwake.jobs (kind, unique_key) values ('a', 'k')"
    )
    await dead(connection, stuck, unique_key="k")
    await dead(connection, stuck)
    answer = await pgwake("retry", "--kind", "a", "--limit", "9999", "--yes", "--json")
    assert answer.code == 0
    outcomes = [row["outcome"] for row in json.loads(answer.output)]
    assert (outcomes.count("conflict"), outcomes.count("retried")) == (stuck, stuck)
    assert await counts(connection) == {"failed": stuck, "pending": stuck + 1}


async def test_a_limit_holds_over_the_batches(
    pgwake: Pgwake, connection: Connection
) -> None:
    await dead(connection)
    some = cli_bulk.BATCH + 300
    answer = await pgwake("retry", "--kind", "a", "--limit", str(some), "--yes")
    assert answer.output == f"{some} retried\n"
    assert "there may be more" in answer.errors

    answer = await pgwake("cancel", "--kind", "a", "--limit", str(some - 1), "--yes")
    assert answer.output == f"{some - 1} cancelled\n"
    assert "there may be more" in answer.errors

    answer = await pgwake("purge", "--kind", "a", "--limit", "1100", "--yes")
    assert answer.output == "1100 deleted\n"
    assert await counts(connection) == {
        "failed": COUNT - some - 1100,
        "pending": 1,
        "cancelled": some - 1,
    }


async def test_all_are_cancelled_and_deleted(
    pgwake: Pgwake, connection: Connection
) -> None:
    await connection.execute(
        f"insert into pgwake.jobs (kind) select 'a' from generate_series(1, {COUNT})"
    )
    answer = await pgwake("cancel", "--kind", "a", "--yes", "--json")
    assert json.loads(answer.output) == {"cancelled": COUNT}
    arguments = ("purge", "--status", "cancelled", "--kind", "a")
    answer = await pgwake(*arguments, "--dry-run")
    assert answer.output == f"{COUNT} would be deleted\n"
    answer = await pgwake(*arguments, "--yes")
    assert answer.output == f"{COUNT} deleted\n"
    assert await counts(connection) == {}


async def test_a_patch_is_refused_as_a_whole(
    pgwake: Pgwake, connection: Connection
) -> None:
    await dead(connection, cli_bulk.BATCH)
    await dead(connection, 1, payload=json.dumps({"x": "y" * 1_048_000}))
    answer = await pgwake(
        *("retry", "--kind", "a", "--patch", json.dumps({"z": "z" * 1000})),
        *("--limit", "5000", "--yes"),
    )
    assert answer.code == 1
    assert "nothing has been changed" in answer.errors
    assert await counts(connection) == {"failed": cli_bulk.BATCH + 1}

    answer = await pgwake("retry", "--kind", "a", "--rate", "1", "--limit", "100001")
    assert answer.code == 2
    assert "at most 100000" in answer.errors


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["purge", "--kind", "a"], "deleting"),
        (["retry", "--kind", "a", "--limit", "5000"], "retrying"),
        (["cancel", "--kind", "b"], "cancelling"),
    ],
    ids=["purge", "retry", "cancel"],
)
async def test_a_terminal_shows_how_far_it_is_and_json_does_not(
    database: str,
    connection: Connection,
    tmp_path: Path,
    command: list[str],
    shown: str,
) -> None:
    async def add() -> None:
        await dead(connection)
        await connection.execute(
            "insert into pgwake.jobs (kind)"
            f" select 'b' from generate_series(1, {COUNT})"
        )

    await add()
    screen = await at_terminal(database, tmp_path, *command, typed="y\n")
    assert f"{COUNT} " in screen.text.partition("Go on?")[0]
    assert shown in screen.text
    assert f"/{COUNT}" in screen.text
    assert screen.code == 0

    await add()
    screen = await at_terminal(database, tmp_path, *command, "--yes", "--json")
    assert shown not in screen.text
    assert screen.code == 0


async def test_ctrl_c_tells_what_was_done(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    await dead(connection)
    # The second batch waits for a lock, so that it is under way when Ctrl-C comes.
    await connection.execute("""
        create function public.wait() returns trigger language plpgsql as $$
        begin
          if (select count(*) from pgwake.jobs_failed) < 1500 then
            perform pg_advisory_xact_lock(1500);
          end if;
          return null;
        end $$;
        create trigger wait after delete on pgwake.jobs_failed
        execute function public.wait()
    """)
    await connection.execute("select pg_advisory_lock(1500)")
    screen = await at_terminal(
        database,
        tmp_path,
        *("purge", "--kind", "a", "--yes"),
        interrupt_at=f"{cli_bulk.BATCH}/{COUNT}",
    )
    assert f"stopped: {cli_bulk.BATCH} were deleted" in screen.text
    assert "Traceback" not in screen.text
    assert screen.code == 130
