"""One call that claims, or goes on duty and says how long to sleep."""

import asyncio
import contextlib
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from support import Connect, Connection
from support.sql.helpers import Listener, Row, call, insert, pair, refused, rows

MINUTE = timedelta(minutes=1)


async def ask(db: Connection, queue: str = "default", **more: Any) -> Row:
    """The one row that a consumer gets."""
    (row,) = await rows(db, "claim_or_wait", queue=queue, **more)
    return row


async def is_free(db: Connection, queue: str = "default") -> bool:
    """Whether nobody is on duty for the queue."""
    if await call(db, "park", queue=queue):
        return bool(await call(db, "unpark", queue=queue))
    return False


async def set_since(db: Connection, value: str) -> None:
    """Write since when it is on duty (negative: off), in place of the function."""
    setting = await db.fetchval(
        "select 'pgwake.duty_'"
        " || translate(pgwake.notify_lock_key('default')::text, '-', '_')"
    )
    assert await db.fetchval("select current_setting($1)", setting) != ""
    await db.execute("select set_config($1, $2, false)", setting, value)


async def test_a_job_comes_as_a_claim_has_it(db: Connection, connect: Connect) -> None:
    await insert(db, payload={"n": 1}, metadata={"from": "me"})
    await insert(db, payload={"n": 2}, metadata={"from": "me"})

    (claimed,) = await rows(db, "claim_next_job", worker="w", lease=MINUTE)
    job = await ask(db, worker="w", lease=MINUTE)

    assert (job.pop("wait_seconds"), job.pop("is_on_duty")) == (None, False)
    assert claimed.pop("queue") == "default"
    assert job.keys() == claimed.keys()
    assert job["payload"] == {"n": 2}
    same = ("kind", "attempt", "max_attempts", "metadata", "options")
    assert [job[name] for name in same] == [claimed[name] for name in same]
    assert await is_free(await connect())


async def test_without_a_job_it_goes_on_duty(db: Connection, other: Connection) -> None:

    row = await ask(db)

    assert (row["id"], row["wait_seconds"], row["is_on_duty"]) == (None, 0.005, True)
    assert not await is_free(other)


async def test_a_job_that_comes_just_before_it_is_on_duty_is_found(
    db: Connection, connect: Connect
) -> None:
    producer = await connect()
    lock = "pgwake.notify_lock_key('default')"
    while True:
        consumer = await connect()
        await producer.execute("begin")
        # In the way of who takes the notify lock, as a probe is.
        await producer.execute(f"select pg_advisory_xact_lock_shared({lock})")
        asking = asyncio.create_task(ask(consumer))
        await asyncio.sleep(0.01)  # it has looked, and found nothing
        job_id = await insert(producer)
        await producer.execute("commit")
        try:
            assert (await asking)["id"] == job_id
        except asyncpg.LockNotAvailableError:  # a busy machine has kept it too long
            await db.execute("delete from pgwake.jobs")
            await consumer.close()
        else:
            break

    assert await is_free(db)


async def test_on_duty_it_hears_of_a_job_and_off_duty_it_tells_the_others(
    db: Connection, connect: Connect
) -> None:
    consumer, others = await connect(), await connect()
    hears = await Listener.start(consumer)
    duty = await Listener.start(others, "pgwake_duty")
    await ask(consumer)

    job_id = await insert(db)
    assert await hears.heard() == ["default"]
    assert (await ask(consumer))["id"] == job_id
    assert await duty.heard() == ["default"]
    await insert(db)
    assert await hears.heard() == []


async def test_beside_one_on_duty_it_waits_to_be_passed_the_duty(
    db: Connection, connect: Connect
) -> None:
    await ask(await connect())

    row = await ask(db, poll=MINUTE)
    again = await ask(db, poll=MINUTE)
    assert (row["id"], row["wait_seconds"], row["is_on_duty"]) == (None, 60, False)
    assert (again["id"], again["is_on_duty"]) == (None, False)
    assert 0 < again["wait_seconds"] < 60


async def test_who_is_passed_the_duty_claims_if_the_duty_lock_is_free(
    db: Connection, connect: Connect
) -> None:
    """Else whoever has it has claimed: one job does not cause a claim for each."""
    first, second = await connect(), await connect()
    await ask(first, poll=MINUTE)
    await ask(second, poll=MINUTE)
    await insert(db)
    one, two = await ask(second, poll=MINUTE), await ask(first, poll=MINUTE)

    assert (one["id"], two["id"]) == (None, 1)
    await insert(db)
    assert (await ask(second, poll=MINUTE))["id"] == 2


async def test_off_duty_it_claims_when_its_poll_is_due(
    db: Connection, connect: Connect
) -> None:
    poll = timedelta(milliseconds=50)
    await call(await connect(), "park")
    assert (await ask(db, poll=poll))["wait_seconds"] == 0.05
    await insert(db)
    await asyncio.sleep(0.06)

    assert (await ask(db, poll=poll))["id"] is not None


@pytest.mark.parametrize("since", ["4000000000", "-4000000000"])
async def test_a_clock_that_was_put_back_makes_nobody_spin_or_sleep(
    db: Connection, other: Connection, since: str
) -> None:
    if since.startswith("-"):
        await call(other, "park")
    await ask(db)
    await set_since(db, since)
    row = await ask(db)
    assert 0.005 <= row["wait_seconds"] <= 5
    await asyncio.sleep(0.05)
    row = await ask(db)
    assert 0.05 <= row["wait_seconds"] <= 5


async def test_it_waits_as_long_as_it_has_been_on_duty_and_no_longer_than_the_poll(
    db: Connection,
) -> None:
    began = time.monotonic()
    await ask(db)
    await asyncio.sleep(0.05)
    row = await ask(db)
    assert 0.05 <= row["wait_seconds"] <= time.monotonic() - began
    assert (await ask(db, poll=MINUTE / 3000))["wait_seconds"] == 0.02


async def test_it_does_not_wait_beyond_the_next_job(db: Connection) -> None:
    await insert(db, run_at=datetime.now(UTC) + MINUTE)
    await ask(db)
    await set_since(db, "1")  # long ago

    row = await ask(db, poll=timedelta(hours=1))
    assert row["id"] is None
    assert 0 < row["wait_seconds"] <= 60


async def test_a_paused_queue_with_due_jobs_does_not_make_it_spin(
    db: Connection,
) -> None:
    await call(db, "pause_queue", queue="default")
    await insert(db)
    await ask(db)
    await asyncio.sleep(0.03)

    assert (await ask(db))["wait_seconds"] >= 0.03


async def test_after_a_job_it_begins_anew(db: Connection) -> None:
    await ask(db)
    await insert(db)
    assert (await ask(db))["id"] is not None
    assert await is_free(db)
    assert (await ask(db))["wait_seconds"] == 0.005


async def test_it_is_on_duty_for_several_queues(
    db: Connection, other: Connection
) -> None:
    await ask(db, "a")
    await ask(db, "b")
    await insert(db, queue="a")
    assert (await ask(db, "a"))["id"] is not None
    assert (await is_free(other, "a"), await is_free(other, "b")) == (True, False)


async def test_a_rollback_leaves_no_duty_that_is_never_given_up(
    db: Connection, connect: Connect
) -> None:
    await db.execute("begin")
    await ask(db)
    await db.execute("rollback")

    assert (await ask(db))["wait_seconds"] == 0.005
    await insert(db)
    assert (await ask(db))["id"] is not None
    assert await is_free(await connect())


async def test_who_went_off_duty_by_hand_goes_on_again(
    db: Connection, connect: Connect
) -> None:
    await ask(db)
    assert await call(db, "unpark")
    assert (await ask(db))["wait_seconds"] == 0.005
    assert not await is_free(await connect())


async def test_how_numbers_are_printed_does_not_matter(db: Connection) -> None:
    await db.execute("set extra_float_digits = -15")
    await ask(db)
    await asyncio.sleep(0.05)

    assert (await ask(db))["wait_seconds"] >= 0.05


async def test_a_setting_that_somebody_spoilt_does_no_harm(db: Connection) -> None:
    await ask(db)
    await set_since(db, "soon")

    assert (await ask(db))["wait_seconds"] == 0.005


@pytest.mark.parametrize("poll", [None, 0 * MINUTE, -MINUTE, timedelta(days=2)])
async def test_a_poll_that_is_none_is_refused(
    db: Connection, connect: Connect, poll: timedelta | None
) -> None:
    job_id = await insert(db)
    with refused("PW003"):
        await ask(db, poll=poll)
    assert (await ask(db))["id"] == job_id
    assert await is_free(await connect())


async def test_a_queue_must_be_named(db: Connection) -> None:
    with refused("PW003"):
        await call(db, "claim_or_wait", queue=None)


async def test_no_job_waits_for_the_poll(connect: Connect) -> None:
    """Consumers that poll each hour; some transactions stay open for a while."""
    total, done = 120, asyncio.Event()
    claimed: list[int] = []

    async def consume(session: Connection) -> None:
        heard: asyncio.Queue[tuple[str, object]] = asyncio.Queue()

        def hear(_c: object, _pid: int, channel: str, queue: object) -> None:
            heard.put_nowait((channel, queue))

        for channel in ("pgwake", "pgwake_duty"):
            await session.add_listener(channel, hear)
        while not done.is_set():
            while not heard.empty():
                heard.get_nowait()
            row = await ask(session, poll=timedelta(hours=1))
            if row["id"] is not None:
                claimed.append(row["id"])
                await call(session, "complete_job", **pair(row))
                if len(claimed) == total:
                    done.set()
                continue
            wakes = {"pgwake_duty", "pgwake"} if row["is_on_duty"] else {"pgwake_duty"}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(row["wait_seconds"]):
                    while (await heard.get())[0] not in wakes:
                        pass

    async def produce(session: Connection, dice: random.Random, count: int) -> None:
        for _ in range(count):
            await session.execute("begin")
            await insert(session)
            await asyncio.sleep(dice.choice([0, 0, 0.001, 0.02, 0.2]))
            await session.execute("commit")
            await asyncio.sleep(dice.choice([0, 0.01, 0.05]))

    consumers = [asyncio.create_task(consume(await connect())) for _ in range(3)]
    await asyncio.gather(
        *[
            produce(await connect(), random.Random(n), total // 4)  # noqa: S311
            for n in range(4)
        ]
    )
    async with asyncio.timeout(20):
        await done.wait()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    assert len(claimed) == len(set(claimed)) == total
