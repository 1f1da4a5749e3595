"""Waiting for the ends of jobs."""

import asyncio
import json
from collections.abc import AsyncIterator

import psycopg
import pytest
from structlog.testing import capture_logs

from pgwake import (
    AsyncQueue,
    Ended,
    InvalidArgumentError,
    NoSuchJobError,
    Queue,
    Registry,
    WaitTimeoutError,
)
from pgwake.produce import waiting
from support import Connection, wait_for
from support.relay import Relay
from support.sql.helpers import ABSENT, insert
from support.worker.helpers import embedded
from support.worker.processes import Answer, Pgwake

handlers = Registry()


@handlers.job("double")
async def double(n: int) -> int:
    return n * 2


@handlers.job("refuse", max_attempts=1)
async def refuse() -> None:
    raise ValueError("no")


@pytest.fixture
def _nothing_is_found_by_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_SECONDS", "MAX_POLL_SECONDS"):
        monkeypatch.setattr(waiting, name, 3600.0)


@pytest.fixture
async def queue(database: str) -> AsyncIterator[AsyncQueue]:
    async with Queue(database) as queue:
        yield queue


async def sessions(connection: Connection) -> list[int]:
    """The sessions that wait."""
    rows = await connection.fetch(
        "select pid from pg_stat_activity where datname = current_database()"
        " and application_name = 'pgwake:waits'"
    )
    return [row[0] for row in rows]


async def listening(connection: Connection) -> int:
    """Wait until a session hears of ends; its process id."""

    await wait_for(
        lambda: connection.fetchval(
            "select count(*) from pg_locks where locktype = 'advisory'"
            " and classid = 1885828973 and mode = 'ShareLock' and granted"
            " and database = (select oid from pg_database"
            " where datname = current_database())"
        )
    )
    (pid,) = await sessions(connection)
    return pid


@pytest.mark.usefixtures("_nothing_is_found_by_a_poll")
async def test_the_end_of_a_job_is_heard_of(database: str, queue: AsyncQueue) -> None:
    async with embedded(database, handlers):
        done = await queue.enqueue("double", {"n": 21})
        failed = await queue.enqueue("refuse")
        ends = await asyncio.gather(queue.wait_for(done), queue.wait_for(failed))

    assert ends[0] == Ended(done, "default", "double", "completed", 42, [])
    assert (ends[1].id, ends[1].status, ends[1].result) == (failed, "failed", None)
    assert ends[1].errors[-1]["message"] == "ValueError: no"


@pytest.mark.usefixtures("_nothing_is_found_by_a_poll")
async def test_a_queue_on_a_connection_listens_at_a_url(
    database: str, connection: Connection
) -> None:
    queue = Queue(connection, listen_url=database)
    ids = [await queue.enqueue("double", {"n": n}) for n in range(5)]
    async with embedded(database, handlers):
        ends = await asyncio.gather(*map(queue.wait_for, ids))

    assert [end.result for end in ends] == [0, 2, 4, 6, 8]


@pytest.mark.usefixtures("_nothing_is_found_by_a_poll")
async def test_all_waits_share_a_session_that_ends_with_them(
    connection: Connection, queue: AsyncQueue
) -> None:
    ids = [await queue.enqueue("a") for _ in range(20)]
    waits = [asyncio.create_task(queue.wait_for(job_id)) for job_id in (*ids, *ids)]
    await listening(connection)
    for job_id in ids[1:]:
        await queue.cancel(job_id)
    await asyncio.gather(*waits[1:20], *waits[21:])
    await listening(connection)
    for left in (waits[0], waits[20]):
        left.cancel()
    await asyncio.wait(waits)

    async def none_waits() -> bool:
        return not await sessions(connection)

    await wait_for(none_waits)


@pytest.mark.usefixtures("_nothing_is_found_by_a_poll")
async def test_an_answer_that_is_lost_is_waited_for_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was waited for as long again, for the pool to take the session back."""
    monkeypatch.setattr("pgwake.produce.drivers.asyncpg.QUERY_SECONDS", 1.0)
    async with Relay.before(database) as relay, AsyncQueue(relay.url) as queue:
        await queue.enqueue("x")
        relay.block("from the server")
        async with asyncio.timeout(20):
            with pytest.raises(TimeoutError):
                await queue.enqueue("x")


async def test_a_session_that_is_lost_comes_back(
    connection: Connection, queue: AsyncQueue
) -> None:
    job_id = await queue.enqueue("a")
    wait = asyncio.create_task(queue.wait_for(job_id))
    lost = await listening(connection)
    await connection.execute("select pg_terminate_backend($1, 5000)", lost)
    assert await listening(connection) != lost
    await queue.cancel(job_id)

    assert (await wait).status == "cancelled"


@pytest.mark.usefixtures("_nothing_is_found_by_a_poll")
async def test_what_others_send_on_the_channel_does_no_harm(
    connection: Connection, queue: AsyncQueue
) -> None:
    job_id = await queue.enqueue("a")
    wait = asyncio.create_task(queue.wait_for(job_id))
    await listening(connection)
    for sent in (
        "",
        "[]",
        "1",
        "{",
        '{"id": []}',
        '{"id": [], "new_status": "failed"}',
    ):
        await connection.execute("select pg_notify('job_status_changed', $1)", sent)
    await queue.cancel(job_id)

    assert (await wait).status == "cancelled"


async def test_without_a_url_it_looks_again_and_again(
    database: str, connection: Connection
) -> None:
    queue = Queue(connection)
    job_id = await queue.enqueue("double", {"n": 1})
    async with embedded(database, handlers):
        assert (await queue.wait_for(job_id)).result == 2


async def test_behind_a_transaction_pooler_it_looks_again_and_again(
    database: str, transaction_pooler: str
) -> None:
    with capture_logs() as lines:
        async with Queue(transaction_pooler) as queue, embedded(database, handlers):
            job_id = await queue.enqueue("double", {"n": 1}, delay=1)
            assert (await queue.wait_for(job_id)).result == 2

    assert any("listen_url" in line.get("remedy", "") for line in lines)


async def test_a_blocking_queue_looks_again_and_again(database: str) -> None:
    async with embedded(database, handlers):
        with psycopg.connect(database, autocommit=True) as blocking:
            queue = Queue(blocking)
            job_id = queue.enqueue("double", {"n": 1})
            end = await asyncio.to_thread(queue.wait_for, job_id, 10)

    assert end.result == 2


async def test_a_wait_ends_when_its_time_is_up(queue: AsyncQueue) -> None:
    job_id = await queue.enqueue("a")
    with pytest.raises(WaitTimeoutError, match=f"{job_id} has not ended within 0.1"):
        await queue.wait_for(job_id, 0.1)


async def test_there_is_no_wait_for_a_job_that_is_not_there(queue: AsyncQueue) -> None:
    with pytest.raises(NoSuchJobError):
        await queue.wait_for(ABSENT)
    with pytest.raises(InvalidArgumentError, match="job_id is '1': use a job's id"):
        await queue.wait_for("1")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="timeout is nan"):
        await queue.wait_for(1, float("nan"))


async def test_a_transaction_that_sees_nothing_new_can_not_wait(
    connection: Connection, queue: AsyncQueue
) -> None:
    job_id = await queue.enqueue("a")
    async with connection.transaction(isolation="repeatable_read"):
        with pytest.raises(InvalidArgumentError, match="wait outside of it"):
            await Queue(connection).wait_for(job_id)
    await connection.execute("set default_transaction_isolation = 'serializable'")
    with pytest.raises(WaitTimeoutError):
        await Queue(connection).wait_for(job_id, 0.1)


async def test_a_job_that_was_changed_in_a_transaction_can_be_waited_for_after_it(
    connection: Connection, queue: AsyncQueue
) -> None:
    job_id = await queue.enqueue("a")
    await queue.cancel(job_id)
    async with connection.transaction():
        own = Queue(connection)
        await own.retry(job_id)
        with pytest.raises(InvalidArgumentError, match="added or changed by this"):
            await own.wait_for(job_id)
    with pytest.raises(WaitTimeoutError):
        await own.wait_for(job_id, 0)


async def test_the_command_shows_how_a_job_ended(
    pgwake: Pgwake, database: str, connection: Connection
) -> None:
    done = await insert(connection, "double", payload={"n": 2})
    failed = await insert(connection, "refuse")
    with capture_logs():
        async with embedded(database, handlers):
            answers = await asyncio.gather(
                pgwake("wait", str(done)),
                pgwake("wait", str(done), "--json"),
                pgwake("wait", str(failed)),
            )

    assert answers[0] == Answer(0, f"{done} completed\n", "")
    assert json.loads(answers[1].output) == {
        "id": done,
        "queue": "default",
        "kind": "double",
        "status": "completed",
        "result": 4,
        "errors": [],
    }
    assert answers[2].code == 1
    assert answers[2].output == f"{failed} failed\n"
    assert "ValueError: no" in answers[2].errors


async def test_the_command_gives_up_when_its_time_is_up(
    pgwake: Pgwake, connection: Connection
) -> None:
    job_id = await insert(connection, "a")
    answer = await pgwake("wait", str(job_id), "--timeout", "0.2")

    assert (answer.code, answer.output) == (75, "")
    assert f"job {job_id} has not ended within 0.2 s" in answer.errors


async def test_the_command_refuses_a_job_that_is_not_there(pgwake: Pgwake) -> None:
    answer = await pgwake("wait", "7")

    assert (answer.code, answer.output) == (1, "")
    assert "job 7" in answer.errors
