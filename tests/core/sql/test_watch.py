"""watch() and unwatch(): status events are sent while somebody watches."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection, wait_for
from support.sql.fixtures import fixture
from support.sql.helpers import (
    Listener,
    call,
    claim,
    insert,
    insert_many,
    pair,
    pairs,
    refused,
    rolled_back,
    rows,
    running,
    set_queue,
    sweep,
)

CHANNEL = "job_status_changed"
LOCK = "1885828973, 0"


@fixture
async def listener(connect: Connect) -> Listener:
    """A session that listens, and does not watch."""
    return await Listener.start(await connect(), CHANNEL)


@fixture
async def watcher(connect: Connect) -> Connection:
    """A session that watches, and does not listen."""
    session = await connect()
    await call(session, "watch")
    return session


async def queues(listener: Listener) -> list[str]:
    """The queues whose events were heard since the last call."""
    return [event["queue"] for event in await listener.events()]


async def watchers(db: Connection) -> int:
    """How many sessions of the database hold the watch lock."""
    count: int = await db.fetchval(
        "select count(*) from pg_locks where locktype = 'advisory'"
        " and classid = 1885828973 and objsubid = 2 and mode = 'ShareLock'"
        " and pid in (select pid from pg_stat_activity"
        " where datname = current_database())"
    )
    return count


async def life(db: Connection) -> None:
    """Every way of a job from one status to another."""
    held = await running(db)
    await call(db, "fail_job", **pair(held), retry_in=timedelta(0))
    (held,) = await claim(db)
    await call(db, "release_jobs", **pairs(held))
    await claim(db)
    await sweep(db, "1 hour")
    (held,) = await rows(db, "claim_next_job")
    await call(db, "fail_job", **pair(held), retryable=False)
    await call(db, "retry_job", job_id=held["id"])
    (held,) = await rows(db, "claim_next_job")
    await call(db, "complete_jobs", **pairs(held))


LIFE = [
    (None, "pending"),
    ("pending", "running"),
    ("running", "pending"),
    ("pending", "running"),
    ("running", "pending"),
    ("pending", "running"),
    ("running", "pending"),
    ("pending", "running"),
    ("running", "failed"),
    ("failed", "pending"),
    ("pending", "running"),
    ("running", "completed"),
]


async def test_nobody_watches_and_nothing_is_told(
    db: Connection, listener: Listener
) -> None:
    await life(db)

    assert await listener.heard() == []


@pytest.mark.usefixtures("watcher")
async def test_every_transition_is_told_while_somebody_watches(
    db: Connection, listener: Listener
) -> None:
    await life(db)

    events = await listener.events()
    assert [(e["old_status"], e["new_status"]) for e in events] == LIFE


@pytest.mark.parametrize("is_watched", [False, True])
async def test_a_statement_tells_each_queue_by_its_own_policy(
    db: Connection, connect: Connect, listener: Listener, is_watched: bool
) -> None:
    for policy in ("always", "never", "watched"):
        await set_queue(db, policy, status_events=policy)
    await set_queue(db, "of another policy", max_attempts=3)
    if is_watched:
        await call(await connect(), "watch")
    names = ["always", "never", "watched", "of another policy", "without a row"]
    await db.execute(
        "insert into pgwake.jobs (kind, queue) select 'k', unnest($1::text[])", names
    )
    told = names if is_watched else ["always"]
    told = [name for name in told if name != "never"]
    assert await queues(listener) == told
    held = [(await claim(db, queue=name))[0] for name in names]
    assert await queues(listener) == told
    await call(db, "complete_jobs", **pairs(*held))

    assert await queues(listener) == told


@pytest.mark.own_database  # and sessions that are not kept
@pytest.mark.parametrize("way", ["unwatch", "disconnect", "discard all"])
async def test_the_last_watcher_that_leaves_ends_it(
    db: Connection, connect: Connect, listener: Listener, way: str
) -> None:
    first, last = await connect(), await connect()
    for session in (first, last):
        await call(session, "watch")
    leave: dict[str, Any] = {
        "unwatch": lambda session: call(session, "unwatch"),
        "disconnect": lambda session: session.close(),
        "discard all": lambda session: session.execute("discard all"),
    }
    await leave[way](first)
    await insert(db)
    assert await queues(listener) == ["default"]
    await leave[way](last)

    async def nobody_is_left() -> bool:
        return await watchers(db) == 0

    await wait_for(nobody_is_left)
    await insert(db)

    assert await listener.heard() == []


async def test_watching_twice_is_watching_once(
    db: Connection, watcher: Connection, listener: Listener
) -> None:
    await call(watcher, "watch")
    assert await watchers(db) == 1
    await insert(db)
    assert await queues(listener) == ["default"]
    await call(watcher, "unwatch")
    await insert(db)

    assert await listener.heard() == []


async def test_who_does_not_watch_may_give_it_up(
    db: Connection, connect: Connect
) -> None:
    notices: list[object] = []
    session = await connect()
    session.add_log_listener(lambda _, notice: notices.append(notice))
    await call(session, "unwatch")

    assert await watchers(db) == 0
    assert notices == []


async def test_a_session_that_watches_alone_hears_of_its_own_jobs(
    connect: Connect,
) -> None:
    session = await connect()
    listener = await Listener.start(session, CHANNEL)
    await call(session, "watch")
    await insert(session)
    assert await queues(listener) == ["default"]
    await call(session, "unwatch")
    await insert(session)

    assert await listener.heard() == []


async def test_a_transaction_that_is_older_than_the_watch_tells_what_it_does_later(
    db: Connection, connect: Connect, listener: Listener
) -> None:
    transaction = db.transaction(isolation="repeatable_read")
    await transaction.start()
    await db.execute("select count(*) from pgwake.jobs")
    await insert(db, queue="before")
    await call(await connect(), "watch")
    await insert(db, queue="after")
    await transaction.commit()

    assert await queues(listener) == ["after"]


async def test_a_watch_that_is_rolled_back_goes_on_until_it_is_given_up(
    db: Connection, connect: Connect, listener: Listener
) -> None:
    session = await connect()
    async with rolled_back(session):
        await call(session, "watch")
    await insert(db)
    assert await queues(listener) == ["default"]
    await call(session, "watch")
    assert await watchers(db) == 1
    await call(session, "unwatch")
    await insert(db)

    assert await listener.heard() == []


async def test_a_watcher_in_a_transaction_hears_when_it_ends(
    db: Connection, connect: Connect
) -> None:
    session = await connect()
    listener = await Listener.start(session, CHANNEL)
    async with session.transaction():
        await call(session, "watch")
        await insert(db)

    assert await queues(listener) == ["default"]


@pytest.mark.usefixtures("watcher")
async def test_with_notify_off_nothing_is_told_to_watchers(
    db: Connection, listener: Listener
) -> None:
    await db.execute("set pgwake.notify = off")
    await life(db)

    assert await listener.heard() == []


@pytest.mark.usefixtures("watcher")
async def test_a_roll_back_tells_nothing(db: Connection, listener: Listener) -> None:
    async with rolled_back(db):
        await insert(db)

    assert await listener.heard() == []


async def test_a_senders_look_makes_watch_try_again(
    db: Connection, connect: Connect
) -> None:
    sender, session = await connect(), await connect()
    await sender.execute(f"select pg_advisory_lock({LOCK})")
    watching = asyncio.create_task(call(session, "watch"))
    pid = session.get_server_pid()

    async def tries_again() -> bool:
        event = await db.fetchval(
            "select wait_event from pg_stat_activity where pid = $1", pid
        )
        return bool(event == "PgSleep")

    await wait_for(tries_again)
    assert await watchers(db) == 0
    await sender.execute(f"select pg_advisory_unlock({LOCK})")
    await watching

    assert await watchers(db) == 1


async def test_a_watch_that_can_not_be_had_is_refused(
    db: Connection, connect: Connect
) -> None:
    await db.execute(f"select pg_advisory_lock({LOCK})")
    session = await connect()
    with refused("55P03") as caught:
        await call(session, "watch")
    assert "pg_locks" in str(caught.value.hint)
    await db.execute(f"select pg_advisory_unlock({LOCK})")
    await insert(session)

    assert await watchers(db) == 0


async def test_a_look_leaves_no_lock_behind(db: Connection) -> None:
    async with db.transaction():
        await life(db)
        held = await db.fetchval(
            "select count(*) from pg_locks where locktype = 'advisory'"
            " and classid = 1885828973"
        )

    assert held == 0


@pytest.mark.usefixtures("watcher")
async def test_a_statement_of_many_jobs_tells_each_once(
    db: Connection, listener: Listener
) -> None:
    await insert_many(db, 10_000)

    ids = [event["id"] for event in await listener.events()]
    assert len(ids) == len(set(ids)) == 10_000


@pytest.mark.own_database
@pytest.mark.parametrize(("watches", "looks"), [(False, 0), (True, 1)])
async def test_a_statement_looks_once_however_many_queues_there_are(
    db: Connection, watches: bool, looks: int
) -> None:
    await db.execute(
        "insert into pgwake.queues (name)"
        " select 'q' || n from generate_series(1, 999) n"
    )
    if watches:
        await db.execute("select pgwake.watch()")
    async with db.transaction():
        await db.execute(
            "insert into pgwake.jobs (kind, queue)"
            " select 'k', 'q' || n from generate_series(1, 999) n"
        )
        scans = await db.fetchrow(
            "select pg_stat_get_xact_numscans('pgwake.queues'::regclass) as whole,"
            " pg_stat_get_xact_numscans('pgwake.queues_status_events_idx'::regclass)"
        )

    assert scans is not None
    assert tuple(scans) == (0, looks)
