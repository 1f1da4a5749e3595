"""A run played by hand, that accounts for every job, and each way not to."""

import asyncio
import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from time import time
from uuid import uuid4

import asyncpg
import pytest

from lab.chaos.account import account
from lab.chaos.load import Load, prepare
from lab.chaos.run import ON_PURPOSE, Run, Strike
from support import Connection

JOBS, STEPPING = 120, 3  # each of these has a child
IN_DJANGO, KEYED = 3, 3
CHILD = """
insert into pgwake.jobs (queue, kind, payload)
select queue, 'chaos', jsonb_build_object(
  'serial', -$2::int, 'has_effect', true, 'event', $3::text)
from pgwake.jobs where id = $1
returning id
"""
IS_LEFT = "select exists (select from pgwake.jobs_live)"
RECORD = "select pgwake.record_step($1, $2, $3, $4::text::jsonb)"
SLEEP = "select pgwake.sleep_job($1, $2, 'nap', clock_timestamp() + '10 ms')"
AWAIT = "select outcome from pgwake.await_event($1, $2, $3, name => 'event')"
AWAIT_CHILD = """
select outcome from pgwake.await_job($1, $2, (
  select result::bigint from pgwake.get_steps($1) where name = 'child'), name => 'end')
"""
COMPLETE = """
select pgwake.complete_job($1, $2, jsonb_object_agg(name, coalesce(result, 'null')))
from pgwake.get_steps($1)
"""
DEAD, SILENT = "host:71:aaaaaaaa", "host:72:bbbbbbbb"
STOPPED, SOUND = "host:73:cccccccc", "host:74:dddddddd"

# What is done to rows, and what the account says of it. {0}: the run's schema.
TAMPERED_ROWS = {
    "delete from pgwake.jobs where payload ->> 'serial' = '7'": "without a row",
    "insert into pgwake.jobs (queue, kind, payload) select queue, kind, payload"
    " from pgwake.jobs where payload ->> 'serial' = '7'": "not ended",
    "insert into pgwake.jobs select (jsonb_populate_record(j, '{{\"id\": 999}}')).*"
    " from pgwake.jobs as j where payload ->> 'serial' = '7'": "enqueued twice",
    "update pgwake.jobs set payload = payload || '{{\"serial\": 999}}'"
    " where payload ->> 'serial' = '7'": "that nobody has enqueued",
    "update pgwake.jobs set payload = payload || '{{\"is_doomed\": true}}'"
    " where payload ->> 'serial' = '7'": "completed, though to fail",
    "update pgwake.jobs set payload = payload - 'is_doomed'"
    " where status = 'failed'": "failed, neither on purpose nor",
    "update pgwake.jobs set attempt = attempt + 1"
    " where payload ->> 'serial' = '7'": "other errors than its counts say",
    "update pgwake.jobs set crash_count = crash_count + 1"
    " where payload ->> 'serial' = '7'": "other errors than its counts say",
    "update pgwake.jobs set bounce_count = 1"
    " where payload ->> 'serial' = '7'": "more or less often than its row says",
    "update pgwake.jobs set payload = payload - 'fails'"
    " where payload ? 'fails'": "on purpose more or less often",
    "update pgwake.jobs set payload = payload || '{{\"fails\": 1}}'"
    " where payload ->> 'serial' = '7'": "on purpose more or less often",
    "insert into {0}.effects select * from {0}.effects": "an effect more than once",
    "update {0}.effects set lease_id = gen_random_uuid()": "and not completed by it",
    "insert into {0}.effects select id, lease_id from pgwake.jobs"
    " where status = 'failed'": "and not completed by it",
    "delete from {0}.effects": "without the effect of that execution",
    "update pgwake.jobs set result = jsonb_set(result, '{{call}}', '1')"
    " where payload ->> 'serial' = '5'": "not what is recorded",
    "update pgwake.jobs set steps = jsonb_set(steps, '{{0,result}}', '1')"
    " where payload ->> 'serial' = '5'": "that nobody has enqueued",
    "update pgwake.jobs set steps = jsonb_set(steps, '{{1,result}}', '1')"
    " where payload ->> 'serial' = '5'": "of which no call is known",
    "update pgwake.jobs set steps = jsonb_set(steps, '{{1,at}}', '\"2020-01-01\"')"
    " where payload ->> 'serial' = '5'": "was called though it was recorded",
    "update pgwake.events set payload = '1'": "have heard another event",
    "update pgwake.jobs set concurrency_key = 'tenant 0', started_at = '2020-01-01'"
    " where concurrency_key = 'tenant 1'": "another of their key was running",
    "insert into pgwake.waits (job_id, name, event, since) select id, 'x', 'x', now()"
    " from pgwake.jobs where payload ->> 'serial' = '5'": "waits left over",
}


class Play:
    """Workers that do what they are told, and note it as the handlers do."""

    def __init__(self, connection: Connection, run: Run) -> None:
        self._connection = connection
        self._run = run
        run.journal.mkdir()
        run.calls.mkdir()

    async def claim(
        self, worker: str, count: int, *, has_begun: bool = True
    ) -> list[asyncpg.Record]:
        one_more = "from pgwake.claim_next_job($1, $3) where $2 = 1"
        many = "from pgwake.claim_jobs($1, $2, $3) where $2 > 1"
        columns = "select id, attempt, lease_id, payload, options"
        jobs = await self._connection.fetch(
            f"{columns} {one_more} union all {columns} {many}",
            *(self._run.queue, count, worker),
        )
        if has_begun:
            pid = worker.split(":")[1]
            with (self._run.journal / pid).open("a") as journal:
                for job in jobs:
                    line = (*tuple(job)[:3], pid, time(), 0)
                    journal.write("\t".join(map(str, line)) + "\n")
        return jobs

    async def release(self, jobs: list[asyncpg.Record]) -> None:
        await self._connection.execute(
            "select pgwake.release_jobs($1, $2, 'shutdown')",
            [job["id"] for job in jobs],
            [job["lease_id"] for job in jobs],
        )

    async def work(self) -> None:
        """Do what is left, as the handlers would."""
        while await self._connection.fetchval(IS_LEFT):
            for job in await self.claim(SOUND, 1):
                await self._do(job, json.loads(job["payload"]))

    async def _do(self, job: asyncpg.Record, payload: dict[str, int]) -> None:
        ids = (job["id"], job["lease_id"])
        if "patience" in payload:
            await self._do_steps(job, payload["serial"])
            return
        if job["attempt"] <= payload.get("fails", 0) or "is_doomed" in payload:
            await self._connection.execute(
                "select pgwake.fail_job($1, $2, $3, reason => $4, retryable => $5,"
                " retry_in => '0')",
                *(*ids, f"RuntimeError: {ON_PURPOSE}"),
                *(("discarded", False) if "is_doomed" in payload else ("failed", True)),
            )
            return
        if "has_effect" in payload:
            effects = f"{self._run.schema}.effects"
            await self._connection.execute(
                f"insert into {effects} values ($1, $2)", *ids
            )
        if "event" in payload:
            emit = "select pgwake.emit_event($1, to_jsonb($2::uuid))"
            await self._connection.execute(emit, payload["event"], job["lease_id"])
        await self._connection.execute("select pgwake.complete_job($1, $2)", *ids)

    async def _do_steps(self, job: asyncpg.Record, serial: int) -> None:
        """Do what is not recorded, and leave to sleep or to wait."""
        ids = (job["id"], job["lease_id"])
        fetchval, event = self._connection.fetchval, f"{self._run.schema}:{serial}"
        if "steps" not in json.loads(job["options"] or "{}"):
            child = await fetchval(CHILD, job["id"], serial, event)
            await fetchval(RECORD, *ids, "child", str(child))
            with (self._run.calls / "74").open("a") as calls:
                calls.write(f"{job['id']}\t{job['lease_id']}\n")
            await fetchval(RECORD, *ids, "call", f'"{job["lease_id"]}"')
        if (
            await fetchval(SLEEP, *ids) == "over"
            and await fetchval(AWAIT, *ids, event) == "here"
            and await fetchval(AWAIT_CHILD, *ids) == "here"
        ):
            await fetchval(COMPLETE, *ids)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run("0123abcd", tmp_path)


@pytest.fixture
async def strikes(connection: Connection, database: str, run: Run) -> list[Strike]:
    """A run over which all is done; what was done to it."""
    await prepare(connection, run)
    load = Load(database, run, rate=1e6, jobs=JOBS)
    await load.run()
    assert (load.enqueued, load.settled) == (JOBS, 0)
    play = Play(connection, run)
    began_at: datetime = await connection.fetchval("select clock_timestamp()")

    await play.claim(DEAD, 4)
    await play.claim(DEAD, 6, has_begun=False)
    await connection.execute("select pgwake.release_worker_jobs($1)", DEAD)
    await play.claim(SILENT, 3)
    await connection.execute("set pgwake.clock_offset = '10 minutes'")
    await connection.execute("select pgwake.maintain('sweep')")
    await connection.execute("reset pgwake.clock_offset")
    await play.release(await play.claim(STOPPED, 5))
    await play.work()

    ended_at: datetime = await connection.fetchval("select clock_timestamp()")
    late = ended_at + timedelta(minutes=10)
    return [
        Strike("kill", began_at, ended_at, (DEAD,)),
        Strike("half-open", began_at, late),
    ]


async def test_it_accounts_for_every_job_and_says_why_each_ran_again(
    connection: Connection, run: Run, strikes: list[Strike]
) -> None:
    found = await account(connection, run, JOBS, 0, strikes)

    assert found.accounts_for_every_job, found.problems
    assert found.completed + found.failed_on_purpose == JOBS + STEPPING
    assert found.failed_on_purpose == 4
    assert found.effects == 5 - 2 + STEPPING + IN_DJANGO, "two of them are to fail"
    assert found.stepped == STEPPING
    assert (found.in_django, found.keyed) == (IN_DJANGO, KEYED)
    assert found.wakes >= STEPPING
    assert found.repeats == {
        "failed on purpose": 3 + 2 * 3 + 1,
        "the worker died": 4,
        "the lease ran out": 3,
        "released at a stop": 5,
    }
    first = JOBS + STEPPING
    assert found.executions == first + sum(found.repeats.values()) + found.wakes
    assert found.unbegun == 6
    assert found.blamed == {"kill": 10, "half-open": 3}
    assert (found.lost, found.doubled_effects, found.crashed_out) == (0, 0, 0)


async def test_whatever_is_wrong_with_a_row_or_an_effect_is_found(
    connection: Connection, run: Run, strikes: list[Strike]
) -> None:
    for statement, problem in TAMPERED_ROWS.items():
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(statement.format(run.schema))
        found = await account(connection, run, JOBS, 0, strikes)
        await transaction.rollback()

        assert not found.accounts_for_every_job, statement
        assert any(problem in told for told in found.problems), (statement, found)


async def test_whatever_is_wrong_with_an_execution_is_found(
    connection: Connection, run: Run, strikes: list[Strike]
) -> None:
    journal = run.journal / SOUND.split(":")[1]
    whole = journal.read_text()
    lines = whole.splitlines(keepends=True)
    retried = next(line for line in lines if line.split("\t")[1] == "2").split("\t")[0]
    without_first_try = [
        line for line in lines if line.split("\t")[:2] != [retried, "1"]
    ]
    job_id, attempt, _, *rest = lines[0].split("\t")
    one_more = "\t".join([job_id, attempt, str(uuid4()), *rest])
    nobodys = "\t".join(["999", attempt, str(uuid4()), *rest])
    for text, problem in {
        whole + one_more: "more or less often than its row says",
        whole + nobodys: "executed though there is no row",
        whole + lines[0]: "executed twice under one lease",
        "".join(lines[1:]): "completed without an execution under its lease",
        "".join(without_first_try): "an execution that is not in the journal",
    }.items():
        journal.write_text(text)
        found = await account(connection, run, JOBS, 0, strikes)

        assert any(problem in told for told in found.problems), (problem, found)


async def test_a_job_that_is_woken_after_much_younger_ones_is_found_unless_for_a_fault(
    connection: Connection, run: Run, strikes: list[Strike]
) -> None:
    await connection.execute(
        "update pgwake.jobs set created_at = created_at + interval '1 minute'"
        " where payload ->> 'serial' = '1'"
    )
    journal = run.journal / DEAD.split(":")[1]
    first, *others = journal.read_text().splitlines(keepends=True)
    words = first.split("\t")
    words[4] = str(float(words[4]) - 60)
    journal.write_text("".join(["\t".join(words), *others]))

    with_faults = await account(connection, run, JOBS, 0, strikes)
    without = await account(connection, run, JOBS, 0, [])

    assert with_faults.accounts_for_every_job, with_faults.problems
    assert any("woken later than by a poll" in told for told in without.problems)
    assert without.latest_wake > 50


async def test_a_step_that_is_called_twice_under_one_lease_is_found(
    connection: Connection, run: Run, strikes: list[Strike]
) -> None:
    calls = run.calls / "74"
    calls.write_text(calls.read_text() * 2)

    found = await account(connection, run, JOBS, 0, strikes)

    assert any("called twice under one lease" in told for told in found.problems)


async def test_a_line_that_a_kill_has_torn_does_not_count(
    connection: Connection, run: Run, strikes: list[Strike]
) -> None:
    with (run.journal / DEAD.split(":")[1]).open("a") as journal:
        journal.write("17\t1\t0e5c")

    assert (await account(connection, run, JOBS, 0, strikes)).accounts_for_every_job


async def test_a_crash_that_no_fault_has_brought_about_is_found(
    connection: Connection, run: Run, strikes: list[Strike]
) -> None:
    kill, half_open = strikes
    long_ago = timedelta(hours=-1)
    others = replace(kill, victims=(STOPPED,))
    earlier = replace(
        half_open,
        began_at=half_open.began_at + long_ago,
        ended_at=half_open.ended_at + long_ago,
    )
    for told in ([], [kill], [others], [kill, earlier]):
        found = await account(connection, run, JOBS, 0, told)

        assert any("no fault to blame" in told for told in found.problems), told


async def test_a_job_that_faults_have_crashed_five_times_has_a_line_of_its_own(
    connection: Connection, database: str, run: Run
) -> None:
    await prepare(connection, run)
    await connection.execute(
        "insert into pgwake.queues (name, backoff_cap) values ($1, '100 ms')", run.queue
    )
    await Load(database, run, rate=1e6, jobs=1).run()
    play = Play(connection, run)
    began_at: datetime = await connection.fetchval("select clock_timestamp()")
    for _ in range(5):
        while not await play.claim(DEAD, 1):
            await asyncio.sleep(0.01)
        await connection.execute("select pgwake.release_worker_jobs($1)", DEAD)
    kill = Strike("kill", began_at, began_at + timedelta(seconds=9), (DEAD,))

    found = await account(connection, run, 1, 0, [kill])

    assert found.accounts_for_every_job, found.problems
    assert (found.crashed_out, found.executions) == (1, 5)
    assert found.repeats == {"the worker died": 4}
    assert found.blamed == {"kill": 5}
    assert not (await account(connection, run, 1, 0, [])).accounts_for_every_job
