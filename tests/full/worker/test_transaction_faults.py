"""Whatever dies in a handler's transaction: it counts once, or not at all."""

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from full.worker.test_database_faults import connected
from pgwake import Job, Registry
from pgwake.database.embedded import EmbeddedServer
from support import Connection, wait_for
from support.relay import Relay
from support.sql.helpers import insert, job
from support.worker.balance import total
from support.worker.helpers import all_ended, embedded, ended, insert_some
from support.worker.paying import PAY, SCHEMA
from support.worker.processes import Diary, StartProcess

# A commit that takes a second, so that there is time to do something to it.
SLOW_COMMIT = """
create function slow() returns trigger language plpgsql as
  $$ begin perform pg_sleep(1); return null; end $$;
create constraint trigger slow after insert on ledger
  deferrable initially deferred for each row execute function slow();
"""


async def payments(connection: Connection) -> tuple[int, int]:
    """The balance, and how many jobs have paid it."""
    row = await connection.fetchrow(
        "select balance, (select count(distinct job) from ledger) from account"
    )
    assert row is not None
    return row[0], row[1]


async def is_paid(connection: Connection) -> bool:
    """Whether a payment has committed."""
    return await payments(connection) == (1, 1)


async def in_commit(connection: Connection) -> int:
    """Wait until a handler's session is about to commit; its process id."""
    found: list[int] = []

    async def is_there() -> bool:
        found[:] = [
            row[0]
            for row in await connection.fetch(
                "select pid from pg_stat_activity where query = 'COMMIT;'"
                " and state = 'active' and application_name like 'pgwake:%/tx'"
            )
        ]
        return bool(found)

    await wait_for(is_there)
    return found[0]


def paying(after: list[str], block: str = "job", **options: Any) -> Registry:
    """A registry with one handler, "pay", that notes when its block is over.

    The block is that of a transaction that completes the job, or records a step.
    """
    registry = Registry()

    @registry.job("pay", **options)
    async def pay(job: Job) -> None:
        if block == "job":
            async with job.transaction() as connection:
                await connection.execute(PAY, job.id)
        else:
            async with job.step_transaction("pay") as step:
                if not step.is_done:
                    await step.connection.execute(PAY, job.id)
        after.append("committed")

    return registry


async def test_a_kill_before_or_in_a_commit_that_fails_undoes_all_and_it_runs_again(
    connection: Connection, start_worker: StartProcess, diary: Diary, tmp_path: Path
) -> None:
    await connection.execute(SCHEMA)
    worker = await start_worker(imports="support.worker.paying")
    payload = {"mark": str(tmp_path / "mark")}
    row = await ended(
        connection, await insert(connection, "pay and die once", payload=payload)
    )

    assert (row["status"], row["attempt"], row["crash_count"]) == ("completed", 1, 1)
    assert len(diary.entries(event="written")) == 2
    assert await payments(connection) == (1, 1)
    await all_ended(connection)
    told = "select count(*) from pgwake.jobs where kind = 'tell'"
    assert await connection.fetchval(told) == 1

    # The server goes on with the commit for a second, with the job's row locked.
    await connection.execute(
        """
        create sequence tries;
        create function fail_once() returns trigger language plpgsql as
          $$ begin
            if nextval('tries') = 1 then
              perform pg_sleep(1);
              raise 'no';
            end if;
            return null;
          end $$;
        create constraint trigger fail_once after insert on ledger
          deferrable initially deferred for each row execute function fail_once();
        """
    )
    job_id = await insert(connection, "pay")
    await in_commit(connection)
    os.kill(worker.children[-1], signal.SIGKILL)

    row = await ended(connection, job_id)
    assert (row["status"], row["crash_count"]) == ("completed", 1)
    assert await payments(connection) == (2, 2)


async def test_under_kills_every_payment_and_every_next_job_counts_once(
    connection: Connection, start_worker: StartProcess
) -> None:
    await connection.execute(SCHEMA)
    worker = await start_worker("--queue", "default:8", imports="support.worker.paying")
    await insert_some(connection, "pay", 300)
    kills = 0
    while await connection.fetchval(
        "select exists (select from pgwake.jobs_live where kind = 'pay')"
    ):
        await asyncio.sleep(random.uniform(0.2, 0.5))  # noqa: S311
        if kills < 4:
            kills += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.children[-1], signal.SIGKILL)
    await all_ended(connection)

    assert await payments(connection) == (300, 300)
    counts = await connection.fetch(
        "select kind, status, count(*) from pgwake.jobs group by 1, 2 order by 1"
    )
    assert [tuple(row) for row in counts] == [
        ("pay", "completed", 300),
        ("tell", "completed", 300),
    ]
    assert len(worker.children) > 2


async def job_to_pay(url: str) -> int:
    """Make the account, and a job; its id."""
    async with connected(url) as connection:
        await connection.execute(SCHEMA)
        return await insert(connection, "pay")


@pytest.mark.parametrize("writes_again", [True, False])
async def test_a_restart_of_the_server_in_the_block_fails_the_attempt(
    spare_server: EmbeddedServer, spare_database: str, writes_again: bool
) -> None:
    registry = Registry()
    written, go = asyncio.Event(), asyncio.Event()

    @registry.job("pay", backoff_base=0)
    async def pay(job: Job) -> None:
        async with job.transaction() as connection:
            await connection.execute(PAY, job.id)
            written.set()
            await go.wait()
            if writes_again:
                await connection.execute("select 1")

    job_id = await job_to_pay(spare_database)
    async with embedded(spare_database, registry):
        await written.wait()
        await asyncio.to_thread(spare_server.restart, "immediate")
        go.set()
        async with connected(spare_database) as connection:
            row = await ended(connection, job_id)
            assert (row["status"], row["attempt"]) == ("completed", 2)
            assert await payments(connection) == (1, 1)


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_block_waits_for_a_server_that_is_away_and_not_for_ever(
    spare_server: EmbeddedServer, spare_database: str, comes_back: bool
) -> None:
    registry = Registry()
    begun, go = asyncio.Event(), asyncio.Event()
    errors: list[str] = []

    @registry.job("pay", max_attempts=1)
    async def pay(job: Job) -> None:
        begun.set()
        await go.wait()
        try:
            async with job.transaction() as connection:
                await connection.execute(PAY, job.id)
        except TimeoutError as error:
            errors.append(str(error))
            raise

    job_id = await job_to_pay(spare_database)
    timeout = 15 if comes_back else 1
    async with embedded(spare_database, registry, query_timeout=timeout):
        await begun.wait()
        await asyncio.to_thread(spare_server._halt, "immediate")
        go.set()
        await (asyncio.sleep(0.5) if comes_back else wait_for(lambda: errors))
        await asyncio.to_thread(spare_server._launch)
        async with connected(spare_database) as connection:
            row = await ended(connection, job_id)
            paid = await payments(connection)
    end = ("completed", (1, 1)) if comes_back else ("failed", (0, 0))
    assert (row["status"], paid) == end
    told = [] if comes_back else ["no connection to the database within 1 s"]
    assert errors == told


@pytest.mark.parametrize(("block", "outcome"), [("job", "held"), ("step", "unknown")])
async def test_a_session_that_ends_in_its_commit_has_not_committed(
    connection: Connection, database: str, block: str, outcome: str
) -> None:
    await connection.execute(SCHEMA + SLOW_COMMIT)
    after: list[str] = []
    job_id = await insert(connection, "pay")
    with capture_logs() as lines:
        registry = paying(after, block, backoff_base=0)
        async with embedded(database, registry) as worker:
            pid = await in_commit(connection)
            await connection.fetchval("select pg_terminate_backend($1)", pid)
            row = await ended(connection, job_id)
            assert total(worker, "jobs_retried") == 1

    assert (row["status"], row["attempt"]) == ("completed", 2)
    assert after == ["committed"]
    assert await payments(connection) == (1, 1)
    (line,) = [line for line in lines if line["event"] == "answer to a commit lost"]
    assert (line["job"], line["outcome"]) == (job_id, outcome)


@pytest.mark.parametrize(
    ("block", "outcome"), [("job", "completed"), ("step", "recorded")]
)
async def test_a_commit_whose_answer_is_lost_counts_once_and_is_known(
    connection: Connection, database: str, block: str, outcome: str
) -> None:
    await connection.execute(SCHEMA + SLOW_COMMIT)
    after: list[str] = []
    job_id = await insert(connection, "pay", max_attempts=1)
    with capture_logs() as lines:
        async with Relay.before(database) as relay:
            registry = paying(after, block)
            async with embedded(relay.url, registry, query_timeout=2) as worker:
                await in_commit(connection)
                relay.freeze()
                await wait_for(lambda: is_paid(connection))
                await relay.heal()
                row = await ended(connection, job_id)
                await wait_for(lambda: after == ["committed"])
                await wait_for(lambda: total(worker, "jobs_completed") == 1)
                assert total(worker, "leases_lost") == 0

    assert (row["status"], row["attempt"]) == ("completed", 1)
    assert await payments(connection) == (1, 1)
    (line,) = [line for line in lines if line["event"] == "answer to a commit lost"]
    assert (line["job"], line["outcome"]) == (job_id, outcome)


@pytest.mark.parametrize("block", ["job", "step"])
async def test_a_commit_that_goes_on_when_its_answer_is_lost_counts_once(
    connection: Connection, database: str, block: str
) -> None:
    await connection.execute(SCHEMA + SLOW_COMMIT)
    after: list[str] = []
    job_id = await insert(connection, "pay", max_attempts=2)
    async with Relay.before(database) as relay:
        registry = paying(after, block, backoff_base=0)
        async with embedded(relay.url, registry):
            await in_commit(connection)
            relay.cut()
            row = await ended(connection, job_id)
            assert await payments(connection) == (1, 1)

    # The failed attempt's end has waited for the commit: the next one finds the step.
    attempts = {"job": 1, "step": 2}[block]
    assert (row["status"], row["attempt"]) == ("completed", attempts)
    assert after == ["committed"][: attempts - 1]


async def test_a_commit_that_has_begun_is_not_cut_short(
    connection: Connection, database: str
) -> None:
    await connection.execute(SCHEMA + SLOW_COMMIT)
    after: list[str] = []
    job_id = await insert(connection, "pay", max_attempts=1)
    with capture_logs() as lines:
        async with embedded(database, paying(after, timeout=0.5)) as worker:
            row = await ended(connection, job_id)
            await wait_for(lambda: total(worker, "jobs_completed") == 1)

    assert (row["status"], row["errors"]) == ("completed", None)
    assert await payments(connection) == (1, 1)
    # It is stopped as soon as it has committed.
    assert after == []
    (line,) = [line for line in lines if line["event"].startswith("handler stopped")]
    assert (line["job"], line["reason"]) == (job_id, "timeout")


@pytest.mark.parametrize(("block", "attempts"), [("job", 1), ("step", 2)])
async def test_a_commit_that_nobody_can_ask_about_counts_once_too(
    connection: Connection, database: str, block: str, attempts: int
) -> None:
    await connection.execute(SCHEMA + SLOW_COMMIT)
    after: list[str] = []
    job_id = await insert(connection, "pay")
    with capture_logs() as lines:
        async with Relay.before(database) as relay:
            registry = paying(after, block, backoff_base=0)
            async with embedded(relay.url, registry, query_timeout=2) as worker:
                await in_commit(connection)
                relay.freeze()
                await wait_for(lambda: is_paid(connection))

                await wait_for(
                    lambda: any(
                        line["event"] == "answer to a commit lost" for line in lines
                    ),
                    15,
                )
                await relay.heal()

                await wait_for(lambda: total(worker, "jobs_completed") == 1)

    row = await job(connection, job_id)
    assert (row["status"], row["attempt"]) == ("completed", attempts)
    assert after == ["committed"][: attempts - 1]
    assert await payments(connection) == (1, 1)
