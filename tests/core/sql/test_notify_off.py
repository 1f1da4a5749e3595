"""Where no notification is sent, jobs are found all the same."""

import pytest

from support import Connect, Connection
from support.sql.fixtures import fixture
from support.sql.helpers import Listener, call, claim, insert, job_in, set_queue


@fixture
async def listener(connect: Connect) -> Listener:
    return await Listener.with_notify_locks(await connect(), "default", "q")


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_with_notify_off_a_session_is_silent(
    db: Connection, listener: Listener, state: str
) -> None:
    await db.execute("set pgwake.notify = off")
    await set_queue(db, status_events="always")
    job_id = await job_in(db, state)
    await call(db, "retry_job", job_id=job_id)

    assert await listener.heard() == []


async def test_with_notify_off_a_producer_can_use_two_phase_commit(
    connect: Connect, db: Connection, listener: Listener
) -> None:
    producer = await connect()
    await producer.execute("set pgwake.notify = off; begin")
    job_id = await insert(producer)
    await producer.execute("prepare transaction 'pgwake-test'")
    assert await claim(db) == []
    await producer.execute("commit prepared 'pgwake-test'")

    assert [claimed["id"] for claimed in await claim(db)] == [job_id]
    assert await listener.heard() == []


@pytest.mark.parametrize("value", ["on", ""])
async def test_notify_is_on_by_default_and_when_emptied(
    db: Connection, listener: Listener, value: str
) -> None:
    await db.execute("set pgwake.notify = off")
    await db.execute("select set_config('pgwake.notify', $1, false)", value)
    await insert(db)

    assert await listener.heard() == ["default"]


async def test_rows_that_arrive_without_triggers_are_found_all_the_same(
    connect: Connect, db: Connection, admin_url: str, listener: Listener
) -> None:
    replica = await connect(admin_url)
    await replica.execute("set session_replication_role = replica")
    ids = [await insert(replica) for _ in range(5)]

    assert await listener.heard() == []
    assert [claimed["id"] for claimed in await claim(db, 9)] == ids
