"""pgwake failed, retry, cancel and purge: by id, and in bulk only if it was meant."""

import json
from pathlib import Path
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import call, insert, job, job_in, pair, running, status
from support.worker.processes import Answer, Pgwake
from support.worker.terminals import at_terminal


async def failing(
    connection: Connection, count: int = 1, error: str = "full", **columns: Any
) -> list[int]:
    ids = []
    for _ in range(count):
        held = await running(connection, **columns)
        await call(connection, "fail_job", **pair(held), error=error, retryable=False)
        ids.append(held["id"])
    return ids


async def statuses(connection: Connection, ids: list[int]) -> list[str]:
    return [await status(connection, job_id) for job_id in ids]


async def test_dead_letters_are_shown_in_groups(
    pgwake: Pgwake, connection: Connection
) -> None:
    await failing(connection, 2, "disk 7 is \x1b[31mfull\nsecond line", kind="a")
    await failing(connection, 1, "no route", kind="b", queue="x")
    groups = (await pgwake("failed", "--json")).json
    assert sorted((g["kind"], g["job_count"]) for g in groups) == [("a", 2), ("b", 1)]

    (group,) = (await pgwake("failed", "--kind", "b", "--queue", "x", "--json")).json
    assert (group["message"], group["last_job_id"]) == ("no route", 3)

    answer = await pgwake("failed")
    assert len(answer.output.splitlines()) == 3
    assert group["fingerprint"] in answer.output
    assert "\x1b" not in answer.output
    assert "second line" not in answer.output

    answer = await pgwake("failed", "--fingerprint", "none")
    assert answer == Answer(0, "", "no matching dead letters\n")


async def test_jobs_are_retried_by_their_ids(
    pgwake: Pgwake, connection: Connection
) -> None:
    ids = [*await failing(connection, 2), await job_in(connection, "cancelled")]
    answer = await pgwake("retry", *map(str, ids))

    assert answer == Answer(0, "".join(f"{n} retried\n" for n in ids), "")
    assert await statuses(connection, ids) == ["pending"] * 3


async def test_an_id_that_can_not_be_retried_stops_no_other(
    pgwake: Pgwake, connection: Connection
) -> None:
    done = await job_in(connection, "completed")
    (dead,) = await failing(connection)
    answer = await pgwake("retry", "4711", str(done), str(dead))

    assert (answer.code, answer.output) == (1, f"{dead} retried\n")
    assert "PW001" in answer.errors
    assert f"job {done} is completed (PW003)" in answer.errors
    assert await status(connection, dead) == "pending"

    answer = await pgwake("retry", "4711", "--json")
    assert answer.code == 1
    (row,) = json.loads(answer.output)
    assert row["id"] == 4711
    assert "PW001" in row["error"]


async def test_what_matches_is_retried_after_a_yes(
    pgwake: Pgwake, connection: Connection
) -> None:
    dead = await failing(connection, 3, kind="a")
    other = await failing(connection, 1, kind="b")

    answer = await pgwake("retry", "--kind", "a", "--dry-run")
    assert answer.code == 0
    assert "3 would_retry" in answer.output
    answer = await pgwake("retry", "--kind", "a")
    assert (answer.code, answer.output) == (2, "")
    assert "--yes" in answer.errors
    assert set(await statuses(connection, dead)) == {"failed"}

    answer = await pgwake("retry", "--kind", "a", "--yes")
    assert answer == Answer(0, "3 retried\n", "")
    assert set(await statuses(connection, dead)) == {"pending"}
    assert await statuses(connection, other) == ["failed"]
    assert (await pgwake("retry", "--kind", "a", "--yes")).output == "none\n"


async def test_a_retry_is_spread_patched_and_bounded(
    pgwake: Pgwake, connection: Connection
) -> None:
    ids = await failing(connection, 3, payload={"to": "a", "cc": "b"})
    answer = await pgwake(
        *("retry", "--queue", "default", "--limit", "2", "--rate", "0.1"),
        *("--patch", '{"to": "z", "cc": null}', "--yes", "--json"),
    )
    rows = answer.json
    assert [row["job_id"] for row in rows] == ids[:2]
    assert rows[0]["payload"] == {"to": "z"}

    first, second = [await job(connection, job_id) for job_id in ids[:2]]
    assert first["payload"] == {"to": "z"}
    assert (second["run_at"] - first["run_at"]).total_seconds() == pytest.approx(10)
    assert await status(connection, ids[2]) == "failed"


async def test_a_conflict_is_told(pgwake: Pgwake, connection: Connection) -> None:
    (dead,) = await failing(connection, kind="a", unique_key="k")
    live = await insert(connection, "a", unique_key="k")
    answer = await pgwake("retry", "--kind", "a", "--yes")
    assert (answer.code, answer.output) == (0, "1 conflict\n")
    assert "a live job has its unique key" in answer.errors

    answer = await pgwake("retry", str(dead))
    assert answer.code == 1
    assert "PW005" in answer.errors
    assert await statuses(connection, [dead, live]) == ["failed", "pending"]


async def test_jobs_are_cancelled_by_their_ids(
    pgwake: Pgwake, connection: Connection
) -> None:
    held = await running(connection)
    pending = await insert(connection)
    answer = await pgwake("cancel", str(pending), str(held["id"]), "4711")

    assert answer.code == 1
    assert answer.output == f"{pending} cancelled\n{held['id']} cancel_requested\n"
    assert "PW001" in answer.errors
    assert await status(connection, pending) == "cancelled"


async def test_what_matches_is_cancelled_after_a_yes(
    pgwake: Pgwake, connection: Connection
) -> None:
    held = await running(connection, kind="a")
    ids = [await insert(connection, "a") for _ in range(2)]
    other = await insert(connection, "b")

    answer = await pgwake("cancel", "--kind", "a", "--dry-run", "--json")
    assert answer.json == {"cancelled": 2, "cancel_requested": 1}
    assert (await pgwake("cancel", "--kind", "a")).code == 2
    assert set(await statuses(connection, ids)) == {"pending"}

    answer = await pgwake("cancel", "--kind", "a", "--status", "pending", "--yes")
    assert answer == Answer(0, "2 cancelled\n", "")
    answer = await pgwake("cancel", "--kind", "a", "--yes")
    assert answer.output == "1 cancel_requested\n"
    assert (await job(connection, held["id"]))["cancel_requested_at"] is not None
    assert await status(connection, other) == "pending"


async def test_ended_jobs_are_deleted_after_a_yes(
    pgwake: Pgwake, connection: Connection
) -> None:
    dead = await failing(connection, 2, kind="a")
    done = await job_in(connection, "completed", kind="a")

    answer = await pgwake("purge", "--kind", "a", "--dry-run")
    assert answer == Answer(0, "2 would be deleted\n", "")
    assert (await pgwake("purge", "--kind", "a")).code == 2
    assert set(await statuses(connection, dead)) == {"failed"}

    answer = await pgwake(
        "purge", "--kind", "a", "--before", "2001-01-01T00:00Z", "--yes"
    )
    assert answer.output == "0 deleted\n"
    answer = await pgwake("purge", "--kind", "a", "--yes", "--json")
    assert answer.json == {"deleted": 2}
    answer = await pgwake("purge", "--status", "completed", "--kind", "a", "--yes")
    assert answer.output == "1 deleted\n"
    left = "select count(*) from pgwake.jobs where id = any ($1)"
    assert await connection.fetchval(left, [*dead, done]) == 0


@pytest.mark.parametrize(("typed", "after"), [("n", 2), ("y", 0)])
async def test_a_person_at_a_terminal_is_asked_and_told_how_many(
    database: str, connection: Connection, tmp_path: Path, typed: str, after: int
) -> None:
    await failing(connection, 2, kind="a")
    command = ("purge", "--kind", "a")
    screen = await at_terminal(database, tmp_path, *command, typed=f"{typed}\n")

    assert "2 failed jobs are deleted for good. Go on? [y/N]" in screen.text
    assert screen.code == (1 if after else 0)
    left = await connection.fetchval("select count(*) from pgwake.jobs_failed")
    assert left == after
