"""Concurrency keys: how many jobs of one key run at once, in which order, and when."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Listener,
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
    rows,
    running,
    set_clock,
    set_queue,
    status,
    sweep,
)


async def ids(connection: Connection, count: int = 100, **arguments: Any) -> list[int]:
    """Claim; the ids."""
    return [job["id"] for job in await claim(connection, count, **arguments)]


async def set_limit(connection: Connection, key: str, most: int) -> None:
    await connection.execute(
        "insert into pgwake.concurrency_limits values ('default', $1, $2)"
        " on conflict (queue, key) do update set max_running = excluded.max_running",
        key,
        most,
    )


async def keyed(connection: Connection, *keys: str, **columns: Any) -> list[int]:
    """Insert a job for each key, one after the other."""
    return [await insert(connection, concurrency_key=key, **columns) for key in keys]


async def complete(connection: Connection, *jobs: dict[str, Any]) -> None:
    outcomes = await call(connection, "complete_jobs", **pairs(*jobs))
    assert set(outcomes) == {"completed"}


async def test_jobs_of_a_key_run_one_after_the_other_in_order(
    connection: Connection,
) -> None:
    late = await insert(connection, concurrency_key="a", priority=-1)
    first, second = await keyed(connection, "a", "a")
    urgent = await insert(connection, concurrency_key="a", priority=9)

    ran = []
    while jobs := await claim(connection, 100):
        assert len(jobs) == 1
        ran.append(jobs[0]["id"])
        await complete(connection, *jobs)
    assert ran == [urgent, first, second, late]


async def test_a_job_with_a_key_waits_until_it_is_let_in(
    connection: Connection,
) -> None:
    first, second = await keyed(connection, "a", "a")
    assert await status(connection, first) == "waiting"

    await ids(connection)
    assert await status(connection, first) == "running"
    assert await status(connection, second) == "waiting"


async def test_keys_do_not_stand_in_each_others_way(connection: Connection) -> None:
    a, _, b, c = await keyed(connection, "a", "a", "b", "c")
    plain = await insert(connection)
    assert set(await ids(connection)) == {a, b, c, plain}


async def test_keys_are_per_queue(connection: Connection) -> None:
    (a,) = await keyed(connection, "a")
    (other,) = await keyed(connection, "a", queue="other")
    assert await ids(connection) == [a]
    assert await ids(connection, queue="other") == [other]


@pytest.mark.parametrize("is_of_key", [False, True])
async def test_as_many_of_a_key_run_at_once_as_its_limit_says(
    connection: Connection, is_of_key: bool
) -> None:
    await set_queue(connection, key_limit=2 if is_of_key else 3)
    if is_of_key:
        await set_limit(connection, "a", 3)
    made = await keyed(connection, *"aaaaa")

    jobs = await claim(connection, 100)
    assert [job["id"] for job in jobs] == made[:3]
    await complete(connection, *jobs[:2])
    assert await ids(connection) == made[3:]


async def test_two_open_claims_never_exceed_a_limit(
    connection: Connection, other: Connection
) -> None:
    k1, _, z1 = await keyed(connection, "k", "k", "z")
    async with connection.transaction():
        assert await ids(connection, 1) == [k1]
        assert await ids(other, 1) == [z1]
        assert await ids(other, 1) == []
        row = await claim_batch(other)
        assert row["next_run_at"] is None or row["next_run_at"] <= row["claimed_at"]

    assert await ids(other) == []


async def test_a_claim_that_rolls_back_gives_the_room_back(
    connection: Connection, other: Connection
) -> None:
    first, _ = await keyed(connection, "a", "a")
    async with rolled_back(connection):
        assert await ids(connection) == [first]
        assert await ids(other) == []
        assert await call(other, "next_run_at") <= await call(other, "now")

    assert await ids(other) == [first]


async def test_a_claim_in_a_savepoint_that_rolls_back_does_too(
    connection: Connection, other: Connection
) -> None:
    first, _ = await keyed(connection, "a", "a")
    async with connection.transaction():
        await connection.execute("savepoint before")
        assert await ids(connection) == [first]
        await connection.execute("rollback to before")
        assert await ids(other) == [first]
        assert await ids(connection) == []


async def test_an_open_claim_holds_back_no_more_keys_than_it_has_jobs(
    connection: Connection, other: Connection
) -> None:
    made = await keyed(connection, *"abcdefgh")
    async with connection.transaction():
        mine = await ids(connection, 3)
        theirs = await ids(other)
        assert len(mine) == 3
        assert sorted(mine + theirs) == made
        locks = await connection.fetchval(
            "select count(*) from pg_locks where locktype = 'advisory'"
            " and classid = 1885828974 and pid = pg_backend_pid()"
        )
        assert locks <= 3


async def test_at_most_a_hundred_locks_are_held_by_a_claim(
    connection: Connection,
) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind, concurrency_key)"
        " select 'noop', n from generate_series(1, 300) as n"
    )
    async with connection.transaction():
        row = await claim_batch(connection, 300)
        assert len(row["ids"]) == 100
        assert row["next_run_at"] <= row["claimed_at"], "there is more"
        locks = await connection.fetchval(
            "select count(*) from pg_locks where locktype = 'advisory'"
            " and classid = 1885828974"
        )
        assert locks <= 100
    assert len(await ids(connection, 200)) == 100


async def test_a_job_that_is_put_off_leaves_its_key_to_the_next(
    connection: Connection,
) -> None:
    a, b, c, d = await keyed(connection, *"aaaa")
    hour = timedelta(hours=1)
    (job,) = await claim(connection)
    await call(connection, "fail_job", **pair(job), retry_in=hour)
    (job,) = await claim(connection)
    assert job["id"] == b
    await call(connection, "snooze_job", **pair(job), delay=2 * hour)
    (job,) = await claim(connection)
    assert job["id"] == c
    await complete(connection, job)
    (job,) = await claim(connection)
    assert job["id"] == d
    assert [await status(connection, one) for one in (a, b)] == ["waiting", "waiting"]
    await complete(connection, job)

    row = await claim_batch(connection)
    assert row["ids"] == []
    assert row["next_run_at"] > row["claimed_at"] + hour / 2
    assert await call(connection, "next_run_at") == row["next_run_at"]
    await set_clock(connection, "90 minutes")
    assert await ids(connection) == [a]


async def test_a_queue_that_keeps_the_order_has_the_next_wait_for_retries(
    connection: Connection,
) -> None:
    await set_queue(connection, keep_order=True)
    first, second = await keyed(connection, "a", "a")
    hour = timedelta(hours=1)
    for n, retry in enumerate(("fail", "snooze", "fail")):
        await set_clock(connection, f"{2 * n} hours")
        (job,) = await claim(connection)
        assert job["id"] == first
        if retry == "fail":
            await call(connection, "fail_job", **pair(job), retry_in=hour)
        else:
            await call(connection, "snooze_job", **pair(job), delay=hour)
        assert await claim(connection) == []
    await set_clock(connection, "1 day")
    (job,) = await claim(connection)
    assert job["id"] == first
    await complete(connection, job)
    assert await ids(connection) == [second]


async def test_a_job_released_unstarted_keeps_its_turn(
    connection: Connection,
) -> None:
    first, _ = await keyed(connection, "a", "a")
    (job,) = await claim(connection)
    await call(connection, "release_jobs", **pairs(job))
    assert await status(connection, first) == "pending"
    assert await ids(connection) == [first]


async def test_a_raised_limit_lets_more_in_and_a_lowered_one_ends_nothing(
    connection: Connection,
) -> None:
    made = await keyed(connection, *"aaaaaa")
    jobs = await claim(connection, 100)
    await set_limit(connection, "a", 3)
    jobs += await claim(connection, 100)
    assert [job["id"] for job in jobs] == made[:3]

    await set_limit(connection, "a", 1)
    await complete(connection, *jobs[:2])
    assert await ids(connection) == []
    await complete(connection, jobs[2])
    assert await ids(connection) == [made[3]]


async def test_a_raised_limit_of_the_queue_lets_more_in(
    connection: Connection,
) -> None:
    made = await keyed(connection, *"aaabbb")
    assert len(await ids(connection)) == 2
    await set_queue(connection, key_limit=2)
    assert len(await ids(connection)) == 2
    await connection.execute("delete from pgwake.queues")
    assert await ids(connection) == []
    assert len(made) == 6


async def test_a_limit_of_0_stops_a_key_until_it_is_taken_away(
    connection: Connection,
) -> None:
    await set_limit(connection, "a", 0)
    a, b = await keyed(connection, "a", "b")
    assert await ids(connection) == [b]
    assert (await claim_batch(connection))["next_run_at"] is None

    await connection.execute("delete from pgwake.concurrency_limits")
    assert await ids(connection) == [a]


async def test_a_cancelled_job_leaves_its_key_wherever_it_was(
    connection: Connection,
) -> None:
    first, second, third, fourth = await keyed(connection, *"aaaa")
    await call(connection, "cancel_job", job_id=second)  # waiting
    (job,) = await claim(connection)
    assert job["id"] == first
    await call(connection, "cancel_job", job_id=first)  # running
    assert await ids(connection) == []
    await call(connection, "fail_job", **pair(job))
    assert await status(connection, first) == "cancelled"
    (job,) = await claim(connection)
    assert job["id"] == third
    await call(connection, "release_jobs", **pairs(job))
    await call(connection, "cancel_job", job_id=third)  # pending
    assert await ids(connection) == [fourth]


async def test_a_job_that_replaces_a_waiting_one_waits_for_its_own_key(
    connection: Connection,
) -> None:
    held = await running(connection, concurrency_key="b")
    arguments = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}
    job_id = await call(connection, "enqueue", **arguments, concurrency_key="a")
    again = await call(connection, "enqueue", **arguments, concurrency_key="b")
    assert again == job_id
    assert await ids(connection) == []
    await complete(connection, held)
    assert await ids(connection) == [job_id]


async def test_a_job_that_replaces_a_running_one_waits_for_its_end(
    connection: Connection,
) -> None:
    arguments = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}
    arguments["concurrency_key"] = "a"
    await call(connection, "enqueue", **arguments)
    (held,) = await claim(connection)
    new = await call(connection, "enqueue", **arguments)
    assert new != held["id"]
    assert await ids(connection) == []
    await complete(connection, held)
    assert await ids(connection) == [new]


async def test_a_dead_workers_job_gives_its_room_back_though_the_key_is_full(
    connection: Connection,
) -> None:
    made = await keyed(connection, *"aaaaaa")
    assert await ids(connection, worker="w1") == made[:1]  # and its worker dies
    assert await ids(connection) == []
    await set_clock(connection, "1 hour")
    assert await sweep(connection) == 1

    ran = []
    while jobs := await claim(connection):
        ran.append(jobs[0]["id"])
        await complete(connection, *jobs)
    assert ran == made


async def test_a_suspect_that_is_put_off_leaves_its_key(
    connection: Connection,
) -> None:
    await set_queue(connection, backoff_base=timedelta(hours=1), backoff_jitter=0.0)
    first, second = await keyed(connection, "a", "a")
    await connection.execute(
        "update pgwake.jobs_live set crash_count = 2 where id = $1", first
    )
    assert await ids(connection) == []
    (job,) = await rows(connection, "claim_next_job", queue="default", worker="w1")
    assert job["id"] == first
    await call(connection, "release_worker_jobs", worker="w1")
    assert await status(connection, first) == "waiting"
    assert await ids(connection) == [second]


async def test_a_retried_dead_letter_waits_for_its_key(connection: Connection) -> None:
    (first,) = await keyed(connection, "a")
    (job,) = await claim(connection)
    await call(connection, "fail_job", **pair(job), retryable=False)
    (second,) = await keyed(connection, "a")
    (job,) = await claim(connection)
    assert job["id"] == second
    await call(connection, "retry_job", job_id=first)
    assert await status(connection, first) == "waiting"
    assert await ids(connection) == []
    await complete(connection, job)
    assert await ids(connection) == [first]


async def test_a_job_of_a_key_is_not_let_in_before_it_is_due(
    connection: Connection,
) -> None:
    due_at = await connection.fetchval("select now() + interval '1 hour'")
    (later,) = await keyed(connection, "a", run_at=due_at, priority=5)
    assert (await claim_batch(connection))["next_run_at"] == due_at
    (now,) = await keyed(connection, "a")
    (job,) = await claim(connection)
    assert job["id"] == now
    await complete(connection, job)
    assert (await claim_batch(connection))["next_run_at"] == due_at
    await set_clock(connection, "1 hour")
    assert await ids(connection) == [later]


async def test_a_jobs_turn_begins_when_its_key_has_room(
    connection: Connection,
) -> None:
    # What makes a tenant with much to do wait behind one that comes later.
    await keyed(connection, *"aaaa")
    (held,) = await claim(connection)
    await keyed(connection, "b")
    await complete(connection, held)
    (b,) = await claim(connection, 1)
    assert (await job(connection, b["id"]))["concurrency_key"] == "b"


async def test_keys_take_turns_however_many_jobs_each_has(
    connection: Connection,
) -> None:
    await keyed(connection, *"a" * 30)
    await keyed(connection, *"bcdbcdbcd")
    ran = ""
    while jobs := await claim(connection, 2):
        for one in jobs:
            ran += (await job(connection, one["id"]))["concurrency_key"]
        for one in jobs:
            await complete(connection, one)
    assert sorted(ran[:12]) == list("aaabbbcccddd")


async def test_a_job_somebody_has_locked_is_looked_for_again(
    connection: Connection, other: Connection
) -> None:
    (first,) = await keyed(connection, "a")
    async with row_locked(other, first):
        assert await ids(connection) == []
        row = await claim_batch(connection)
        assert row["next_run_at"] - row["claimed_at"] < timedelta(seconds=1)
    await set_clock(connection, "1 second")
    assert await ids(connection) == [first]


async def test_a_consumer_that_takes_one_at_a_time_finds_the_job_with_room(
    connection: Connection,
) -> None:
    await keyed(connection, *(["a"] * 50))
    assert len(await ids(connection, 1)) == 1
    await keyed(connection, *(["a"] * 250))
    (z,) = await keyed(connection, "z")
    (found,) = await rows(connection, "claim_next_job", queue="default")
    assert found["id"] == z


async def test_a_key_that_has_only_later_jobs_costs_others_no_turn(
    connection: Connection,
) -> None:
    later = await connection.fetchval("select now() + interval '1 hour'")
    jobs = []
    for n in range(30):
        await keyed(connection, f"a{n}")
        await keyed(connection, f"a{n}", run_at=later)
    while found := await claim(connection, 100):
        jobs += found
    await complete(connection, *jobs)  # thirty looks at keys with nothing due
    (z,) = await keyed(connection, "z")
    (taken,) = await rows(connection, "claim_next_job", queue="default")
    assert taken["id"] == z


async def test_an_end_of_a_key_wakes_who_sleeps(
    connect: Connect, connection: Connection
) -> None:
    await keyed(connection, "a", "a")
    (held,) = await claim(connection)
    listener = await Listener.with_bells(await connect(), "default")
    await complete(connection, held)
    assert await listener.heard() == ["default"]


async def test_being_let_in_is_announced_and_counted(
    connect: Connect, connection: Connection
) -> None:
    watcher = await connect()
    await call(watcher, "watch")
    listener = await Listener.start(watcher, "job_status_changed")
    (a, _) = await keyed(connection, "a", "a")
    await listener.events()
    await ids(connection)
    told = [
        (e["id"], e["old_status"], e["new_status"]) for e in await listener.events()
    ]
    assert told == [(a, "waiting", "pending"), (a, "pending", "running")]
    (stats,) = await rows(connection, "get_queue_stats")
    assert (stats["waiting_count"], stats["running_count"]) == (1, 1)


async def test_a_paused_queue_lets_nobody_in(connection: Connection) -> None:
    (a,) = await keyed(connection, "a")
    await set_queue(
        connection,
        paused_until=await connection.fetchval("select 'infinity'::timestamptz"),
    )
    assert await ids(connection) == []
    assert await status(connection, a) == "waiting"


async def test_under_repeatable_read_keys_are_refused_with_a_reason(
    connection: Connection,
) -> None:
    await keyed(connection, "a")
    with refused("PW003"):
        async with connection.transaction(isolation="repeatable_read"):
            await claim(connection)


@pytest.mark.parametrize("limit", [-1, 10001, None])
async def test_a_limit_out_of_range_is_refused(
    connection: Connection, limit: int | None
) -> None:
    with refused(
        "23502" if limit is None else "23514",
        None if limit is None else "concurrency_limits_max_running_is_0_to_10000",
    ):
        await connection.execute(
            "insert into pgwake.concurrency_limits values ('default', 'a', $1)", limit
        )


async def test_jobs_that_came_without_triggers_are_let_in_after_upkeep(
    connection: Connection, connect: Connect, admin_url: str
) -> None:
    admin = await connect(admin_url)
    await admin.execute("set session_replication_role = replica")
    await admin.execute(
        "insert into pgwake.jobs_live (kind, status, concurrency_key)"
        " select 'noop', 'waiting', n % 3 from generate_series(1, 9) as n"
    )
    assert await ids(connection) == []
    assert await call(connection, "maintain", step="keys") == {"keys": 3}
    assert await call(connection, "maintain", step="keys") == {"keys": 0}
    assert len(await ids(connection)) == 3
    assert await call(connection, "maintain", step="keys") == {"keys": 0}


async def test_a_cursor_passes_no_look_over_that_a_full_claim_has_left(
    connection: Connection,
) -> None:
    await set_queue(connection, key_limit=10)
    await connection.execute(
        "insert into pgwake.jobs (kind, concurrency_key, run_at)"
        " select 'noop', n % 1000, now() - interval '1 hour'"
        " from generate_series(1, 2000) as n"
    )
    cursor, claimed = None, 0
    while claimed < 2000:
        row = await claim_batch(connection, 100, cursor=cursor)
        cursor = row["cursor"]
        assert row["ids"], "each claim finds what is due"
        claimed += len(row["ids"])
