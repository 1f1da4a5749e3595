"""pgwake update and run-now: by id, and in bulk only if it was meant."""

import json
from datetime import UTC, datetime

from pgwake.cli.shared import batches
from support import Connection
from support.sql.helpers import claim, insert, job, job_in, running
from support.worker.processes import Answer, Pgwake

LATER = datetime(2099, 1, 1, tzinfo=UTC)


async def test_jobs_are_changed_by_their_ids_and_what_is_left_says_why(
    pgwake: Pgwake, connection: Connection
) -> None:
    held = await running(connection)
    failed = await job_in(connection, "failed")
    waits = await insert(connection, payload={"to": "a", "n": 1}, max_attempts=3)
    command = [
        *("update", str(waits), "--priority", "7", "--max-attempts", "none"),
        *("--patch", '{"to": null}', "--metadata", '{"by": "me"}'),
        *("--to-queue", "other", "--run-at", "2099-01-01T00:00Z"),
        *("--expires-at", "2099-01-01T00:00Z"),
    ]

    answer = await pgwake(*command, "--dry-run")
    assert answer == Answer(0, f"{waits} would be updated\n", "")
    assert (await job(connection, waits))["priority"] == 0
    assert await pgwake(*command) == Answer(0, f"{waits} updated\n", "")
    row = await job(connection, waits)
    assert (row["priority"], row["queue"], row["run_at"]) == (7, "other", LATER)
    assert (row["payload"], row["metadata"]) == ({"n": 1}, {"by": "me"})
    assert (row["max_attempts"], row["expires_at"]) == (None, LATER)
    await pgwake("update", str(waits), "--expires-at", "none")
    assert (await job(connection, waits))["expires_at"] is None

    ids = [waits, held["id"], failed, 4711]
    answer = await pgwake("run-now", *map(str, ids))
    assert (answer.code, answer.output) == (1, f"{waits} updated\n")
    assert f"job {held['id']} is running, and left as it is" in answer.errors
    assert f"`pgwake retry {failed}`" in answer.errors
    assert "there is no job 4711" in answer.errors
    answer = await pgwake("run-now", *map(str, ids), "--json")
    outcomes = ["unchanged", "running", "failed", "no_such_job"]
    rows = [{"id": i, "outcome": o} for i, o in zip(ids, outcomes, strict=True)]
    assert json.loads(answer.output) == rows
    assert [row["id"] for row in await claim(connection, queue="other")] == [waits]


async def test_what_matches_is_changed_a_batch_after_the_other(
    pgwake: Pgwake, connection: Connection
) -> None:
    held = await running(connection, kind="a")
    count = batches.BATCH + 500
    await connection.execute(
        f"insert into pgwake.jobs (kind) select 'a' from generate_series(1, {count})"
    )
    command = ("update", "--kind", "a", "--priority", "5")

    answer = await pgwake(*command, "--dry-run", "--json")
    assert answer.json == {"updated": count, "running": 1}
    answer = await pgwake(*command, "--yes", "--limit", "1200")
    assert answer.output == "1199 updated, 1 running\n"
    assert "there may be more" in answer.errors
    answer = await pgwake(*command, "--yes")
    assert (answer.code, answer.errors.startswith("running: ")) == (0, True)
    assert sorted(answer.output.strip().split(", ")) == sorted(
        ["1 running", "1199 unchanged", f"{count - 1199} updated"]
    )
    left = "select count(*) from pgwake.jobs where priority <> 5"
    assert await connection.fetchval(left) == 1
    assert (await job(connection, held["id"]))["priority"] == 0
