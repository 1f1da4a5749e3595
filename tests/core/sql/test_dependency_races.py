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
    claim,
    claim_batch,
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

COMPLETED = ["completed"]


async def ids(connection: Connection, count: int = 100, **arguments: Any) -> list[int]:
    """Claim; the ids."""
    return [job["id"] for job in await claim(connection, count, **arguments)]


async def child(connection: Connection, *parents: int, **columns: Any) -> int:
    return await insert(connection, depends_on=list(parents), **columns)


async def complete(connection: Connection, *jobs: Row) -> None:
    outcomes = await call(connection, "complete_jobs", **pairs(*jobs))
    assert outcomes == COMPLETED * len(jobs)


async def running_parent(connection: Connection) -> Row:
    """A job that runs, in a queue of its own."""
    await insert(connection, queue="parents")
    (held,) = await claim(connection, queue="parents")
    return held


async def ids_later(connection: Connection) -> list[int]:
    """Claim when looks that were put off are due again."""
    await set_clock(connection, "1 second")
    return await ids(connection)


async def test_a_child_that_comes_while_its_parents_end_is_uncommitted(
    connection: Connection, other: Connection
) -> None:
    held = await running_parent(connection)
    async with other.transaction():
        await complete(other, held)
        joined = await child(connection, held["id"])
        assert await ids(connection) == [], "its parent is locked"
        row = await claim_batch(connection)
        assert row["next_run_at"] is not None, "somebody is to look again"
    assert await ids_later(connection) == [joined]


async def test_a_child_whose_parents_end_is_rolled_back_goes_on_waiting(
    connection: Connection, other: Connection
) -> None:
    held = await running_parent(connection)
    async with rolled_back(other):
        await complete(other, held)
        joined = await child(connection, held["id"])
        assert await ids(connection) == []
    assert await ids_later(connection) == []
    await complete(connection, held)
    assert await ids(connection) == [joined]


@pytest.mark.parametrize("policy", ["cancel", "run"])
async def test_a_parent_that_fails_while_it_is_locked_counts_as_failed(
    connection: Connection, other: Connection, policy: str
) -> None:
    held = await running_parent(connection)
    async with other.transaction():
        await call(other, "fail_job", **pair(held), retryable=False)
        joined = await child(connection, held["id"], on_parent_failure=policy)
        assert await ids(connection) == []
    assert await ids_later(connection) == ([joined] if policy == "run" else [])
    if policy == "cancel":
        assert await status(connection, joined) == "cancelled"


async def test_a_parent_that_ends_before_its_child_commits_lets_it_in(
    connection: Connection, other: Connection
) -> None:
    held = await running_parent(connection)
    async with other.transaction():
        joined = await child(other, held["id"])
        await complete(connection, held)
        assert await ids(connection) == []
    assert await ids(connection) == [joined]


async def test_who_ends_a_parent_waits_for_who_looks_at_its_child_and_frees_it(
    connect: Connect, connection: Connection
) -> None:
    held = await running_parent(connection)
    joined = await child(connection, held["id"])
    looking, ending = await connect(), await connect()
    async with blocking(
        looking, ending, call(ending, "complete_jobs", **pairs(held))
    ) as task:
        assert await ids(looking) == []
    assert await task == COMPLETED
    assert await ids(connection) == [joined]


async def test_who_ends_a_parent_frees_no_child_whose_look_was_rolled_back(
    connect: Connect, connection: Connection
) -> None:
    held = await running_parent(connection)
    joined = await child(connection, held["id"])
    looking, ending = await connect(), await connect()
    async with rolled_back(looking):
        assert await ids(looking) == []
        task = asyncio.create_task(call(ending, "complete_jobs", **pairs(held)))
        await waits(ending, task, connection)
    assert await task == COMPLETED
    assert await ids(connection) == [joined]


@pytest.mark.parametrize("has_a_child", [False, True])
@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_who_ends_a_parent_by_an_old_snapshot_has_to_repeat_it(
    connect: Connect, connection: Connection, isolation: Any, has_a_child: bool
) -> None:
    held = await running_parent(connection)
    children = []
    if has_a_child:
        children = [await child(connection, held["id"])]
        assert await ids(connection) == []
    ending = await connect()
    async with rolled_back(ending, isolation=isolation):
        await ending.execute("select from pgwake.jobs")
        children.append(await child(connection, held["id"]))
        assert await ids(connection) == []
        with pytest.raises(asyncpg.SerializationError):
            await complete(ending, held)

    async with ending.transaction(isolation=isolation):
        await complete(ending, held)
    assert await ids(connection) == children


async def test_a_claim_under_repeatable_read_leaves_children_to_others(
    connection: Connection, other: Connection
) -> None:
    held = await running_parent(connection)
    joined = await child(connection, held["id"])
    await complete(connection, held)
    plain = await insert(connection)
    async with other.transaction(isolation="repeatable_read"):
        assert await ids(other) == [plain]
        row = await claim_batch(other)
        assert row["next_run_at"] <= row["claimed_at"]
    assert await ids(connection) == [joined]


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize("ends", ["completed", "failed"])
async def test_two_parents_that_end_at_once_free_their_child(
    connect: Connect, connection: Connection, is_seen: bool, ends: str
) -> None:
    first, second = await running_parent(connection), await running_parent(connection)
    joined = await child(connection, first["id"], second["id"])
    if is_seen:
        assert await ids(connection) == []
    one, two = await connect(), await connect()
    async with one.transaction(), two.transaction():
        await complete(one, first)
        if ends == "completed":
            await complete(two, second)
        else:
            await call(two, "fail_job", **pair(second), retryable=False)
        assert await ids(connection) == []
    assert await ids_later(connection) == ([joined] if ends == "completed" else [])
    if ends == "failed":
        assert await status(connection, joined) == "cancelled"


async def test_a_parent_locked_by_a_stranger_is_seen_again_when_it_is_free(
    connection: Connection, other: Connection
) -> None:
    free, locked = await running_parent(connection), await running_parent(connection)
    joined = await child(connection, free["id"], locked["id"])
    async with row_locked(other, locked["id"]):
        assert await ids(connection) == []
        assert (await job(connection, free["id"]))["has_children"] is True
        assert await ids_later(connection) == []
    await set_clock(connection, "2 seconds")
    assert await ids(connection) == []
    assert (await job(connection, locked["id"]))["has_children"] is True
    await complete(connection, free, locked)
    assert await ids(connection) == [joined]


async def test_a_locked_child_is_looked_at_again_when_it_is_free(
    connection: Connection, other: Connection
) -> None:
    held = await running_parent(connection)
    joined = await child(connection, held["id"])
    await complete(connection, held)
    async with row_locked(other, joined):
        row = await claim_batch(connection)
        assert row["ids"] == []
        assert row["next_run_at"] is not None
    assert await ids_later(connection) == [joined]


async def test_a_look_that_another_has_is_not_waited_for(
    connection: Connection, other: Connection
) -> None:
    held = await running_parent(connection)
    joined = await child(connection, held["id"])
    await complete(connection, held)
    async with rolled_back(other):
        assert await ids(other) == [joined]
        row = await claim_batch(connection)
        assert row["ids"] == []
        assert row["next_run_at"] <= row["claimed_at"], "his rollback tells nobody"
    assert await ids(connection) == [joined]


async def test_a_child_cancelled_while_its_parent_ends_is_not_let_in(
    connection: Connection, other: Connection
) -> None:
    held = await running_parent(connection)
    joined = await child(connection, held["id"])
    assert await ids(connection) == []
    async with other.transaction():
        assert await call(other, "cancel_job", job_id=joined) == "cancelled"
        await complete(connection, held)
        assert await ids(connection) == []
    assert await ids_later(connection) == []
    assert await status(connection, joined) == "cancelled"


async def test_a_child_replaced_while_its_parent_ends_goes_by_its_new_parents(
    connect: Connect, connection: Connection
) -> None:
    old, new = await running_parent(connection), await running_parent(connection)
    arguments = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}
    job_id = await call(connection, "enqueue", **arguments, depends_on=[old["id"]])
    assert await ids(connection) == []
    ending, replacing = await connect(), await connect()
    async with ending.transaction(), replacing.transaction():
        await call(replacing, "enqueue", **arguments, depends_on=[new["id"]])
        await call(ending, "fail_job", **pair(old), retryable=False)
        assert await ids(connection) == []
    assert await ids_later(connection) == []
    await complete(connection, new)
    assert await ids(connection) == [job_id]


async def test_a_child_retried_while_its_parent_ends_is_not_lost(
    connect: Connect, connection: Connection
) -> None:
    held = await running_parent(connection)
    joined = await child(connection, held["id"])
    assert await ids(connection) == []
    await call(connection, "cancel_job", job_id=joined)
    ending, retrying = await connect(), await connect()
    async with ending.transaction():
        await complete(ending, held)
        async with retrying.transaction():
            await call(retrying, "retry_job", job_id=joined)
        assert await ids(connection) == []
    assert await ids_later(connection) == [joined]


async def test_a_child_is_refused_whose_parent_nobody_else_sees_yet(
    connection: Connection, other: Connection
) -> None:
    async with other.transaction():
        parent = await insert(other)
        with refused("PW003"):
            await child(connection, parent)
    joined = await child(connection, parent)
    (held,) = await claim(connection, 100)
    await complete(connection, held)
    assert await ids(connection) == [joined]


@pytest.mark.timeout(60)
async def test_whoever_ends_claims_and_adds_at_once_every_child_runs_once_in_order(
    connect: Connect, connection: Connection
) -> None:
    loop = asyncio.get_running_loop()
    stop = loop.time() + 3
    added: list[int] = []
    done: list[int] = []

    async def add(session: Connection, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311, not for secrets
        while loop.time() < stop:
            parents = chance.sample(added[-30:], min(len(added), chance.randint(0, 3)))
            columns = {"depends_on": parents} if parents else {}
            added.append(await insert(session, queue=f"q{seed % 2}", **columns))

    async def work(session: Connection, seed: int, isolation: Any) -> None:
        while loop.time() < stop or len(done) < len(added):
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
    early = await connection.fetchval(
        "select count(*) from pgwake.jobs as c"
        " join pgwake.jobs as p on p.id = any (c.depends_on)"
        " where c.started_at < p.finished_at"
    )
    assert early == 0
    left = "select count(*) from pgwake.dependencies"
    assert await connection.fetchval(left) == 0
