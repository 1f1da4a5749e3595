"""JSON that PostgreSQL holds and Python does not read stops nobody."""

import pytest

from pgwake import AsyncQueue, Job, UnreadableValueError
from support import Connection
from support.sql.helpers import insert, running
from support.worker.helpers import reasons, run
from support.worker.processes import Pgwake

DEEP = "[" * 2000 + "]" * 2000
HUGE = '{"n": 1' + "0" * 5000 + "}"
_SET = "update pgwake.jobs_live set payload = $2::text::jsonb where id = $1"


@pytest.fixture
async def ids(connection: Connection) -> list[int]:
    """A job that runs, one that is due, one that has failed, one that is completed."""
    runs = await running(connection, kind="runs")
    await connection.execute(
        "select pgwake.set_progress($1, $2, $3::text::jsonb)",
        *(runs["id"], runs["lease_id"], DEEP),
    )
    fails = await running(connection, kind="fails", max_attempts=1)
    await connection.execute(_SET, fails["id"], HUGE)
    await connection.execute(
        "select pgwake.fail_job($1, $2, 'no')", fails["id"], fails["lease_id"]
    )
    ends = await running(connection, kind="ends")
    await connection.execute(
        "select pgwake.complete_job($1, $2, $3::text::jsonb)",
        *(ends["id"], ends["lease_id"], HUGE),
    )
    due = await insert(connection, "due")
    await connection.execute(_SET, due, HUGE)
    await connection.execute(
        "insert into pgwake.schedules (name, cron, kind, payload)"
        " values ('s', '0 0 * * *', 'x', $1::text::jsonb)",
        HUGE,
    )
    return [runs["id"], due, fails["id"], ends["id"]]


async def test_every_command_shows_it_as_text(pgwake: Pgwake, ids: list[int]) -> None:
    runs, _, fails, ends = ids
    for words in (
        *(("show", str(job_id)) for job_id in ids),
        ("list",),
        ("stats",),
        ("peek", "default"),
        ("retry", "--kind", "fails", "--dry-run"),
        ("schedule", "list"),
        ("wait", str(ends)),
        ("failed",),
        *(("explain", str(job_id)) for job_id in ids),
    ):
        for more in ((), ("--json",)):
            answer = await pgwake(*words, *more)
            assert answer.code == 0, (words, more, answer)
    assert DEEP in (await pgwake("show", str(runs), "--json")).output
    for words in (("peek", "default"), ("show", str(fails)), ("schedule", "list")):
        assert HUGE in (await pgwake(*words, "--json")).output
    assert DEEP[:39] in (await pgwake("stats")).output


async def test_producers_and_handlers_get_one_error_that_has_the_text(
    database: str, connection: Connection, ids: list[int]
) -> None:
    async with AsyncQueue(database) as queue:
        for ask in (queue.get_job, queue.wait_for):
            with pytest.raises(UnreadableValueError, match="digits") as raised:
                await ask(ids[3])
            assert HUGE in raised.value.text

    async def child(job: Job) -> None:
        await job.parent_results()

    row = await run(
        connection, database, child, {"depends_on": [ids[3]], "max_attempts": 1}
    )
    assert reasons(row) == ["failed"]
    assert "UnreadableValueError" in row["errors"][0]["message"]


async def test_a_long_run_of_digits_in_a_text_is_shown_at_once(
    pgwake_program: Pgwake, connection: Connection
) -> None:
    """Rich's own colours of JSON take quadratic time for it."""
    job_id = await insert(connection, payload={"a": "1" * 100_000 + "a\\"})
    assert (await pgwake_program("show", str(job_id))).code == 0
