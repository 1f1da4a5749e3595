import asyncio
import math
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Listener,
    Row,
    call,
    claim,
    insert,
    job,
    leaf,
    refused,
    rows,
    waits,
)

DEAD = """
insert into pgwake.jobs
  (kind, queue, status, finished_at, fingerprint, payload, attempt, crash_count,
   bounce_count, errors, claimed_by, lease_id, started_at)
select $2, $3, 'failed', now() - interval '1 hour' + n * interval '1 second', $4,
  jsonb_build_object('n', n), 20, 3, 4, '[{"message": "boom"}]', 'w1',
  gen_random_uuid(), now()
from generate_series(1, $1::int) as n
returning id
"""


async def dead(
    db: Connection,
    count: int = 1,
    kind: str = "noop",
    queue: str = "default",
    fingerprint: str | None = "f",
) -> list[int]:
    """Make dead letters, the one that failed first first; their ids."""
    found = await db.fetch(DEAD, count, kind, queue, fingerprint)
    return [row[0] for row in found]


async def retry(db: Connection, **arguments: Any) -> list[Row]:
    return await rows(db, "retry_failed", **arguments)


async def outcomes(db: Connection, **arguments: Any) -> list[tuple[int, str]]:
    return [(r["job_id"], r["outcome"]) for r in await retry(db, **arguments)]


async def counted(db: Connection) -> Row:
    (stats,) = await rows(db, "get_queue_stats", queue="default")
    return stats


async def test_they_are_pending_again_with_all_attempts_before_them(
    db: Connection,
) -> None:
    (dead_id,) = await dead(db)
    before = await job(db, dead_id)
    async with db.transaction():
        (answer,) = await retry(db)
        now = await call(db, "now")

    assert answer == {
        "job_id": dead_id,
        "queue": "default",
        "kind": "noop",
        "run_at": now,
        "payload": {"n": 1},
        "outcome": "retried",
    }
    assert await leaf(db, dead_id) == "jobs_live"
    cleared = ["lease_id", "claimed_by", "started_at", "finished_at", "fingerprint"]
    assert await job(db, dead_id) == (
        before
        | {"status": "pending", "run_at": now}
        | dict.fromkeys(("attempt", "crash_count", "bounce_count"), 0)
        | dict.fromkeys(cleared)
    )
    stats = await counted(db)
    assert (stats["pending_count"], stats["failed_count"]) == (1, 0)


async def test_only_those_that_are_asked_for_are_retried(db: Connection) -> None:
    for queue in "ab":
        for kind in "cd":
            for fingerprint in "ef":
                await dead(db, 1, kind, queue, fingerprint)

    answer = await retry(db, queue="a", kind="c", fingerprint="e")
    assert len(answer) == 1
    assert len(await retry(db, queue="a", kind="c")) == 1
    assert len(await retry(db, fingerprint="e")) == 3
    assert len(await retry(db, kind="d")) == 2
    assert len(await retry(db)) == 1


async def test_those_that_failed_first_come_first_and_as_many_as_asked_for(
    db: Connection,
) -> None:
    ids = await dead(db, 5)

    assert [i for i, _ in await outcomes(db, max_jobs=2)] == ids[:2]
    assert [i for i, _ in await outcomes(db)] == ids[2:]
    assert await outcomes(db) == []


@pytest.mark.parametrize(("rate", "gap"), [(0.5, 2), (0.001, 1000)])
async def test_a_rate_spreads_them_over_time(
    db: Connection, rate: float, gap: int
) -> None:
    await dead(db, 4)
    async with db.transaction():
        answer = await retry(db, rate=rate)
        now = await call(db, "now")

    after = [(row["run_at"] - now).total_seconds() for row in answer]
    assert after == [0, gap, 2 * gap, 3 * gap]
    assert [row["run_at"] for row in answer] == [
        (await job(db, row["job_id"]))["run_at"] for row in answer
    ]
    assert len(await claim(db, 10)) == 1


async def test_a_patch_is_merged_into_each_payload(db: Connection) -> None:
    ids = await dead(db, 2)
    answer = await retry(db, patch={"to": "b", "n": None})

    assert [row["payload"] for row in answer] == [{"to": "b"}] * 2
    assert [(await job(db, i))["payload"] for i in ids] == [{"to": "b"}] * 2


async def test_a_dry_run_says_the_same_and_changes_nothing(db: Connection) -> None:
    ids = await dead(db, 3)
    before = [await job(db, dead_id) for dead_id in ids]
    arguments = {"rate": 2, "patch": {"to": "b"}, "max_jobs": 2}
    async with db.transaction():
        foreseen = await retry(db, **arguments, dry_run=True)
        assert [await job(db, dead_id) for dead_id in ids] == before
        done = await retry(db, **arguments)

    assert [row.pop("outcome") for row in foreseen] == ["would_retry"] * 2
    assert [row.pop("outcome") for row in done] == ["retried"] * 2
    assert foreseen == done


async def test_a_key_that_was_taken_meanwhile_is_reported_and_nothing_lost(
    db: Connection,
) -> None:
    ids = await dead(db, 4)
    await db.execute(
        "update pgwake.jobs set unique_key = 'k' || id where id = any ($1)", ids[:2]
    )
    await db.execute(
        "update pgwake.jobs set unique_key = 'k' || $2::bigint where id = $1",
        ids[3],
        ids[1],
    )
    await insert(db, unique_key=f"k{ids[0]}")
    before = await job(db, ids[0])

    foreseen = await outcomes(db, dry_run=True)
    assert [what for _, what in foreseen] == [
        "conflict", "would_retry", "would_retry", "conflict"
    ]  # fmt: skip
    answer = await outcomes(db)
    assert answer == [
        (ids[0], "conflict"), (ids[1], "retried"), (ids[2], "retried"),
        (ids[3], "conflict"),
    ]  # fmt: skip
    assert await job(db, ids[0]) == before
    stats = await counted(db)
    assert (stats["pending_count"], stats["failed_count"]) == (3, 2)


async def test_jobs_with_a_concurrency_key_wait_and_their_key_is_flagged(
    db: Connection,
) -> None:
    ids = await dead(db, 3)
    await db.execute(
        "update pgwake.jobs set concurrency_key = 'k' where id = any ($1)", ids[1:]
    )
    async with db.transaction():
        answer = await retry(db, rate=1)
        rechecks = await db.fetch("select queue, at, key from pgwake.rechecks")

    states = [(await job(db, dead_id))["status"] for dead_id in ids]
    assert states == ["pending", "waiting", "waiting"]
    assert [tuple(row) for row in rechecks] == [("default", answer[1]["run_at"], "k")]
    stats = await counted(db)
    assert (stats["pending_count"], stats["waiting_count"]) == (1, 2)


async def test_it_notifies_once_for_each_queue(
    connect: Connect, db: Connection
) -> None:
    listener = await Listener.with_notify_locks(await connect(), "a", "b")
    await dead(db, 3, queue="a")
    await dead(db, 3, queue="b")
    await listener.heard()
    await retry(db)

    assert sorted(await listener.heard()) == ["a", "b"]


async def test_each_is_announced_to_those_who_watch(
    connect: Connect, db: Connection
) -> None:
    ids = await dead(db, 2)
    watcher = await connect()
    listener = await Listener.start(watcher, "job_status_changed")
    await call(watcher, "watch")
    await retry(db)

    events = await listener.events()
    assert [(e["id"], e["old_status"], e["new_status"]) for e in events] == [
        (dead_id, "failed", "pending") for dead_id in ids
    ]


REFUSED: list[Any] = [
    {"max_jobs": 0},
    {"max_jobs": -1},
    {"max_jobs": 100_001},
    {"max_jobs": None},
    {"rate": 0},
    {"rate": -1},
    {"rate": math.nan},
    {"rate": math.inf},
    {"rate": 1e-9},
    {"patch": []},
    {"patch": "text"},
    {"patch": 7},
    {"dry_run": None},
]


@pytest.mark.parametrize("arguments", REFUSED, ids=repr)
async def test_what_can_not_be_meant_is_refused(
    db: Connection, arguments: dict[str, Any]
) -> None:
    await dead(db)
    with refused("PW003"):
        await retry(db, **arguments)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_patch_that_makes_a_payload_too_large_changes_nothing(
    db: Connection, dry_run: bool
) -> None:
    await dead(db, 2)
    with refused("PW003") as caught:
        patch = {"a": "x" * 1_048_570}
        await retry(db, patch=patch, dry_run=dry_run)
    assert "xxx" not in str(caught.value)
    assert (await counted(db))["failed_count"] == 2


async def test_who_comes_second_takes_what_the_first_has_left(
    db: Connection, other: Connection
) -> None:
    ids = await dead(db, 4)
    async with db.transaction():
        first = await retry(db, max_jobs=2)
        second = await retry(other, max_jobs=10)

    assert [row["job_id"] for row in first] == ids[:2]
    assert [row["job_id"] for row in second] == ids[2:]


async def test_two_who_bring_the_same_keys_back_take_turns(
    connect: Connect, db: Connection
) -> None:
    # Each has the other's keys in the opposite order, and both meet in the middle.
    one, two = await connect(), await connect()
    there = [*await dead(db, 3, queue="a"), *await dead(db, 3, queue="b")]
    for dead_id, key in zip(there, "kxmmxk", strict=True):
        await db.execute(
            "update pgwake.jobs set unique_key = $2 where id = $1", dead_id, key
        )
    async with db.transaction():
        await insert(db, unique_key="x")
        tasks = [asyncio.create_task(outcomes(one, queue="a"))]
        await waits(one, tasks[0], db)
        tasks += [asyncio.create_task(outcomes(two, queue="b"))]
        await waits(two, tasks[1], db)

    answers = [[what for _, what in await task] for task in tasks]
    assert answers == [["retried", "conflict", "retried"], ["conflict"] * 3]


async def test_redrives_and_purges_at_once_take_each_job_once(
    connect: Connect, db: Connection
) -> None:
    ids = await dead(db, 2000)
    await db.execute(
        "update pgwake.jobs set unique_key = (id % 500)::text where id % 2 = 0"
    )
    sessions = [await connect() for _ in range(8)]
    retried: list[int] = []
    purged: list[int] = []

    async def redrive(session: Connection) -> None:
        for _ in range(8):
            answer = await outcomes(session, max_jobs=100)
            retried.extend(i for i, what in answer if what == "retried")

    async def purge(session: Connection) -> None:
        for _ in range(8):
            count = await call(session, "purge", queue="default", max_jobs=50)
            purged.append(count)

    await asyncio.gather(*map(redrive, sessions[:5]), *map(purge, sessions[5:]))

    assert len(retried) == len(set(retried))
    assert retried
    assert sum(purged) > 0
    left = await db.fetchval("select count(*) from pgwake.jobs_failed")
    live = await db.fetchval("select count(*) from pgwake.jobs_live")
    assert live == len(retried)
    assert len(retried) + sum(purged) + left == len(ids)
    stats = await counted(db)
    assert (stats["pending_count"], stats["failed_count"]) == (live, left)
