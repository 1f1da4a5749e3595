"""What an operator types: lists, pauses, drains, explanations."""

import asyncio
import io
import json
import signal
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from rich.console import Console

from pgwake.cli.shared.tables import table
from support import Connect, Connection, wait_for
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    job_in,
    running,
)
from support.worker.helpers import asleep, embedded, ended, in_status
from support.worker.metrics import wakeups
from support.worker.processes import Answer, Pgwake, StartProcess
from support.worker.registries import quick


async def report(
    connection: Connection, worker: str = "w1", kinds: tuple[str, ...] = ("noop",)
) -> None:
    await connection.execute(
        "select pgwake.report_worker($1, 'h', 1, '{default}', $2)", worker, list(kinds)
    )


async def test_a_database_without_the_schema_is_told_with_what_to_do(
    pgwake: Pgwake, admin_url: str
) -> None:
    bare = urlsplit(admin_url)._replace(path="/postgres").geturl()
    for words in (("stats",), ("list",), ("show", "1"), ("peek", "q"), ("queues",)):
        answer = await pgwake(*words, PGWAKE_DATABASE_URL=bare)
        assert answer.code == 1, answer
        assert "Run `pgwake init`" in answer.errors


async def test_jobs_are_listed_the_newest_first_and_page_by_page(
    pgwake: Pgwake, connection: Connection
) -> None:
    for n in range(5):
        await insert(connection, "even" if n % 2 else "odd", queue=f"q{n // 3}")

    rows = (await pgwake("list", "--json")).json
    assert [row["id"] for row in rows] == [5, 4, 3, 2, 1]
    first = await pgwake("list", "--json", "--limit", "2")
    assert [row["id"] for row in first.json] == [5, 4]
    assert "--before 4" in first.errors
    second = await pgwake("list", "--json", "--limit", "2", "--before", "4")
    assert [row["id"] for row in second.json] == [3, 2]


async def test_running_jobs_are_listed_with_their_metadata(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection)
    assert "metadata" not in (await pgwake("list")).output
    await running(connection, queue="q", metadata={"by": "me", "text": "x" * 100})

    (row,) = (await pgwake("list", "--status", "running", "--json")).json
    assert row["metadata"] == {"by": "me", "text": "x" * 100}
    answer = await pgwake("list", "--status", "running")
    assert '{"by":"me","text":"xxxxxxxx' in answer.output
    assert "x" * 40 not in answer.output


async def test_a_list_is_of_what_was_asked_for(
    pgwake: Pgwake, connection: Connection
) -> None:
    pending = await insert(connection, "a", queue="x")
    await insert(connection, "b", queue="x")
    done = await job_in(connection, "completed", queue="y")
    failed = await job_in(connection, "failed", queue="z")

    async def ids(*arguments: str) -> list[int]:
        return [row["id"] for row in (await pgwake("list", "--json", *arguments)).json]

    found = await asyncio.gather(
        ids("--queue", "x", "--kind", "a"),
        ids("--status", "completed"),
        ids("--status", "failed"),
        ids("--status", "running"),
    )
    assert list(found) == [[pending], [done], [failed], []]


async def test_a_table_has_a_line_a_job_and_drives_no_terminal(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection, "[red]a\x1b[31m\nb", queue="x" * 100)
    answer = await pgwake("list")

    header, row = answer.output.splitlines()
    assert header.split()[:4] == ["id", "queue", "kind", "status"]
    assert "x" * 100 in row
    assert "[red]a\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}b" in row
    assert "\x1b" not in answer.output

    await connection.execute("delete from pgwake.jobs")
    answer = await pgwake("list")
    assert (answer.output, answer.errors) == ("", "no matching jobs\n")


def test_a_narrow_terminal_cuts_no_name() -> None:
    console = Console(width=60, file=io.StringIO())
    console.print(table([{"id": 1, "kind": "k" * 70, "queue": "q" * 70}]))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()

    assert (shown.count("k"), shown.count("q")) == (71, 71)  # with the names above


async def test_a_peek_shows_what_is_next_and_claims_nothing(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection, payload={"to": "a"})
    first = await insert(connection, priority=5)
    rows = (await pgwake("peek", "--json")).json

    assert [row["id"] for row in rows] == [first, 1]
    assert rows[1]["payload"] == {"to": "a"}
    assert len((await pgwake("peek", "--limit", "1", "--json")).json) == 1
    assert len(await claim(connection, 10)) == 2


async def test_a_peek_into_a_queue_where_nothing_is_due_says_what_will_be(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("peek", "x")
    assert answer == Answer(0, "", "no job of x is due; none is pending\n")
    assert (await pgwake("peek", "x", "--json")).json == []

    await connection.execute(
        "insert into pgwake.jobs (kind, queue, run_at) values ('a', 'x', '2199-01-01Z')"
    )
    answer = await pgwake("peek", "x")
    assert (
        "no job of x is due; the next is due at 2199-01-01 00:00:00Z" in answer.errors
    )


async def test_what_is_no_id_is_shown_without_driving_the_terminal(
    pgwake: Pgwake,
) -> None:
    answer = await pgwake("show", "\x1f7\x1b[31m")
    assert answer.code == 2
    assert "is no job's id" in answer.errors
    assert not set(answer.errors) & {"\x1f", "\x1b"}


async def test_a_job_is_explained_in_words(
    pgwake: Pgwake, connection: Connection
) -> None:
    job_id = await insert(connection, "mail\x1b[2J\u202e")
    answer = await pgwake("explain", str(job_id))

    assert answer.output.startswith(f"Job {job_id} is pending.")
    assert "No worker is live" in answer.output
    assert not set(answer.output) & {"\x1b", "\u202e"}

    told = (await pgwake("explain", str(job_id), "--json")).json
    assert told["id"] == job_id
    assert told["explanation"].startswith(f"Job {job_id} is pending.")

    missing = await pgwake("explain", "4711")
    assert (missing.code, missing.output) == (1, "")
    assert "PW001" in missing.errors


async def test_a_queue_is_paused_and_resumed(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection)
    answer = await pgwake("pause", "default")
    assert answer == Answer(0, "default is paused until it is resumed\n", "")
    assert await claim(connection) == []

    answer = await pgwake("resume", "default")
    assert answer == Answer(0, "default is resumed\n", "")
    assert len(await claim(connection)) == 1
    assert (await pgwake("resume", "default")).output == "default was not paused\n"
    assert (await pgwake("resume", "default", "--json")).json == {
        "queue": "default",
        "was_paused": False,
    }


async def test_a_queue_is_paused_until_a_time(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("pause", "x", "--until", "2199-01-01T00:00+01:00")
    assert answer.output == "x is paused until 2198-12-31 23:00:00Z\n"
    assert answer.errors == "no job was ever in x; the queues' names: pgwake queues\n"

    answer = await pgwake("pause", "x", "--for", "90", "--json")
    until = datetime.fromisoformat(answer.json["paused_until"])
    stored = await connection.fetchval("select paused_until from pgwake.queues")
    assert until == stored
    left = stored - datetime.now(UTC)
    assert timedelta(seconds=30) < left <= timedelta(seconds=90)

    answer = await pgwake("pause", "x", "--json")
    assert answer.json["paused_until"] == "infinity"


async def test_an_idle_queue_is_drained_at_once_and_stays_paused(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection)
    await running(connection, queue="other")
    answer = await pgwake("drain", "default", "--timeout", "2")

    assert answer.code == 0
    assert answer.output == (
        "default is drained: it is paused, and nothing of it runs\n"
    )
    assert await claim(connection) == []


async def test_a_drain_waits_for_what_runs(
    pgwake: Pgwake, connection: Connection, connect: Connect
) -> None:
    held = await running(connection)
    task = asyncio.ensure_future(pgwake("drain", "default", "--json"))

    async def is_paused() -> bool:
        found = await connection.fetchval("select paused_until from pgwake.queues")
        return found is not None

    await wait_for(is_paused)
    other = await connect()
    await call(other, "complete_job", job_id=held["id"], lease_id=held["lease_id"])
    assert (await task).json["is_drained"] is True


async def test_a_drain_that_is_not_over_in_time_says_what_runs(
    pgwake: Pgwake, connection: Connection
) -> None:
    held = await running(connection)
    answer = await pgwake("drain", "default", "--timeout", "0")
    assert answer.code == 75
    assert str(held["id"]) in answer.output
    assert "w1" in answer.output
    assert "default is paused, but 1 of its jobs still run" in answer.errors

    answer = await pgwake("drain", "default", "--timeout", "0.5", "--json")
    assert answer.code == 75
    told = json.loads(answer.output)
    assert told["is_drained"] is False
    assert [job["id"] for job in told["running"]] == [held["id"]]


async def test_a_drain_waits_for_a_claim_that_is_not_committed(
    pgwake: Pgwake, connection: Connection, connect: Connect
) -> None:
    await insert(connection)
    other = await connect()
    async with other.transaction():
        assert await claim(other)
        answer = await pgwake("drain", "default", "--timeout", "0.5")
        assert answer.code == 75
        assert "a transaction is open that may have claimed" in answer.errors


async def test_payloads_of_completed_jobs_are_dropped_from_now_on(
    pgwake: Pgwake, connection: Connection
) -> None:
    keeps = "x keeps the payloads of jobs that complete\n"
    assert (await pgwake("payloads", "x")).output == keeps
    answer = await pgwake("payloads", "x", "--drop", "--json")
    assert answer.json == {"queue": "x", "drop_payloads": True}
    job_id = await job_in(connection, "completed", queue="x", payload={"a": 1})

    row = (await pgwake("show", str(job_id), "--json")).json
    assert (row["payload"], row["is_payload_dropped"]) == (None, True)
    (queue,) = (await pgwake("queues", "--json")).json
    assert queue["policy"] == {"drop_payloads": True}
    assert (await pgwake("payloads", "x", "--keep")).output == keeps
    assert (await pgwake("queues", "--json")).json[0]["policy"] == {}


async def test_workers_are_listed(pgwake: Pgwake, connection: Connection) -> None:
    answer = await pgwake("workers")
    assert answer == Answer(0, "", "no worker has reported itself\n")

    await report(connection, "w1\x1b", tuple("abcdefgh"))
    (worker,) = (await pgwake("workers", "--json")).json
    assert (worker["pid"], worker["is_live"]) == (1, True)
    assert worker["kinds"] == list("abcdefgh")

    answer = await pgwake("workers")
    assert "a, b, c, d, e, and 3 more" in answer.output
    assert "live" in answer.output
    assert "\x1b" not in answer.output


async def test_kinds_are_listed(pgwake: Pgwake, connection: Connection) -> None:
    await report(connection)
    await connection.execute(
        "insert into pgwake.kinds (name, declared_max_attempts, timeout)"
        " values ('mail', 3, '5 s')"
    )
    rows = (await pgwake("kinds", "--json")).json
    assert [row["name"] for row in rows] == ["mail", "noop"]
    assert rows[0]["declared"] == {"max_attempts": 3}

    answer = await pgwake("kinds")
    assert '{"max_attempts":3}' in answer.output
    assert '{"timeout":"00:00:05"}' in answer.output


async def test_kinds_that_come_back_unhandled_are_named_under_the_statistics(
    pgwake: Pgwake, connection: Connection
) -> None:
    await insert(connection)
    await call(connection, "count_bounces", kinds=["typo\x1b", "noop"])
    await report(connection)
    answer = await pgwake("stats")

    last = answer.output.splitlines()[-1]
    assert last.startswith("Kinds without a live worker, whose jobs came back within")
    assert "typo" in last
    assert "noop" not in last
    assert "\x1b" not in answer.output
    assert isinstance((await pgwake("stats", "--json")).json, list)

    await report(connection, "w2", ("typo\x1b",))
    assert "typo" not in (await pgwake("stats")).output


async def test_a_worker_shows_itself_while_it_is_there(
    pgwake: Pgwake, start_worker: StartProcess, connection: Connection
) -> None:
    async def listed() -> list[Row]:
        rows = await connection.fetch("select * from pgwake.list_workers()")
        return [dict(row) for row in rows]

    process = await start_worker("--queue", "default:2", "--queue", "mail")
    await wait_for(listed)
    (worker,) = await listed()
    assert worker["pid"] == process.children[0]
    assert worker["queues"] == ["default", "mail"]
    assert worker["is_live"]
    assert worker["host"]
    (row,) = (await pgwake("workers", "--json")).json
    assert (row["name"], row["slots"]) == (worker["name"], 12)
    assert (await pgwake("workers")).errors.startswith(
        "1 live process on 1 host, 12 slots: 0 jobs"
    )

    job_id = await insert(connection, "nap", payload={"seconds": 60})
    held = await in_status(connection, job_id, "running")
    assert held["claimed_by"] == worker["name"]
    assert [row["running_count"] for row in await listed()] == [1]
    await connection.execute("select pgwake.cancel_job($1)", job_id)

    process.send(signal.SIGINT)
    process.send(signal.SIGINT)
    await process.exit_code()
    assert await listed() == []


async def test_a_timed_pause_ends_under_a_worker_that_sleeps(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        until = datetime.now(UTC) + timedelta(seconds=1.5)
        await call(connection, "pause_queue", until=until)
        job_id = await insert(connection, "quick")
        row = await ended(connection, job_id)
        assert wakeups(worker, cause="timer") >= 1

    assert row["started_at"] >= until
