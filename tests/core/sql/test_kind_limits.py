"""Limits of kinds: how many of their jobs run at once and start, in all queues."""

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Listener,
    Row,
    call,
    claim,
    claim_batch,
    complete,
    insert,
    pair,
    refused,
    rolled_back,
    rows,
    set_clock,
    set_kind,
    set_queue,
    sweep,
)
from support.sql.plans import buffers

RUNNING = """
select count(*) from pgwake.jobs_live where status = 'running' and kind = 'k'
"""
STARTED = "select started_at from pgwake.jobs where kind = 'k' order by started_at"
# The kinds that have a job of a queue that is due.
DUE = """
select array_agg(distinct kind) from pgwake.jobs_live
where queue = $1 and status = 'pending' and run_at <= pgwake.now() and crash_count < 2
"""


async def insert_kinds(db: Connection, kinds: str, **columns: Any) -> list[int]:
    """Insert a job of each letter's kind; the ids."""
    return [await insert(db, kind, **columns) for kind in kinds]


def kinds_of(jobs: list[Row]) -> str:
    return "".join(sorted(job["kind"] for job in jobs))


async def look(db: Connection, count: int = 9, **arguments: Any) -> Row:
    """What claim_rows says, with the jobs."""
    arguments = {"queue": "default", "count": count} | arguments
    *jobs, said = await rows(db, "claim_rows", **arguments)
    return {**said, "jobs": jobs}


async def test_no_more_run_at_once_in_all_queues_together(db: Connection) -> None:
    await set_kind(db, "k", max_running=3)
    await insert_kinds(db, "kk")
    await insert_kinds(db, "kkk", queue="other")

    first = await claim(db, 9)
    second = await claim(db, 9, queue="other")
    assert (len(first), len(second)) == (2, 1)
    assert await claim(db, 9, queue="other") == []
    await complete(db, *first)
    assert len(await claim(db, 9, queue="other")) == 2


async def test_jobs_of_other_kinds_go_on(db: Connection, connect: Connect) -> None:
    await set_kind(db, "k", max_running=2)
    await set_kind(db, "l", rate_limit=0.01)
    await insert_kinds(db, "kkkklllabc")

    got = await look(db, 10)
    assert kinds_of(got["jobs"]) == "abckkl"
    assert got["next_run_at"] <= got["claimed_at"], "there may be more: look again"
    ids = [await insert(db, kind) for kind in "dee"]
    assert [job["id"] for job in await rows(db, "claim_next_job")] == ids[:1]
    # So does who knows nothing of what was before.
    assert kinds_of(await rows(await connect(), "claim_next_job")) == "e"
    got = await look(db, cursor=got["next_cursor"])
    assert kinds_of(got["jobs"]) == "e"


async def test_a_claim_says_when_to_look_again(db: Connection) -> None:
    await set_kind(db, "k", max_running=1)
    await insert_kinds(db, "kk")
    got = await look(db, 1)
    assert (got["next_run_at"], got["is_limited"]) == (None, True)
    rest = await look(db, cursor=got["next_cursor"])
    assert rest["next_run_at"] <= rest["claimed_at"], "it waits now: look once more"
    rest = await look(db, cursor=got["next_cursor"])
    assert (rest["jobs"], rest["next_run_at"]) == ([], None), "a job's end tells"

    await set_kind(db, "k", max_running=None, rate_limit=0.01)
    got = await look(db, cursor=rest["next_cursor"])
    assert len(got["jobs"]) == 1
    await insert_kinds(db, "k")
    seconds = 0.0
    for cursor in (None, got["next_cursor"]):
        rest = await look(db, cursor=cursor)
        seconds = (rest["next_run_at"] - rest["claimed_at"]).total_seconds()
        assert rest["jobs"] == []
        assert 90 < seconds <= 101
    await set_clock(db, f"{seconds + 1} s")
    assert len((await look(db, cursor=rest["next_cursor"]))["jobs"]) == 1

    await set_kind(db, "k", rate_limit=None)
    await insert_kinds(db, "k" * 9)
    got = await look(db, cursor=rest["next_cursor"])
    assert (len(got["jobs"]), got["next_cursor"], got["is_limited"]) == (9, None, False)


async def test_two_open_claims_of_two_queues_never_exceed_it(
    db: Connection, other: Connection
) -> None:
    await set_kind(db, "k", max_running=1)
    await insert_kinds(db, "k")
    await insert_kinds(db, "ka", queue="other")
    async with db.transaction():
        assert kinds_of(await claim(db, 9)) == "k"
        got = await look(other, queue="other")
        assert kinds_of(got["jobs"]) == "a"
        assert got["next_run_at"] <= got["claimed_at"], "look again soon"
        assert await claim(other, 9, queue="other") == []
    assert await claim(other, 9, queue="other") == []


async def test_a_claim_that_rolls_back_gives_the_room_back(
    db: Connection, other: Connection
) -> None:
    await set_kind(db, "k", max_running=1, rate_limit=0.01)
    await insert_kinds(db, "k")
    async with rolled_back(db):
        assert len(await claim(db)) == 1
    assert len(await claim(other)) == 1


async def test_a_changed_limit_holds_at_once(db: Connection) -> None:
    await insert_kinds(db, "k" * 9)
    jobs = await claim(db, 3)
    await set_kind(db, "k", max_running=2)
    assert await claim(db, 9) == []
    await complete(db, *jobs[:2])
    assert len(await claim(db, 9)) == 1
    await set_kind(db, "k", max_running=0)
    await complete(db, jobs[2])
    assert await claim(db, 9) == []
    assert 'No job of its kind, "k", is started' in await call(
        db, "explain_job", job_id=(await insert_kinds(db, "k"))[0]
    )
    await set_kind(db, "k", max_running=None)
    assert len(await claim(db, 9)) == 6


async def test_suspects_count_too(db: Connection) -> None:
    await set_kind(db, "k", max_running=1)
    suspect = await insert(db, "k", crash_count=2)
    await insert_kinds(db, "k")
    suspects = {"queues": ["default"]}
    assert await call(db, "next_suspect_run_at", **suspects) is not None
    (job,) = await claim(db, 9)
    assert (await look(db, suspects=True))["jobs"] == []
    got = await look(db, suspects=True)
    assert (got["jobs"], got["next_run_at"]) == ([], None)
    assert await call(db, "next_suspect_run_at", **suspects) is None
    await complete(db, job)
    assert [job["id"] for job in await rows(db, "claim_or_wait")] == [suspect]


async def test_who_crashes_or_is_retried_gives_its_room_back(db: Connection) -> None:
    await set_kind(db, "k", max_running=1)
    await insert_kinds(db, "kk")
    (job,) = await claim(db)
    await call(db, "fail_job", **pair(job), retry_in=timedelta(hours=1))
    assert len(await claim(db, 9)) == 1
    assert await sweep(db, "10 minutes") == 1
    assert len(await claim(db, 9)) == 1


async def test_the_end_of_a_job_wakes_the_queues_that_wait_for_its_kind(
    connect: Connect, db: Connection
) -> None:
    await set_kind(db, "k", max_running=1)
    await insert_kinds(db, "kkk")
    await insert_kinds(db, "ka", queue="other")
    listener = await Listener.with_notify_locks(
        await connect(), "default", "other", "third"
    )
    jobs = await claim(db)
    assert await claim(db) == []
    jobs += await claim(db, 9, queue="other")
    assert kinds_of(jobs) == "ak"
    assert await claim(db, queue="other") == []
    await listener.heard()
    await complete(db, jobs[1])
    assert await listener.heard() == [], "nobody waits for this kind"
    await complete(db, jobs[0])
    assert sorted(await listener.heard()) == ["default", "other"]
    (job,) = await claim(db, queue="other")
    await call(db, "fail_job", **pair(job), retryable=False)
    assert sorted(await listener.heard()) == ["default", "other"]

    await claim(db)
    (waiting,) = await insert_kinds(db, "k")
    assert 'Its kind, "k", runs 1 at once in all queues (max_running), and as' in (
        await call(db, "explain_job", job_id=waiting)
    )


async def test_upkeep_keeps_limits_and_forgets_who_has_waited(db: Connection) -> None:
    await set_kind(db, "k", max_running=1)
    await db.execute("update pgwake.kinds set bounced_at = now() - interval '8 days'")
    await insert_kinds(db, "kk")
    await claim(db)
    await claim(db)
    for age, left in (("0 s", 1), ("61 s", 0)):
        await db.execute(f"update pgwake.kind_waiters set at = at - interval '{age}'")
        await call(db, "maintain", step="retention")
        assert await db.fetchval("select count(*) from pgwake.kind_waiters") == left
    assert await db.fetchval("select max_running from pgwake.kinds") == 1


async def test_a_rate_gives_its_burst_and_then_its_tokens(db: Connection) -> None:
    await set_clock(db, "1 day")
    await set_kind(db, "k", rate_limit=1 / 60, rate_burst=2)
    await insert_kinds(db, "k" * 3)
    await insert_kinds(db, "k" * 6, queue="other")
    await db.execute("update pgwake.jobs_live set run_at = '2000-01-01 UTC'")
    (job, _) = await claim(db, 9)
    await call(db, "release_jobs", job_ids=[job["id"]], lease_ids=[job["lease_id"]])
    assert await claim(db, 9) == [], "a retry takes a token too"
    waiting = await db.fetchval("select min(id) from pgwake.jobs where queue = 'other'")
    assert "starts a second) is used up; the next can be at" in await call(
        db, "explain_job", job_id=waiting
    )
    # A clock that was put back fills nothing and stops nothing.
    await set_clock(db, "0")
    assert await claim(db, 9, queue="other") == []
    await set_clock(db, "90 seconds")
    assert len(await claim(db, 9, queue="other")) == 1
    await set_clock(db, "1 hour")
    assert len(await claim(db, 9, queue="other")) == 2


async def test_in_two_queues_racing_claims_never_exceed_limits(
    connect: Connect, db: Connection
) -> None:
    rate, burst = 200.0, 10
    await set_kind(db, "k", max_running=4, rate_limit=rate, rate_burst=burst)
    await db.execute(
        "insert into pgwake.jobs (queue, kind)"
        " select 'q' || n % 2, case when n % 4 < 3 then 'k' else 'a' end"
        " from generate_series(1, 300) as n"
    )
    left, most = 300, 0

    async def work(number: int) -> None:
        nonlocal left, most
        session, cursor = await connect(), None
        while left > 0:
            queue = f"q{number % 2}"
            if number < 4:  # a cursor, none, or the session's
                got = await look(session, 5, queue=queue, cursor=cursor)
                jobs, cursor = got["jobs"], got["next_cursor"] if number < 2 else None
            else:
                jobs = await claim(session, 3, queue=queue)
            if jobs:
                most = max(most, await session.fetchval(RUNNING))
                left -= len(jobs)
                await complete(session, *jobs)
            else:
                await asyncio.sleep(0.001)

    await asyncio.gather(*(work(number) for number in range(8)))
    starts: list[datetime] = [row[0] for row in await db.fetch(STARTED)]
    assert (len(starts), most) == (225, 4)
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            seconds = (starts[last] - starts[first]).total_seconds()
            assert last - first + 1 <= burst + rate * seconds + 1e-5


async def test_many_jobs_of_a_full_kind_are_stepped_over_once(db: Connection) -> None:
    await set_kind(db, "k", max_running=1)
    await db.execute(
        "insert into pgwake.jobs (kind, run_at)"
        " select 'k', now() - interval '1 hour' from generate_series(1, 5000)"
    )
    (first,) = (got := await look(db, 1))["jobs"]
    await insert(db, "a")
    got = await look(db, 1, cursor=got["next_cursor"])
    assert kinds_of(got["jobs"]) == "a"
    (cursor,) = got["next_cursor"]["full"].values()
    cursor["head_at"] = await db.fetchval(
        "select (clock_timestamp() + interval '59 seconds')::text"
    )
    await insert(db, "a")

    arguments = {"queue": "default", "count": 1, "cursor": got["next_cursor"]}
    assert await buffers(db, "claim_rows", **arguments) < 120
    got = await look(db, **arguments)
    assert kinds_of(got["jobs"]) == "a"
    await complete(db, first)
    # A claim that met none of it, and so forgets it, keeps what was read.
    await insert(db, "a", priority=1)
    ahead = await look(db, 1, cursor=got["next_cursor"])
    assert kinds_of(ahead["jobs"]) == "a"
    assert ahead["next_cursor"]["kinds"] == []
    assert ahead["next_cursor"]["full"].keys() == got["next_cursor"]["full"].keys()
    # Its jobs are found at once when there is room, and no more are locked than that.
    arguments = {"queue": "default", "count": 9, "cursor": got["next_cursor"]}
    assert await buffers(db, "claim_rows", **arguments) < 120
    (second,) = (await look(db, **arguments))["jobs"]
    assert second["id"] == first["id"] + 1


@pytest.mark.parametrize("seed", range(4))
async def test_what_has_room_is_claimed_and_nothing_else(
    db: Connection, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    cursors: dict[str, Any] = {}
    running: list[Row] = []
    limits: dict[str, int | None] = dict.fromkeys("abcd")
    await set_queue(db, "r", max_running=9)
    for _ in range(60):
        queue = dice.choice("qr")
        kind = dice.choice("abcd")
        action = dice.randrange(6)
        if action == 0:
            limits[kind] = dice.choice([None, 0, 1, 2, 5])
            await set_kind(db, kind, max_running=limits[kind])
        elif action < 3:
            some = "".join(dice.choices("abcd", k=4))
            await insert_kinds(
                db,
                some,
                queue=queue,
                priority=dice.choice([0, 0, 3]),
                crash_count=dice.choice([0, 0, 0, 1]),
            )
        elif action == 3 and running:
            dice.shuffle(running)
            await complete(db, *running[:3])
            del running[:3]
        while True:
            cursor = cursors.get(queue) if dice.random() < 0.8 else None
            got = await look(db, dice.choice([1, 3, 9]), queue=queue, cursor=cursor)
            cursors[queue] = got["next_cursor"]
            running += got["jobs"]
            count = {kind: kinds_of(running).count(kind) for kind in limits}
            full = {
                kind
                for kind, limit in limits.items()
                if limit is not None and count[kind] >= limit
            }
            if got["jobs"]:
                for name, limit in limits.items():
                    started = kinds_of(got["jobs"]).count(name)
                    assert not started or limit is None or count[name] <= limit
            elif got["next_run_at"] is None:
                break
        in_r = sum(
            job["queue"] == "r"
            for job in await db.fetch(
                "select queue from pgwake.jobs_live where status = 'running'"
            )
        )
        if queue == "q" or in_r < 9:
            assert set(await db.fetchval(DUE, queue) or ()) <= full


async def test_under_repeatable_read_it_is_refused_with_a_reason(
    db: Connection,
) -> None:
    await set_kind(db, "k", max_running=2)
    await insert_kinds(db, "ak")
    with refused("PW003"):
        async with db.transaction(isolation="repeatable_read"):
            await claim(db, 2)
    async with db.transaction(isolation="repeatable_read"):
        assert kinds_of(await claim(db, 1)) == "a"


async def test_what_is_no_cursor_is_refused(db: Connection) -> None:
    for cursor in ({"kinds": "k"}, {"full": {"{k}": {"head_at": "x"}}}):
        with refused("PW003"):
            await look(db, cursor=cursor)


async def test_in_claim_batch_too(db: Connection) -> None:
    await set_kind(db, "k", max_running=1)
    await insert_kinds(db, "kk")
    got = await claim_batch(db, 9)
    assert len(got["ids"]) == 1
    assert (await claim_batch(db, 9, cursor=got["cursor"]))["ids"] == []
