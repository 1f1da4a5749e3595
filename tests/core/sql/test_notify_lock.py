"""The notify lock: who takes it is notified, and nobody is while it is free."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
import pytest

from core.sql.test_payloads_and_names import NAMES
from support import Connect, Connection
from support.sql.fixtures import fixture
from support.sql.helpers import Listener, call, insert, refused, rolled_back, set_queue


async def park(db: Connection, queue: str = "default") -> bool:
    taken: bool = await call(db, "park", queue=queue)
    return taken


@fixture
async def sleeper(connect: Connect) -> Connection:
    """A session that sleeps on its queue: it has the notify lock."""
    db = await connect()
    assert await park(db)
    return db


async def test_while_nobody_has_the_notify_lock_nothing_is_sent(
    db: Connection, connect: Connect
) -> None:
    listener = await Listener.start(await connect())
    await insert(db)

    assert await listener.heard() == []


@pytest.mark.usefixtures("sleeper")
async def test_while_somebody_has_it_all_who_listen_hear(
    db: Connection, connect: Connect
) -> None:
    listener = await Listener.start(await connect())
    await insert(db)

    assert await listener.heard() == ["default"]


async def test_a_queue_may_wake_always(db: Connection, connect: Connect) -> None:
    await set_queue(db, wakeups="always")
    listener = await Listener.start(await connect())
    await insert(db)
    await insert(db, queue="other")

    assert await listener.heard() == ["default"]


@pytest.mark.parametrize("name", NAMES)
async def test_each_queue_has_a_notify_lock_of_its_own(
    db: Connection, other: Connection, name: str
) -> None:
    assert await park(db, name)
    assert not await park(other, name)

    for near in {name.upper(), name.lower(), f" {name}", f"{name[:60]}x"} - {name}:
        assert await park(other, near)


@pytest.mark.usefixtures("sleeper")
async def test_the_notify_lock_is_one_s_at_a_time(db: Connection) -> None:
    assert not await park(db)


GIVE_UP: dict[str, Callable[[Connection], Awaitable[object]]] = {
    "unpark": lambda c: call(c, "unpark", queue="default"),
    "the end of the session": lambda c: c.close(),
}


@pytest.mark.parametrize("way", GIVE_UP)
async def test_it_can_be_taken_again_after(
    db: Connection, sleeper: Connection, way: str
) -> None:
    await GIVE_UP[way](sleeper)
    async with asyncio.timeout(5):
        while not await park(db):
            await asyncio.sleep(0.005)


async def test_a_rollback_does_not_give_it_up(
    db: Connection, sleeper: Connection
) -> None:
    async with rolled_back(sleeper):
        assert await park(sleeper, "other")

    assert not await park(db, "other")


async def test_who_goes_off_duty_passes_it_on(
    connect: Connect, sleeper: Connection
) -> None:
    reserve = await Listener.start(await connect(), "pgwake_duty")
    assert await call(sleeper, "unpark", queue="default")

    assert await reserve.heard() == ["default"]


async def test_who_is_muted_stays_on_duty(
    db: Connection, connect: Connect, sleeper: Connection
) -> None:
    listener = await Listener.start(await connect())
    assert await call(sleeper, "mute")
    await insert(db)
    assert await listener.heard() == []
    assert not await park(db)
    await call(sleeper, "unmute")
    await insert(db)

    assert await listener.heard() == ["default"]


async def test_one_may_go_on_duty_muted_and_off_again(
    db: Connection, sleeper: Connection
) -> None:
    assert await call(sleeper, "park", queue="q", muted=True)
    assert await call(sleeper, "unpark", queue="q", muted=True)

    assert await park(db, "q")


async def test_who_hears_that_duty_is_passed_finds_the_notify_lock_free(
    other: Connection, sleeper: Connection
) -> None:
    heard = asyncio.Event()
    await other.add_listener("pgwake_duty", lambda *_: heard.set())
    await call(sleeper, "unpark")
    await asyncio.wait_for(heard.wait(), 5)

    assert await park(other)


async def test_unpark_says_whether_one_was_on_duty(db: Connection) -> None:
    assert not await call(db, "unpark", muted=True)
    await park(db)
    assert await call(db, "unpark")


async def test_inserters_leave_no_lock_behind(connect: Connect, db: Connection) -> None:
    await asyncio.gather(*[insert(await connect()) for _ in range(8)])
    held = "select count(*) from pg_locks where locktype = 'advisory'"

    assert await db.fetchval(held) == 0


async def test_a_probe_does_not_deceive_who_takes_the_notify_lock(
    connect: Connect, db: Connection
) -> None:
    """Who is on duty tries until it has the notify lock: only probes are in the way."""
    producer = await connect()
    for _ in range(10):  # a busy machine may let the probe last longer than the tries
        await producer.execute("begin")
        await producer.execute(
            "select pg_advisory_xact_lock_shared(pgwake.notify_lock_key('q'))"
        )
        trying = asyncio.create_task(park(db, "q"))
        await asyncio.sleep(0.01)
        await producer.execute("commit")
        with suppress(asyncpg.LockNotAvailableError):
            assert await trying
            return
    pytest.fail("it has not tried again")


async def test_a_notify_lock_that_somebody_keeps_without_duty_is_told(
    db: Connection, other: Connection
) -> None:
    await other.execute("select pg_advisory_lock_shared(pgwake.notify_lock_key('q'))")
    with refused("55P03"):
        await park(db, "q")


@pytest.mark.parametrize("function", ["park", "unpark", "mute", "unmute", "pass_duty"])
async def test_a_queue_must_be_named(db: Connection, function: str) -> None:
    with refused("PW003"):
        await call(db, function, queue=None)


@pytest.mark.parametrize("function", ["unpark", "pass_duty", "claim_or_wait"])
async def test_a_name_that_no_queue_can_have_is_told_to_nobody(
    db: Connection, function: str
) -> None:
    for name in ("", "x" * 129, "x" * 8000):
        with refused("PW003"):
            await call(db, function, queue=name)


WRITES: dict[str, str] = {
    "insert": "insert into pgwake.jobs (kind) values ('a')",
    "enqueue": "select pgwake.enqueue('a')",
    "claim": "select pgwake.claim_batch('default', 1)",
    "cancel": "select pgwake.cancel_job(1)",
    "a change of policy": "insert into pgwake.queues (name) values ('q')",
}


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("write", WRITES)
async def test_who_writes_is_known_until_the_end(
    connect: Connect, db: Connection, write: str, end: str
) -> None:
    await insert(db)
    producer = await connect()
    await producer.execute("begin")
    assert await call(db, "open_writers") == []
    await producer.execute(WRITES[write])
    [writer] = await call(db, "open_writers")
    assert await call(producer, "open_writers") == []
    await producer.execute(end)
    assert await call(db, "open_writers") == []
    await producer.execute("begin; insert into pgwake.jobs (kind) values ('a')")

    # The same session, another transaction.
    assert writer not in await call(db, "open_writers")


async def test_a_prepared_transaction_writes_too(
    connect: Connect, db: Connection
) -> None:
    producer = await connect()
    await producer.execute("set pgwake.notify = off; begin")
    await insert(producer)
    await producer.execute("prepare transaction 'pgwake-test'")
    await producer.close()
    assert len(await call(db, "open_writers")) == 1
    await db.execute("rollback prepared 'pgwake-test'")

    assert await call(db, "open_writers") == []


async def test_who_reads_does_not_write(connect: Connect, db: Connection) -> None:
    reader = await connect()
    await reader.execute("begin; select from pgwake.jobs")

    assert await call(db, "open_writers") == []
