"""Concurrency keys: how many jobs of one key run at once, in which order, and when."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Listener,
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
    rows,
    running,
    set_clock,
    set_queue,
    status,
    sweep,
)
from support.sql.plans import buffers

REPLACE = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}


async def set_limit(db: Connection, key: str, most: int) -> None:
    await db.execute(
        "insert into pgwake.concurrency_limits values ('default', $1, $2)"
        " on conflict (queue, key) do update set max_running = excluded.max_running",
        key,
        most,
    )


async def keyed(db: Connection, *keys: str, **columns: Any) -> list[int]:
    """Insert a job for each key, one after the other."""
    return [await insert(db, concurrency_key=key, **columns) for key in keys]


async def test_jobs_of_a_key_run_one_after_the_other_in_order(db: Connection) -> None:
    late = await insert(db, concurrency_key="a", priority=-1)
    first, second = await keyed(db, "a", "a")
    urgent = await insert(db, concurrency_key="a", priority=9)

    ran = []
    while jobs := await claim(db, 100):
        assert len(jobs) == 1
        ran.append(jobs[0]["id"])
        await complete(db, *jobs)
    assert ran == [urgent, first, second, late]


async def test_a_job_with_a_key_waits_until_it_is_let_in(db: Connection) -> None:
    first, second = await keyed(db, "a", "a")
    assert await status(db, first) == "waiting"

    await claimed_ids(db)
    assert await status(db, first) == "running"
    assert await status(db, second) == "waiting"


async def test_a_claim_tells_whose_end_may_let_others_in(db: Connection) -> None:
    parent, (keyed_job,) = await insert(db), await keyed(db, "a")
    joined = await child(db, parent)
    claims = await claim(db, 10)
    options = {one["id"]: one["options"] or {} for one in claims}
    assert options[keyed_job]["admits"] is True
    assert options[parent]["admits"] is True
    await complete(db, *claims)
    (last,) = await claim(db, 10)
    assert last["id"] == joined
    assert "admits" not in (last["options"] or {})


async def test_keys_do_not_stand_in_each_others_way(db: Connection) -> None:
    a, _, b, c = await keyed(db, "a", "a", "b", "c")
    plain = await insert(db)
    assert set(await claimed_ids(db)) == {a, b, c, plain}


async def test_keys_are_per_queue(db: Connection) -> None:
    (a,) = await keyed(db, "a")
    (other,) = await keyed(db, "a", queue="other")
    assert await claimed_ids(db) == [a]
    assert await claimed_ids(db, queue="other") == [other]


@pytest.mark.parametrize("is_of_key", [False, True])
async def test_as_many_of_a_key_run_at_once_as_its_limit_says(
    db: Connection, is_of_key: bool
) -> None:
    await set_queue(db, key_limit=2 if is_of_key else 3)
    if is_of_key:
        await set_limit(db, "a", 3)
    made = await keyed(db, *"aaaaa")

    jobs = await claim(db, 100)
    assert [job["id"] for job in jobs] == made[:3]
    await complete(db, *jobs[:2])
    assert await claimed_ids(db) == made[3:]


async def test_two_open_claims_never_exceed_a_limit(
    db: Connection, other: Connection
) -> None:
    k1, _, z1 = await keyed(db, "k", "k", "z")
    async with db.transaction():
        assert await claimed_ids(db, 1) == [k1]
        assert await claimed_ids(other, 1) == [z1]
        assert await claimed_ids(other, 1) == []
        row = await claim_batch(other)
        assert row["next_run_at"] is None or row["next_run_at"] <= row["claimed_at"]

    assert await claimed_ids(other) == []


async def test_a_claim_that_rolls_back_gives_the_room_back(
    db: Connection, other: Connection
) -> None:
    first, _ = await keyed(db, "a", "a")
    async with rolled_back(db):
        assert await claimed_ids(db) == [first]
        assert await claimed_ids(other) == []
        assert await call(other, "next_run_at") <= await call(other, "now")

    assert await claimed_ids(other) == [first]


async def test_a_claim_in_a_savepoint_that_rolls_back_does_too(
    db: Connection, other: Connection
) -> None:
    first, _ = await keyed(db, "a", "a")
    async with db.transaction():
        await db.execute("savepoint before")
        assert await claimed_ids(db) == [first]
        await db.execute("rollback to before")
        assert await claimed_ids(other) == [first]
        assert await claimed_ids(db) == []


async def test_an_open_claim_holds_back_no_more_keys_than_it_has_jobs(
    db: Connection, other: Connection
) -> None:
    made = await keyed(db, *"abcdefgh")
    async with db.transaction():
        mine = await claimed_ids(db, 3)
        theirs = await claimed_ids(other)
        assert len(mine) == 3
        assert sorted(mine + theirs) == made
        locks = await db.fetchval(
            "select count(*) from pg_locks where locktype = 'advisory'"
            " and classid = 1885828974 and pid = pg_backend_pid()"
        )
        assert locks <= 3


async def test_at_most_a_hundred_locks_are_held_by_a_claim(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, concurrency_key)"
        " select 'noop', n from generate_series(1, 300) as n"
    )
    async with db.transaction():
        row = await claim_batch(db, 300)
        assert len(row["ids"]) == 100
        assert row["next_run_at"] <= row["claimed_at"], "there is more"
        locks = await db.fetchval(
            "select count(*) from pg_locks where locktype = 'advisory'"
            " and classid = 1885828974"
        )
        assert locks <= 100
    assert len(await claimed_ids(db, 200)) == 100


async def test_a_job_that_is_put_off_leaves_its_key_to_the_next(db: Connection) -> None:
    a, b, c, d = await keyed(db, *"aaaa")
    hour = timedelta(hours=1)
    (job,) = await claim(db)
    await call(db, "fail_job", **pair(job), retry_in=hour)
    (job,) = await claim(db)
    assert job["id"] == b
    await call(db, "snooze_job", **pair(job), delay=2 * hour)
    (job,) = await claim(db)
    assert job["id"] == c
    await complete(db, job)
    (job,) = await claim(db)
    assert job["id"] == d
    assert [await status(db, one) for one in (a, b)] == ["waiting", "waiting"]
    await complete(db, job)

    row = await claim_batch(db)
    assert row["ids"] == []
    assert row["next_run_at"] > row["claimed_at"] + hour / 2
    assert await call(db, "next_run_at") == row["next_run_at"]
    await set_clock(db, "90 minutes")
    assert await claimed_ids(db) == [a]


HOUR = timedelta(hours=1)
LEAVES: dict[str, tuple[str, dict[str, Any]]] = {
    "completed": ("complete_job", {}),
    "failed for good": ("fail_job", {"retryable": False}),
    "to be retried": ("fail_job", {"retry_in": HOUR}),
    "put off": ("snooze_job", {"delay": HOUR}),
}


@pytest.mark.parametrize(("end", "arguments"), LEAVES.values(), ids=LEAVES)
async def test_who_leaves_a_key_hands_its_room_on(
    db: Connection, end: str, arguments: dict[str, Any]
) -> None:
    low, first, second = [
        await insert(db, concurrency_key="a", priority=p) for p in (0, 9, 9)
    ]
    (held,) = await claim(db)
    assert held["id"] == first
    async with rolled_back(db):
        await call(db, end, **pair(held), **arguments)
        assert [await status(db, one) for one in (second, low)] == [
            "pending",
            "waiting",
        ]
    assert await status(db, second) == "waiting"
    await call(db, end, **pair(held), **arguments)
    assert await claimed_ids(db) == [second]


async def test_room_that_cant_be_handed_on_is_rechecked(
    db: Connection, other: Connection
) -> None:
    # Two leave at once a key whose limit was lowered from 3 to 2: one comes in.
    await set_limit(db, "a", 3)
    await keyed(db, *"aaaaaa")
    held = await claim(db, 3)
    await set_limit(db, "a", 2)
    async with other.transaction():
        await complete(other, held[0])
        await complete(db, held[1])
    assert len(await claimed_ids(db)) == 1

    # Nobody waits whom the end could see: who comes meanwhile is rechecked after it.
    (b,) = await keyed(db, "b")
    await claimed_ids(db)
    async with other.transaction():
        await complete(other, await job(db, b))
        (next_b,) = await keyed(db, "b")
        assert await claimed_ids(db) == []
    assert await claimed_ids(db) == [next_b]

    # An old snapshot may not see who waits as they are.
    (c, next_c) = await keyed(db, "c", "c")
    await claimed_ids(db)
    async with other.transaction(isolation="repeatable_read"):
        await complete(other, await job(other, c))
        await db.execute(
            "update pgwake.jobs_live set priority = 1 where id = $1", next_c
        )
    assert await claimed_ids(db) == [next_c]


async def test_a_queue_that_keeps_the_order_has_the_next_wait_for_retries(
    db: Connection,
) -> None:
    await set_queue(db, keep_order=True)
    first, second = await keyed(db, "a", "a")
    hour = timedelta(hours=1)
    for n, retry in enumerate(("fail", "snooze", "fail")):
        await set_clock(db, f"{2 * n} hours")
        (job,) = await claim(db)
        assert job["id"] == first
        if retry == "fail":
            await call(db, "fail_job", **pair(job), retry_in=hour)
        else:
            await call(db, "snooze_job", **pair(job), delay=hour)
        assert await claim(db) == []
    await set_clock(db, "1 day")
    (job,) = await claim(db)
    assert job["id"] == first
    await complete(db, job)
    assert await claimed_ids(db) == [second]


async def test_a_job_released_unstarted_keeps_its_turn(db: Connection) -> None:
    first, _ = await keyed(db, "a", "a")
    (job,) = await claim(db)
    await call(db, "release_jobs", **pairs(job))
    assert await status(db, first) == "pending"
    assert await claimed_ids(db) == [first]


async def test_a_raised_limit_lets_more_in_and_a_lowered_one_ends_nothing(
    db: Connection,
) -> None:
    made = await keyed(db, *"aaaaaa")
    jobs = await claim(db, 100)
    await set_limit(db, "a", 3)
    jobs += await claim(db, 100)
    assert [job["id"] for job in jobs] == made[:3]

    await set_limit(db, "a", 1)
    await complete(db, *jobs[:2])
    assert await claimed_ids(db) == []
    await complete(db, jobs[2])
    assert await claimed_ids(db) == [made[3]]


async def test_a_raised_limit_of_the_queue_lets_more_in(db: Connection) -> None:
    made = await keyed(db, *"aaabbb")
    assert len(await claimed_ids(db)) == 2
    await set_queue(db, key_limit=2)
    assert len(await claimed_ids(db)) == 2
    await db.execute("delete from pgwake.queues")
    assert await claimed_ids(db) == []
    assert len(made) == 6


async def test_a_limit_of_0_stops_a_key_until_it_is_taken_away(db: Connection) -> None:
    await set_limit(db, "a", 0)
    a, b = await keyed(db, "a", "b")
    assert await claimed_ids(db) == [b]
    assert (await claim_batch(db))["next_run_at"] is None

    await db.execute("delete from pgwake.concurrency_limits")
    assert await claimed_ids(db) == [a]


async def test_a_cancelled_job_leaves_its_key_wherever_it_was(db: Connection) -> None:
    first, second, third, fourth = await keyed(db, *"aaaa")
    await call(db, "cancel_job", job_id=second)  # waiting
    (job,) = await claim(db)
    assert job["id"] == first
    await call(db, "cancel_job", job_id=first)  # running
    assert await claimed_ids(db) == []
    await call(db, "fail_job", **pair(job))
    assert await status(db, first) == "cancelled"
    (job,) = await claim(db)
    assert job["id"] == third
    await call(db, "release_jobs", **pairs(job))
    await call(db, "cancel_job", job_id=third)  # pending
    assert await claimed_ids(db) == [fourth]


async def test_a_job_that_replaces_a_waiting_one_waits_for_its_own_key(
    db: Connection,
) -> None:
    held = await running(db, concurrency_key="b")
    job_id = await call(db, "enqueue", **REPLACE, concurrency_key="a")
    again = await call(db, "enqueue", **REPLACE, concurrency_key="b")
    assert again == job_id
    assert await claimed_ids(db) == []
    await complete(db, held)
    assert await claimed_ids(db) == [job_id]


async def test_a_job_that_replaces_a_running_one_waits_for_its_end(
    db: Connection,
) -> None:
    arguments = {**REPLACE, "concurrency_key": "a"}
    await call(db, "enqueue", **arguments)
    (held,) = await claim(db)
    new = await call(db, "enqueue", **arguments)
    assert new != held["id"]
    assert await claimed_ids(db) == []
    await complete(db, held)
    assert await claimed_ids(db) == [new]


async def test_a_dead_workers_job_gives_its_room_back_though_the_key_is_full(
    db: Connection,
) -> None:
    made = await keyed(db, *"aaaaaa")
    assert await claimed_ids(db, worker="w1") == made[:1]  # and its worker dies
    assert await claimed_ids(db) == []
    await set_clock(db, "1 hour")
    assert await sweep(db) == 1

    ran = []
    while jobs := await claim(db):
        ran.append(jobs[0]["id"])
        await complete(db, *jobs)
    assert ran == made


async def test_a_suspect_that_is_put_off_leaves_its_key(db: Connection) -> None:
    await set_queue(db, backoff_base=timedelta(hours=1), backoff_jitter=0.0)
    first, second = await keyed(db, "a", "a")
    await db.execute("update pgwake.jobs_live set crash_count = 2 where id = $1", first)
    assert await claimed_ids(db) == []
    (job,) = await rows(db, "claim_next_job", queue="default", worker="w1")
    assert job["id"] == first
    await call(db, "release_worker_jobs", worker="w1")
    assert await status(db, first) == "waiting"
    assert await claimed_ids(db) == [second]


async def test_a_retried_dead_letter_waits_for_its_key(db: Connection) -> None:
    (first,) = await keyed(db, "a")
    (job,) = await claim(db)
    await call(db, "fail_job", **pair(job), retryable=False)
    (second,) = await keyed(db, "a")
    (job,) = await claim(db)
    assert job["id"] == second
    await call(db, "retry_job", job_id=first)
    assert await status(db, first) == "waiting"
    assert await claimed_ids(db) == []
    await complete(db, job)
    assert await claimed_ids(db) == [first]


async def test_a_job_of_a_key_is_not_let_in_before_it_is_due(db: Connection) -> None:
    due_at = await db.fetchval("select now() + interval '1 hour'")
    (later,) = await keyed(db, "a", run_at=due_at, priority=5)
    assert (await claim_batch(db))["next_run_at"] == due_at
    (now,) = await keyed(db, "a")
    (job,) = await claim(db)
    assert job["id"] == now
    await complete(db, job)
    assert (await claim_batch(db))["next_run_at"] == due_at
    await set_clock(db, "1 hour")
    assert await claimed_ids(db) == [later]


async def test_a_jobs_turn_begins_when_its_key_has_room(db: Connection) -> None:
    # What makes a tenant with much to do wait behind one that comes later.
    await keyed(db, *"aaaa")
    (held,) = await claim(db)
    await keyed(db, "b")
    await complete(db, held)
    (b,) = await claim(db, 1)
    assert (await job(db, b["id"]))["concurrency_key"] == "b"


async def test_keys_take_turns_however_many_jobs_each_has(db: Connection) -> None:
    await keyed(db, *"a" * 30)
    await keyed(db, *"bcdbcdbcd")
    ran = ""
    while jobs := await claim(db, 2):
        for one in jobs:
            ran += (await job(db, one["id"]))["concurrency_key"]
        for one in jobs:
            await complete(db, one)
    assert sorted(ran[:12]) == list("aaabbbcccddd")


async def test_a_job_somebody_has_locked_is_looked_for_again(
    db: Connection, other: Connection
) -> None:
    (first,) = await keyed(db, "a")
    async with row_locked(other, first):
        assert await claimed_ids(db) == []
        row = await claim_batch(db)
        assert row["next_run_at"] - row["claimed_at"] < timedelta(seconds=1)
    await set_clock(db, "1 second")
    assert await claimed_ids(db) == [first]


async def test_a_consumer_that_takes_one_at_a_time_finds_the_job_with_room(
    db: Connection,
) -> None:
    await keyed(db, *(["a"] * 50))
    assert len(await claimed_ids(db, 1)) == 1
    await keyed(db, *(["a"] * 250))
    (z,) = await keyed(db, "z")
    (found,) = await rows(db, "claim_next_job", queue="default")
    assert found["id"] == z


async def test_a_key_that_has_only_later_jobs_costs_others_no_turn(
    db: Connection,
) -> None:
    later = await db.fetchval("select now() + interval '1 hour'")
    jobs = []
    for n in range(30):
        await keyed(db, f"a{n}")
        await keyed(db, f"a{n}", run_at=later)
    while found := await claim(db, 100):
        jobs += found
    await complete(db, *jobs)  # thirty rechecks of keys with nothing due
    (z,) = await keyed(db, "z")
    (taken,) = await rows(db, "claim_next_job", queue="default")
    assert taken["id"] == z


async def test_an_end_of_a_key_wakes_who_sleeps(
    connect: Connect, db: Connection
) -> None:
    await keyed(db, "a", "a")
    (held,) = await claim(db)
    listener = await Listener.with_notify_locks(await connect(), "default")
    await complete(db, held)
    assert await listener.heard() == ["default"]


async def test_being_let_in_is_announced_and_counted(
    connect: Connect, db: Connection
) -> None:
    watcher = await connect()
    await call(watcher, "watch")
    listener = await Listener.start(watcher, "job_status_changed")
    (a, _) = await keyed(db, "a", "a")
    await listener.events()
    await claimed_ids(db)
    told = [
        (e["id"], e["old_status"], e["new_status"]) for e in await listener.events()
    ]
    assert told == [(a, "waiting", "pending"), (a, "pending", "running")]
    (stats,) = await rows(db, "get_queue_stats")
    assert (stats["waiting_count"], stats["running_count"]) == (1, 1)


async def test_a_paused_queue_lets_nobody_in(db: Connection) -> None:
    (a,) = await keyed(db, "a")
    await set_queue(
        db, paused_until=await db.fetchval("select 'infinity'::timestamptz")
    )
    assert await claimed_ids(db) == []
    assert await status(db, a) == "waiting"


async def test_under_repeatable_read_keys_are_refused_with_a_reason(
    db: Connection,
) -> None:
    await keyed(db, "a")
    with refused("PW003"):
        async with db.transaction(isolation="repeatable_read"):
            await claim(db)


async def test_a_limit_must_be_a_number(db: Connection) -> None:
    with refused("23514", "concurrency_limits_has_a_limit"):
        await db.execute("insert into pgwake.concurrency_limits values ('q', 'a')")


async def test_jobs_that_came_without_triggers_are_admitted_after_upkeep(
    db: Connection, connect: Connect, admin_url: str
) -> None:
    admin = await connect(admin_url)
    await admin.execute("set session_replication_role = replica")
    await admin.execute(
        "insert into pgwake.jobs_live (kind, status, concurrency_key)"
        " select 'noop', 'waiting', n % 3 from generate_series(1, 9) as n"
    )
    assert await claimed_ids(db) == []
    assert await call(db, "maintain", step="keys") == {"keys": 3}
    assert await call(db, "maintain", step="keys") == {"keys": 0}
    assert len(await claimed_ids(db)) == 3
    assert await call(db, "maintain", step="keys") == {"keys": 0}


async def test_the_upkeep_sees_so_many_keys_a_call_whatever_their_jobs_do(
    db: Connection, connect: Connect, admin_url: str
) -> None:
    """Keys whose jobs are all pending count too: else one call would read them all."""
    admin = await connect(admin_url)
    await admin.execute("set session_replication_role = replica")
    await admin.execute(
        "insert into pgwake.jobs_live (kind, status, concurrency_key)"
        " select 'noop', case n when 2000 then 'waiting' else 'pending' end, n"
        " from generate_series(1000, 2000) as n"
    )
    assert await buffers(db, "flag_missed_keys", max_keys=100) < 1500
    counts = [await call(db, "flag_missed_keys", max_keys=200) for _ in range(6)]
    assert counts == [0, 0, 0, 0, 0, 1]
    assert await call(db, "flag_missed_keys") == 0  # it has its recheck


async def test_a_cursor_passes_no_recheck_over_that_a_full_claim_has_left(
    db: Connection,
) -> None:
    await set_queue(db, key_limit=10)
    await db.execute(
        "insert into pgwake.jobs (kind, concurrency_key, run_at)"
        " select 'noop', n % 1000, now() - interval '1 hour'"
        " from generate_series(1, 2000) as n"
    )
    cursor, claimed = None, 0
    while claimed < 2000:
        row = await claim_batch(db, 100, cursor=cursor)
        cursor = row["cursor"]
        assert row["ids"], "each claim finds what is due"
        claimed += len(row["ids"])
