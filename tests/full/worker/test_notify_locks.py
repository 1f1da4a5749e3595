"""Who of several workers is woken, with an hour between their polls."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack

import pytest

from pgwake import Registry, Worker
from pgwake.engine.lifeline.notify_lock import NotifyLock, settle
from pgwake.engine.mailbox import Mailbox, Role, Wish
from support import Connect, Connection, wait_for
from support.sql.helpers import call, insert, job
from support.worker.helpers import (
    all_ended,
    asleep,
    embedded,
    ended,
    in_status,
    insert_some,
    session_on_duty,
)
from support.worker.metrics import Samples, gauge, wakeups
from support.worker.processes import Diary, StartProcess
from support.worker.registries import quick, waiting


def claims(worker: Worker) -> float:
    """How often a worker has claimed, or tried."""
    return Samples(worker.metrics.render()).total("pgwake_claim_seconds")


def is_still(seen: list[float], value: float) -> bool:
    """Whether a value has been the same at fifty looks."""
    seen.append(value)
    return len(seen) > 50 and len(set(seen[-50:])) == 1


async def test_one_job_causes_one_claim_whoever_else_sleeps(
    connection: Connection, database: str
) -> None:
    async with AsyncExitStack() as stack:
        holder = await stack.enter_async_context(embedded(database, quick()))
        await asleep(holder)
        others = [
            await stack.enter_async_context(embedded(database, quick()))
            for _ in range(4)
        ]
        for other in others:
            await reserve(other)
        workers = [holder, *others]
        seen: list[float] = []  # until the looks of their start are over
        await wait_for(lambda: is_still(seen, sum(map(claims, workers))))
        before = [claims(worker) for worker in workers]
        for _ in range(5):
            await ended(connection, await insert(connection, "quick"))
            await asyncio.sleep(0.1)  # not so fast that it were busy
        after = [claims(worker) for worker in workers]

    assert after[0] - before[0] == 5
    assert after[1:] == before[1:]


async def reserve(worker: Worker) -> None:
    """Wait until a worker sleeps, and knows that another has the notify lock."""

    async def knows() -> bool:
        lifeline = worker._lifeline
        if lifeline is None:
            return False
        return lifeline._listener._notify_locks["default"].mailbox.is_elsewhere

    await wait_for(knows)


async def test_who_changes_its_mind_at_once_hears_that_it_is_still_on_duty(
    connection: Connection,
) -> None:
    mailbox = Mailbox("default")
    mailbox.connect(lambda: None)
    lock = NotifyLock(mailbox)

    async def wish(*wishes: Wish) -> None:
        mailbox.woken.clear()
        for each in wishes:
            mailbox.want(each)
        await asyncio.sleep(0)  # they arrive
        await settle(connection, [lock], is_limited=False)
        async with asyncio.timeout(1):
            await mailbox.woken.wait()
        assert (mailbox.role, mailbox.cause) == (Role.ON_DUTY, "lock")

    await wish(Wish.NAP)
    await wish(Wish.WORK, Wish.NAP)  # before the first could be settled


async def test_a_worker_without_room_passes_the_duty_on_though_it_was_not_full(
    connection: Connection, database: str
) -> None:
    """It has claimed ahead at the rate of quick jobs when a slow one takes its slot."""
    registry, go = waiting("hold")
    registry.job("quick")(lambda: None)
    async with (
        embedded(database, registry, queues=("default:1",)) as first,
        embedded(database, registry, queues=("default:1",)) as second,
    ):
        await insert_some(connection, "quick", 500)
        await connection.execute(
            "insert into pgwake.jobs (kind)"
            " select case when n = 1 then 'hold' else 'quick' end"
            " from generate_series(1, 50) as n"
        )
        held = "select claimed_by from pgwake.jobs_live where kind = 'hold'"
        await wait_for(lambda: connection.fetchval(held))
        holder = await connection.fetchval(held)
        row = await ended(connection, await insert(connection, "quick"))
        go.set()
        await all_ended(connection)

    assert row["claimed_by"] == ({first.name, second.name} - {holder}).pop()


async def test_a_worker_whose_slots_are_taken_passes_the_duty_on(
    connection: Connection, database: str
) -> None:
    registry, go = waiting("hold")
    queues = ("default:1",)
    async with (
        embedded(database, registry, queues=queues) as first,
        embedded(database, registry, queues=queues) as second,
        embedded(database, registry, queues=queues) as third,
    ):
        ids = [await insert(connection, "hold") for _ in range(3)]
        for job_id in ids:
            await in_status(connection, job_id, "running")
        claimed_by = {(await job(connection, i))["claimed_by"] for i in ids}
        go.set()
        await all_ended(connection)

    assert claimed_by == {first.name, second.name, third.name}


async def test_a_busy_queue_is_silent(
    connection: Connection, database: str, connect: Connect
) -> None:
    """While jobs come fast, the worker looks instead of being woken by each."""
    heard: list[object] = []
    listener = await connect()
    await listener.add_listener("pgwake", lambda *_: heard.append(_))
    producers = [connection, *[await connect() for _ in range(3)]]  # fast under load
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        for _ in range(250):
            await asyncio.gather(*(insert(one, "quick") for one in producers))
        await all_ended(connection)
        assert wakeups(worker, cause="poll") == 0

    assert len(heard) < 300


async def test_a_queue_whose_jobs_come_one_at_a_time_is_not_silent(
    connection: Connection, database: str, connect: Connect
) -> None:
    """Each comes when the one before has begun: slower than claims are answered."""
    registry = Registry()
    begun = asyncio.Event()

    @registry.job("quick")
    async def begin() -> None:
        begun.set()

    heard: list[object] = []
    listener = await connect()
    await listener.add_listener("pgwake", lambda *_: heard.append(_))
    async with embedded(database, registry) as worker:
        await asleep(worker)
        for _ in range(100):
            begun.clear()
            await insert(connection, "quick")
            await begun.wait()

    assert len(heard) > 50


async def test_a_worker_that_stops_passes_the_duty_on(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as second:
        await asleep(second)
        async with embedded(database, quick()) as first:
            await reserve(first)
            # The roles change when the second is told to stop.
            second.stop()
            await asleep(first)
            row = await ended(connection, await insert(connection, "quick"))

    assert row["claimed_by"] == first.name


async def test_a_worker_whose_loop_is_blocked_passes_the_duty_on(
    connection: Connection, start_application: StartProcess, diary: Diary, database: str
) -> None:
    first = await start_application(queues="default:2")
    await insert(connection, "block", payload={"seconds": 30})
    await diary.has(event="start", pid=first.pid)
    async with embedded(database, quick()) as second:
        await asleep(second)
        row = await ended(connection, await insert(connection, "quick"), within=15)

    assert row["claimed_by"] == second.name


async def test_no_job_waits_for_a_process_that_was_on_duty_and_ended(
    connection: Connection, start_worker: StartProcess
) -> None:
    for _ in range(2):
        await start_worker("--queue", "default:2", processes=2)
    for number in (signal.SIGKILL, signal.SIGTERM) * 2:
        os.kill(await notify_lock_holder(connection), number)
        ids = [await insert(connection, "note") for _ in range(20)]
        for job_id in ids:
            await ended(connection, job_id)


async def notify_lock_holder(connection: Connection) -> int:
    """The process that has the notify lock, by what its session's name says."""
    await wait_for(lambda: session_on_duty(connection))
    row = await session_on_duty(connection)
    assert row is not None
    return int(row["application_name"].split(":")[2])


@pytest.mark.parametrize("what", ["insert", "lock"])
async def test_a_job_that_an_open_transaction_hides_is_come_back_for_at_its_end(
    connection: Connection, connect: Connect, database: str, what: str
) -> None:
    other = await connect()
    job_id = 0 if what == "insert" else await insert(connection, "quick")
    await other.execute("begin")
    if what == "insert":
        # Nobody has the notify lock: it will be silent.
        job_id = await insert(other, "quick")
    else:
        await call(other, "cancel_job", job_id=job_id)
    async with embedded(database, quick()) as worker:
        await wait_for(lambda: gauge(worker, "notify_lock_held") == 1)
        await asyncio.sleep(0.3)
        await other.execute("commit" if what == "insert" else "rollback")
        row = await ended(connection, job_id)
        assert wakeups(worker, cause="poll") == 0

    assert row["status"] == "completed"


async def test_a_kind_that_the_holder_does_not_know_reaches_who_does(
    connection: Connection, database: str
) -> None:
    other = Registry()

    @other.job("strange")
    async def strange() -> None: ...

    async with embedded(database, quick()) as holder:
        await asleep(holder)
        async with embedded(database, other):
            row = await ended(connection, await insert(connection, "strange"))

    assert row["status"] == "completed"
