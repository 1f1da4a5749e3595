"""Children, their parents, and who ends these: at once, in sessions of their own."""

import asyncio
import contextlib
import random
from typing import Any

import asyncpg
import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Row,
    blocking,
    call,
    child,
    claim,
    claim_batch,
    claimed_ids,
    complete,
    insert,
    job,
    pair,
    pairs,
    refused,
    rolled_back,
    row_locked,
    set_clock,
    status,
    waits,
)

REPLACE = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}

COMPLETED = ["completed"]


async def running_parent(db: Connection) -> Row:
    """A job that runs, in a queue of its own."""
    await insert(db, queue="parents")
    (held,) = await claim(db, queue="parents")
    return held


async def ids_later(db: Connection) -> list[int]:
    """Claim when rechecks that were put off are due again."""
    await set_clock(db, "1 second")
    return await claimed_ids(db)


async def test_a_child_that_comes_while_its_parents_end_is_uncommitted(
    db: Connection, other: Connection
) -> None:
    held = await running_parent(db)
    async with other.transaction():
        await complete(other, held)
        joined = await child(db, held["id"])
        assert await claimed_ids(db) == [], "its parent is locked"
        row = await claim_batch(db)
        assert row["next_run_at"] is not None, "somebody is to look again"
    assert await ids_later(db) == [joined]


async def test_a_child_whose_parents_end_is_rolled_back_goes_on_waiting(
    db: Connection, other: Connection
) -> None:
    held = await running_parent(db)
    async with rolled_back(other):
        await complete(other, held)
        joined = await child(db, held["id"])
        assert await claimed_ids(db) == []
    assert await ids_later(db) == []
    await complete(db, held)
    assert await claimed_ids(db) == [joined]


@pytest.mark.parametrize("policy", ["cancel", "run"])
async def test_a_parent_that_fails_while_it_is_locked_counts_as_failed(
    db: Connection, other: Connection, policy: str
) -> None:
    held = await running_parent(db)
    async with other.transaction():
        await call(other, "fail_job", **pair(held), retryable=False)
        joined = await child(db, held["id"], on_parent_failure=policy)
        assert await claimed_ids(db) == []
    assert await ids_later(db) == ([joined] if policy == "run" else [])
    if policy == "cancel":
        assert await status(db, joined) == "cancelled"


async def test_a_parent_that_ends_before_its_child_commits_admits_it(
    db: Connection, other: Connection
) -> None:
    held = await running_parent(db)
    async with other.transaction():
        joined = await child(other, held["id"])
        await complete(db, held)
        assert await claimed_ids(db) == []
    assert await claimed_ids(db) == [joined]


async def test_who_ends_a_parent_waits_for_who_checks_its_child_and_frees_it(
    connect: Connect, db: Connection
) -> None:
    held = await running_parent(db)
    joined = await child(db, held["id"])
    looking, ending = await connect(), await connect()
    async with blocking(
        looking, ending, call(ending, "complete_jobs", **pairs(held))
    ) as task:
        assert await claimed_ids(looking) == []
    assert await task == COMPLETED
    assert await claimed_ids(db) == [joined]


async def test_who_ends_a_parent_frees_no_child_whose_recheck_was_rolled_back(
    connect: Connect, db: Connection
) -> None:
    held = await running_parent(db)
    joined = await child(db, held["id"])
    looking, ending = await connect(), await connect()
    async with rolled_back(looking):
        assert await claimed_ids(looking) == []
        task = asyncio.create_task(call(ending, "complete_jobs", **pairs(held)))
        await waits(ending, task, db)
    assert await task == COMPLETED
    assert await claimed_ids(db) == [joined]


@pytest.mark.parametrize("has_a_child", [False, True])
@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_who_ends_a_parent_by_an_old_snapshot_has_to_repeat_it(
    connect: Connect, db: Connection, isolation: Any, has_a_child: bool
) -> None:
    held = await running_parent(db)
    children = []
    if has_a_child:
        children = [await child(db, held["id"])]
        assert await claimed_ids(db) == []
    ending = await connect()
    async with rolled_back(ending, isolation=isolation):
        await ending.execute("select from pgwake.jobs")
        children.append(await child(db, held["id"]))
        assert await claimed_ids(db) == []
        with pytest.raises(asyncpg.SerializationError):
            await complete(ending, held)

    async with ending.transaction(isolation=isolation):
        await complete(ending, held)
    assert await claimed_ids(db) == children


async def test_a_claim_under_repeatable_read_leaves_children_to_others(
    db: Connection, other: Connection
) -> None:
    held = await running_parent(db)
    joined = await child(db, held["id"])
    await complete(db, held)
    plain = await insert(db)
    async with other.transaction(isolation="repeatable_read"):
        assert await claimed_ids(other) == [plain]
        row = await claim_batch(other)
        assert row["next_run_at"] <= row["claimed_at"]
    assert await claimed_ids(db) == [joined]


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize("ends", ["completed", "failed"])
async def test_two_parents_that_end_at_once_free_their_child(
    connect: Connect, db: Connection, is_seen: bool, ends: str
) -> None:
    first, second = await running_parent(db), await running_parent(db)
    joined = await child(db, first["id"], second["id"])
    if is_seen:
        assert await claimed_ids(db) == []
    one, two = await connect(), await connect()
    async with one.transaction(), two.transaction():
        await complete(one, first)
        if ends == "completed":
            await complete(two, second)
        else:
            await call(two, "fail_job", **pair(second), retryable=False)
        assert await claimed_ids(db) == []
    assert await ids_later(db) == ([joined] if ends == "completed" else [])
    if ends == "failed":
        assert await status(db, joined) == "cancelled"


async def test_the_last_parent_frees_its_child_in_its_own_transaction(
    db: Connection,
) -> None:
    first, second = await running_parent(db), await running_parent(db)
    joined = await child(db, first["id"], second["id"])
    assert await claimed_ids(db) == []
    await complete(db, first)
    assert await status(db, joined) == "waiting"
    async with rolled_back(db):
        await complete(db, second)
        assert await status(db, joined) == "pending"
    assert await status(db, joined) == "waiting"
    await complete(db, second)
    assert await claimed_ids(db) == [joined]


async def test_a_parent_locked_by_a_stranger_is_seen_again_when_it_is_free(
    db: Connection, other: Connection
) -> None:
    free, locked = await running_parent(db), await running_parent(db)
    joined = await child(db, free["id"], locked["id"])
    async with row_locked(other, locked["id"]):
        assert await claimed_ids(db) == []
        assert (await job(db, free["id"]))["has_children"] is True
        assert await ids_later(db) == []
    await set_clock(db, "2 seconds")
    assert await claimed_ids(db) == []
    assert (await job(db, locked["id"]))["has_children"] is True
    await complete(db, free, locked)
    assert await claimed_ids(db) == [joined]


async def test_a_locked_child_is_rechecked_when_it_is_free(
    db: Connection, other: Connection
) -> None:
    held = await running_parent(db)
    joined = await child(db, held["id"])
    await complete(db, held)
    async with row_locked(other, joined):
        row = await claim_batch(db)
        assert row["ids"] == []
        assert row["next_run_at"] is not None
    assert await ids_later(db) == [joined]


async def test_a_recheck_that_another_has_is_not_waited_for(
    db: Connection, other: Connection
) -> None:
    held = await running_parent(db)
    joined = await child(db, held["id"])
    await complete(db, held)
    async with rolled_back(other):
        assert await claimed_ids(other) == [joined]
        row = await claim_batch(db)
        assert row["ids"] == []
        assert row["next_run_at"] <= row["claimed_at"], "his rollback tells nobody"
    assert await claimed_ids(db) == [joined]


async def test_a_child_cancelled_while_its_parent_ends_is_not_let_in(
    db: Connection, other: Connection
) -> None:
    held = await running_parent(db)
    joined = await child(db, held["id"])
    assert await claimed_ids(db) == []
    async with other.transaction():
        assert await call(other, "cancel_job", job_id=joined) == "cancelled"
        await complete(db, held)
        assert await claimed_ids(db) == []
    assert await ids_later(db) == []
    assert await status(db, joined) == "cancelled"


async def test_a_child_replaced_while_its_parent_ends_goes_by_its_new_parents(
    connect: Connect, db: Connection
) -> None:
    old, new = await running_parent(db), await running_parent(db)
    job_id = await call(db, "enqueue", **REPLACE, depends_on=[old["id"]])
    assert await claimed_ids(db) == []
    ending, replacing = await connect(), await connect()
    async with ending.transaction(), replacing.transaction():
        await call(replacing, "enqueue", **REPLACE, depends_on=[new["id"]])
        await call(ending, "fail_job", **pair(old), retryable=False)
        assert await claimed_ids(db) == []
    assert await ids_later(db) == []
    await complete(db, new)
    assert await claimed_ids(db) == [job_id]


async def test_a_child_retried_while_its_parent_ends_is_not_lost(
    connect: Connect, db: Connection
) -> None:
    held = await running_parent(db)
    joined = await child(db, held["id"])
    assert await claimed_ids(db) == []
    await call(db, "cancel_job", job_id=joined)
    ending, retrying = await connect(), await connect()
    async with ending.transaction():
        await complete(ending, held)
        async with retrying.transaction():
            await call(retrying, "retry_job", job_id=joined)
        assert await claimed_ids(db) == []
    assert await ids_later(db) == [joined]


async def test_a_child_is_refused_whose_parent_nobody_else_sees_yet(
    db: Connection, other: Connection
) -> None:
    async with other.transaction():
        parent = await insert(other)
        with refused("PW003"):
            await child(db, parent)
    joined = await child(db, parent)
    (held,) = await claim(db, 100)
    await complete(db, held)
    assert await claimed_ids(db) == [joined]


async def test_whoever_ends_claims_and_adds_at_once_every_child_runs_once_in_order(
    connect: Connect, db: Connection
) -> None:
    loop = asyncio.get_running_loop()
    stop = loop.time() + 3
    added: list[int] = []
    done: list[int] = []
    stopped: list[int] = []  # who adds no more

    async def add(session: Connection, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311, not for secrets
        while loop.time() < stop:
            parents = chance.sample(added[-30:], min(len(added), chance.randint(0, 3)))
            columns = {"depends_on": parents} if parents else {}
            added.append(await insert(session, queue=f"q{seed % 2}", **columns))
        stopped.append(seed)

    async def work(session: Connection, seed: int, isolation: Any) -> None:
        while len(stopped) < 3 or len(done) < len(added):
            held = await claim(session, 7, queue=f"q{seed % 2}")
            while held:
                with contextlib.suppress(asyncpg.SerializationError):
                    async with session.transaction(isolation=isolation):
                        await complete(session, *held)
                    done.extend(job["id"] for job in held)
                    break
            else:
                await asyncio.sleep(0.01)

    sessions = [await connect() for _ in range(7)]
    await asyncio.gather(
        *(add(sessions.pop(), seed) for seed in range(3)),
        *(
            work(sessions.pop(), seed, isolation)
            for isolation in ("read_committed", "repeatable_read")
            for seed in range(2)
        ),
    )
    assert sorted(done) == sorted(added)
    early = await db.fetchval(
        "select count(*) from pgwake.jobs as c"
        " join pgwake.jobs as p on p.id = any (c.depends_on)"
        " where c.started_at < p.finished_at"
    )
    assert early == 0
    left = "select count(*) from pgwake.dependencies"
    assert await db.fetchval(left) == 0
