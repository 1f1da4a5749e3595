"""Which policy holds: the job's, the operator's, the declared, the queue's, ours."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    insert_many,
    job,
    pair,
    rows,
    running,
    set_clock,
    set_kind,
    set_queue,
    sweep,
)

SECOND = timedelta(seconds=1)

# Default, and what queue, declaration and operator are told, each to be told apart.
FIELDS: list[tuple[str, Any, Any, Any, Any]] = [
    ("max_attempts", 20, 2, 3, 4),
    ("backoff_base", SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND),
    ("backoff_cap", 3600 * SECOND, 20 * SECOND, 30 * SECOND, 40 * SECOND),
    ("backoff_jitter", 1.0, 0.25, 0.5, 0.75),
    ("timeout", None, 20 * SECOND, 30 * SECOND, 40 * SECOND),
    ("lease", 300 * SECOND, 20 * SECOND, 30 * SECOND, 40 * SECOND),
    ("priority", 0, 2, 3, 4),
]


async def declare(db: Connection, name: str = "noop", **policy: Any) -> None:
    """What a worker does."""
    await call(db, "declare_kinds", kinds={name: policy})


def in_seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


async def policy(db: Connection) -> Row:
    row = await db.fetchrow("select * from pgwake.get_policy('default', 'noop')")
    assert row is not None
    return dict(row)


@pytest.mark.parametrize(
    ("field", "default", "queues", "declared", "operators"), FIELDS
)
async def test_the_operators_word_comes_before_the_workers_and_that_before_the_queues(
    db: Connection, field: str, default: Any, queues: Any, declared: Any, operators: Any
) -> None:
    found = [(await policy(db))[field]]
    await set_queue(db, **{field: queues})
    found.append((await policy(db))[field])
    await declare(db, **{field: in_seconds(declared)})
    found.append((await policy(db))[field])
    await set_kind(db, **{field: operators})
    found.append((await policy(db))[field])
    assert found == [default, queues, declared, operators]

    # And back, each time at once.
    nothing: Row = {field: None}
    await set_queue(db, **nothing)
    assert (await policy(db))[field] == operators
    await set_kind(db, **nothing)
    assert (await policy(db))[field] == declared
    await declare(db)
    assert (await policy(db))[field] == default


async def outcome(db: Connection, **columns: Any) -> str:
    """How the first attempt of a job that fails ends."""
    held = await running(db, **columns)
    answer: str = await call(db, "fail_job", **pair(held))
    await db.execute("delete from pgwake.jobs")
    return answer


async def test_attempts_are_the_jobs_own_else_the_kinds_else_the_queues(
    db: Connection,
) -> None:
    assert await outcome(db) == "retry"
    await set_queue(db, max_attempts=1)
    assert await outcome(db) == "failed"
    await declare(db, max_attempts=2)
    assert await outcome(db) == "retry"
    await set_kind(db, max_attempts=1)
    assert await outcome(db) == "failed"
    assert await outcome(db, max_attempts=2) == "retry"
    assert await outcome(db, kind="other") == "failed"
    await set_kind(db, max_attempts=9)
    assert await outcome(db, max_attempts=1) == "failed"


async def test_a_change_holds_for_jobs_that_run_already(db: Connection) -> None:
    held = await running(db)
    await set_kind(db, max_attempts=1)

    assert await call(db, "fail_job", **pair(held)) == "failed"


async def seconds_until_retry(db: Connection, **arguments: Any) -> float:
    held = await running(db)
    async with db.transaction():
        await call(db, "fail_job", **pair(held), **arguments)
        now = await call(db, "now")
    delay: timedelta = (await job(db, held["id"]))["run_at"] - now
    await db.execute("delete from pgwake.jobs")
    return delay.total_seconds()


async def test_a_retry_comes_after_the_kinds_backoff_without_jitter_exactly(
    db: Connection,
) -> None:
    await set_queue(db, backoff_base=7 * SECOND, backoff_jitter=0.0)
    assert await seconds_until_retry(db) == 7
    await declare(db, backoff_base=50)
    assert await seconds_until_retry(db) == 50
    await declare(db, backoff_base=50, backoff_cap=20)
    assert await seconds_until_retry(db) == 20
    await set_kind(db, backoff_cap=30 * SECOND)
    assert await seconds_until_retry(db) == 30
    await set_kind(db, backoff_base=10 * SECOND)
    assert await seconds_until_retry(db) == 10
    assert await seconds_until_retry(db, retry_in=SECOND) == 1


@pytest.mark.parametrize("by", ["declared", "operator"])
async def test_the_kinds_jitter_says_how_much_of_the_delay_is_drawn(
    db: Connection, by: str
) -> None:
    await set_queue(db, backoff_base=1000 * SECOND, backoff_jitter=0.0)
    if by == "declared":
        await declare(db, backoff_jitter=0.1)
    else:
        await declare(db, backoff_jitter=1)
        await set_kind(db, backoff_jitter=0.1)
    await insert_many(db, 40)
    async with db.transaction():
        for held in await claim(db, 40):
            await call(db, "fail_job", **pair(held))
        delays = await db.fetch(
            "select extract(epoch from run_at - pgwake.now())::float8"
            " from pgwake.jobs_live"
        )

    seconds = sorted(delay for (delay,) in delays)
    assert 900 <= seconds[0] < seconds[-1] <= 1000


async def crashed(db: Connection, job_id: int) -> Row:
    """Claim a job, have its lease run out, and be swept; what is left of it."""
    (held,) = await rows(db, "claim_next_job", queue="default")
    assert held["id"] == job_id
    await db.execute(
        "update pgwake.jobs_live set lease_expires_at = pgwake.now() - interval '1 s'"
        " where id = $1",
        job_id,
    )
    assert await sweep(db) == 1
    return await job(db, job_id)


async def test_a_job_that_crashed_thrice_waits_for_the_kinds_backoff(
    db: Connection,
) -> None:
    await set_queue(db, backoff_base=7 * SECOND)
    await declare(db, backoff_base=100, backoff_cap=60, backoff_jitter=1)
    await set_kind(db, backoff_jitter=0.0)
    job_id = await insert(db, crash_count=2)
    async with db.transaction():
        row = await crashed(db, job_id)
        now = await call(db, "now")

    assert row["run_at"] - now == 60 * SECOND


@pytest.mark.parametrize(
    ("declared", "operators", "state"),
    [(None, None, "pending"), (1, None, "failed"), (1, 2, "pending"), (2, 1, "failed")],
)
async def test_a_crash_that_counts_is_the_last_by_the_kinds_attempts(
    db: Connection, declared: int | None, operators: int | None, state: str
) -> None:
    await declare(db, max_attempts=declared)
    await set_kind(db, max_attempts=operators)
    job_id = await insert(db, crash_count=2)

    assert (await crashed(db, job_id))["status"] == state


@pytest.mark.parametrize("extreme", [0.0, 86400.0])
@pytest.mark.parametrize("jitter", [0.0, 1.0])
async def test_the_extremes_of_backoff_never_overflow(
    db: Connection, extreme: float, jitter: float
) -> None:
    year = 31104000
    await declare(
        db,
        max_attempts=10000,
        backoff_base=extreme,
        backoff_cap=year,
        backoff_jitter=jitter,
    )
    job_ids = [await insert(db, attempt=attempt) for attempt in (0, 31, 63, 99, 9998)]
    async with db.transaction():
        for held in await claim(db, 5):
            assert await call(db, "fail_job", **pair(held)) == "retry"
        now = await call(db, "now")
        for job_id in job_ids:
            delay = ((await job(db, job_id))["run_at"] - now).total_seconds()
            assert 0.1 <= delay <= year
    await set_clock(db, "400 days")
    assert len(await claim(db, 5)) == 5


async def priority(db: Connection, **columns: Any) -> int:
    found: int = (await job(db, await insert(db, **columns)))["priority"]
    return found


async def test_a_jobs_priority_is_its_own_else_the_kinds_else_the_queues(
    db: Connection,
) -> None:
    assert await priority(db) == 0
    await set_queue(db, priority=2)
    assert await priority(db) == 2
    await declare(db, priority=3)
    assert await priority(db) == 3
    await set_kind(db, priority=-4)
    assert await priority(db) == -4
    assert await priority(db, priority=1) == 1
    assert await priority(db, kind="other") == 2
    assert await priority(db, kind="other", queue="other") == 0
    assert await priority(db, concurrency_key="k") == -4


async def test_what_has_no_priority_by_policy_does_not_look_for_one(
    db: Connection,
) -> None:
    read = (
        "select seq_scan + idx_scan from pg_stat_xact_user_tables"
        " where relname = 'jobs_live'"
    )
    await set_queue(db, "of another", priority=2)
    await set_kind(db, "of another", priority=2)
    async with db.transaction():
        before = await db.fetchval(read)
        await insert(db)
        assert await db.fetchval(read) == before
        await insert(db, queue="of another")
        await insert(db, "of another")
        assert await db.fetchval(read) > before + 1


async def test_an_operators_priority_of_nothing_is_a_priority(db: Connection) -> None:
    await set_queue(db, priority=2)
    await declare(db, priority=3)
    await set_kind(db, priority=0)

    assert await priority(db) == 0


async def test_a_priority_by_policy_is_the_order_of_claims(db: Connection) -> None:
    await declare(db, "urgent", priority=9)
    last = await insert(db)
    first = await insert(db, kind="urgent")
    (held,) = await claim(db)
    assert (held["id"], held["kind"]) == (first, "urgent")

    (held,) = await claim(db)
    assert held["id"] == last


async def test_one_statement_of_many_kinds_gives_each_its_own(db: Connection) -> None:
    await set_queue(db, "slow", priority=-9)
    for name, declared in (("a", 1), ("b", 2), ("c", 1)):
        await declare(db, name, priority=declared)
    await db.execute(
        "insert into pgwake.jobs (kind, queue, priority)"
        " select k, q, p from unnest('{a,b,c,d}'::text[]) as k"
        ", unnest('{default,slow}'::text[]) as q, unnest('{0,5}'::int[]) as p"
    )

    found = await db.fetch(
        "select kind, queue, array_agg(priority order by priority)::int[]"
        " from pgwake.jobs group by kind, queue order by kind, queue"
    )
    assert [tuple(row) for row in found] == [
        ("a", "default", [1, 5]),
        ("a", "slow", [1, 5]),
        ("b", "default", [2, 5]),
        ("b", "slow", [2, 5]),
        ("c", "default", [1, 5]),
        ("c", "slow", [1, 5]),
        ("d", "default", [0, 5]),
        ("d", "slow", [-9, 5]),
    ]


async def test_copy_and_enqueue_go_by_policy_too(db: Connection) -> None:
    await declare(db, priority=3)
    await db.copy_records_to_table(
        "jobs", schema_name="pgwake", columns=["kind"], records=[("noop",), ("other",)]
    )
    await call(db, "enqueue", kind="noop")
    await call(db, "enqueue", kind="noop", priority=7)

    found = await db.fetch("select priority from pgwake.jobs order by id")
    assert [number for (number,) in found] == [3, 0, 3, 7]


async def test_what_replaces_a_job_has_its_priority_by_policy_again(
    db: Connection,
) -> None:
    options = {"kind": "noop", "unique_key": "k", "on_conflict": "replace"}
    job_id = await call(db, "enqueue", **options, priority=7)
    await declare(db, priority=3)

    assert await call(db, "enqueue", **options) == job_id
    assert (await job(db, job_id))["priority"] == 3
    await call(db, "enqueue", **options, priority=4)
    assert (await job(db, job_id))["priority"] == 4


async def test_a_changed_priority_leaves_jobs_that_wait_alone(db: Connection) -> None:
    job_id = await insert(db)
    await set_kind(db, priority=9)

    assert (await job(db, job_id))["priority"] == 0
