from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    ABSENT,
    Listener,
    Row,
    blocking,
    call,
    claim,
    claimed_ids,
    insert,
    insert_many,
    job,
    job_in,
    pair,
    refused,
    rows,
    running,
    set_kind,
    set_queue,
    status,
)

LATER = datetime(2099, 1, 1, tzinfo=UTC)
SOON = timedelta(hours=1)


async def update(db: Connection, *ids: int, **arguments: Any) -> dict[str, list[int]]:
    """Call it; the ids by outcome."""
    if ids:
        arguments["job_ids"] = list(ids)
    found = await rows(db, "update_jobs", **arguments)
    assert all(row["job_count"] == len(row["ids"]) for row in found)
    return {row["outcome"]: row["ids"] for row in found}


async def counts(db: Connection, queue: str = "default") -> tuple[int, int, int]:
    (found,) = await rows(db, "get_queue_stats", queue=queue)
    return (
        found["pending_count"] + found["scheduled_count"],
        found["waiting_count"],
        found["running_count"],
    )


async def test_what_is_named_changes_and_what_is_not_stays(db: Connection) -> None:
    columns: dict[str, Any] = {"payload": {"a": 1, "b": {"c": 2, "d": 3}}}
    columns |= {"metadata": {"x": 1}, "unique_key": "u", "attempt": 2, "priority": 3}
    job_id = await insert(db, **columns)
    before = await job(db, job_id)

    changes: dict[str, Any] = {"priority": 10, "run_at": LATER.isoformat()}
    changes |= {"payload": {"b": {"c": None}, "e": [1]}, "metadata": {"y": 2}}
    changes |= {"max_attempts": 7, "queue": "other"}
    assert await update(db, job_id, changes=changes) == {"updated": [job_id]}
    assert await job(db, job_id) == before | {
        "queue": "other",
        "priority": 10,
        "run_at": LATER,
        "max_attempts": 7,
        "payload": {"a": 1, "b": {"d": 3}, "e": [1]},
        "metadata": {"x": 1, "y": 2},
    }
    assert await counts(db, "other") == (1, 0, 0)
    assert await counts(db) == (0, 0, 0)

    nulls = {"max_attempts": None, "metadata": None, "priority": 3}
    await update(db, job_id, changes=nulls)
    row = await job(db, job_id)
    assert (row["max_attempts"], row["metadata"], row["priority"]) == (None, None, 3)


async def test_it_says_what_it_has_left_and_why(db: Connection) -> None:
    held = await running(db)
    ended = {s: await job_in(db, s) for s in ("completed", "failed", "cancelled")}
    before = await db.fetch("select * from pgwake.jobs order by id")
    waits = await insert(db)

    ids = [waits, held["id"], *ended.values(), ABSENT]
    answer = await update(db, *ids, changes={"priority": 5})
    expected = {state: [job_id] for state, job_id in ended.items()}
    expected |= {"updated": [waits], "running": [held["id"]], "no_such_job": [ABSENT]}
    assert answer == expected
    after = await db.fetch(
        "select * from pgwake.jobs where id <> $1 order by id", waits
    )
    assert after == before
    again = await update(db, waits, changes={"priority": 5, "payload": {}})
    assert again == {"unchanged": [waits]}


@pytest.mark.parametrize(
    "chosen",
    [
        {"queue": "a"},
        {"kind": "a"},
        {"concurrency_key": "a"},
        {"unique_key": "a"},
        {"status": "waiting"},
    ],
    ids=repr,
)
async def test_filters_choose_as_those_of_cancel_jobs(
    db: Connection, chosen: dict[str, str]
) -> None:
    others = [await insert(db, "b", queue="b", unique_key=k) for k in ("b", "c")]
    target = await insert(db, **{"kind": "b", "queue": "b", **chosen})

    answer = await update(db, changes={"priority": 5}, **chosen)
    assert answer == {"updated": [target]}
    assert [(await job(db, i))["priority"] for i in others] == [0, 0]


async def test_many_are_changed_a_batch_after_the_other(db: Connection) -> None:
    await insert_many(db, 5)
    (held,) = await claim(db)
    call_again: dict[str, Any] = {"changes": {"priority": 5}, "kind": "noop"}

    first = await update(db, **call_again, max_jobs=3)
    assert first == {"running": [held["id"]], "updated": [2, 3]}
    second = await update(db, **call_again, max_jobs=3, after_id=3)
    assert second == {"updated": [4, 5]}
    assert await update(db, **call_again, max_jobs=3, after_id=5) == {}


async def test_a_dry_run_says_the_same_and_changes_nothing(db: Connection) -> None:
    await insert_many(db, 3)
    await claim(db)
    before = await db.fetch("select * from pgwake.jobs order by id")
    changes = {"queue": "other", "payload": {"a": 1}}

    answer = await update(db, changes=changes, queue="default", dry_run=True)
    assert await db.fetch("select * from pgwake.jobs order by id") == before
    assert answer == await update(db, changes=changes, queue="default")


async def test_run_now_has_it_due_and_keeps_the_place_of_what_is_due(
    db: Connection,
) -> None:
    due = await insert(db, run_at=datetime(2020, 1, 1, tzinfo=UTC))
    late = await insert(db, run_at=LATER)

    assert await call(db, "run_now", job_id=late) == "updated"
    assert await call(db, "run_now", job_id=due) == "unchanged"
    assert await claimed_ids(db) == [due, late]
    assert await call(db, "run_now", job_id=late) == "running"
    with refused("PW001"):
        await call(db, "run_now", job_id=ABSENT)


async def test_who_sleeps_on_the_queue_is_woken(
    connect: Connect, db: Connection
) -> None:
    late = await insert(db, run_at=LATER)
    listener = await Listener.with_notify_locks(await connect(), "default", "other")
    await call(db, "run_now", job_id=late)
    assert await listener.heard() == ["default"]
    await update(db, late, changes={"queue": "other"})
    assert await listener.heard() == ["other"]
    await update(db, late, changes={"queue": "other"})
    assert await listener.heard() == []


async def test_an_owners_own_update_wakes_as_well(
    connect: Connect, db: Connection
) -> None:
    late = await insert(db, run_at=LATER)
    keyed = await insert(db, queue="keyed", concurrency_key="k", run_at=LATER)
    assert await claimed_ids(db, queue="keyed") == []
    listener = await Listener.with_notify_locks(await connect(), "default", "keyed")
    for job_id, queue in ((late, "default"), (keyed, "keyed")):
        await db.execute("update pgwake.jobs set run_at = now() where id = $1", job_id)
        assert await listener.heard() == [queue]
        assert await claimed_ids(db, queue=queue) == [job_id]


async def test_one_that_is_claimed_while_it_is_waited_for_is_left(
    db: Connection, other: Connection
) -> None:
    await insert_many(db, 2)
    call_it = update(other, kind="noop", changes={"priority": 5})
    async with blocking(db, other, call_it) as task:
        (held,) = await claim(db)
    assert await task == {"running": [held["id"]], "updated": [2]}

    call_it = update(other, kind="noop", changes={"priority": 6})
    async with blocking(db, other, call_it) as task:
        await call(db, "cancel_job", job_id=2)
    assert await task == {"running": [held["id"]], "cancelled": [2]}

    moves = await insert(db)
    call_it = update(other, queue="default", changes={"priority": 6})
    async with blocking(db, other, call_it) as task:
        await update(db, moves, changes={"queue": "other"})
    assert await task == {"running": [held["id"]], "missed": [moves]}


async def test_running_jobs_are_not_waited_for(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    async with db.transaction():
        await call(db, "complete_job", **pair(held))
        answer = await update(other, changes={"priority": 5}, kind="noop")
        assert answer == {"running": [held["id"]]}


BY_HAND = {
    "update_jobs": "select from pgwake.update_jobs($2, job_ids => array[$1::bigint])",
    "an owner's update": (
        "update pgwake.jobs set queue = coalesce($2::jsonb ->> 'queue', queue),"
        " run_at = coalesce(($2 ->> 'run_at')::timestamptz, run_at) where id = $1"
    ),
}
either = pytest.mark.parametrize("statement", BY_HAND.values(), ids=BY_HAND)


@either
async def test_the_limit_of_a_key_holds_where_it_moves_to(
    db: Connection, statement: str
) -> None:
    there = await insert(db, queue="b", concurrency_key="k")
    (held,) = await claim(db, queue="b")
    first, second = [await insert(db, queue="a", concurrency_key="k") for _ in "12"]
    await set_queue(db, "a", paused_until=LATER)  # admitted, not claimed
    await db.execute("update pgwake.jobs set status = 'pending' where id = $1", first)

    await db.execute(statement, first, {"queue": "b"})
    assert await status(db, first) == "waiting"
    assert await claimed_ids(db, queue="b") == []
    assert await counts(db, "b") == (0, 1, 1)
    await set_queue(db, "a", paused_until=None)
    assert await claimed_ids(db, queue="a") == [second]  # its room is free
    await call(db, "complete_job", **pair(held))
    assert held["id"] == there
    assert await claimed_ids(db, queue="b") == [first]
    assert await counts(db, "b") == (0, 0, 1)


@either
async def test_one_that_is_put_off_gives_its_room_to_the_next(
    db: Connection, statement: str
) -> None:
    first, second = [await insert(db, concurrency_key="k") for _ in "12"]
    await db.execute("update pgwake.jobs set status = 'pending' where id = $1", first)

    await db.execute(statement, first, {"run_at": LATER.isoformat()})
    assert await status(db, first) == "waiting"
    assert await counts(db) == (0, 2, 0)
    assert await claimed_ids(db) == [second]


async def test_one_that_keeps_its_key_for_a_retry_goes_on_keeping_it(
    db: Connection,
) -> None:
    await set_queue(db, keep_order=True, backoff_base=SOON, backoff_jitter=0)
    first, second = [await insert(db, concurrency_key="k") for _ in "12"]
    (held,) = await claim(db)
    await call(db, "fail_job", **pair(held))
    for change in ({"priority": -5}, {"run_at": LATER.isoformat()}):
        await update(db, first, changes=change)
        assert await status(db, first) == "pending"
        assert await claimed_ids(db) == []

    await call(db, "run_now", job_id=first)
    assert await claimed_ids(db) == [first]
    assert await status(db, second) == "waiting"


async def test_what_waits_for_a_key_goes_by_the_new_order(db: Connection) -> None:
    (held, *others) = [await insert(db, concurrency_key="k") for _ in range(3)]
    (first,) = await claim(db)
    assert first["id"] == held
    await update(db, others[1], changes={"priority": 10})
    await call(db, "complete_job", **pair(first))
    assert await claimed_ids(db) == [others[1]]


async def test_a_child_goes_on_waiting_for_its_parents(db: Connection) -> None:
    gone, parent = [await insert(db, queue="p") for _ in "12"]
    child = await insert(db, depends_on=[gone, parent])
    (first, last) = await claim(db, 2, queue="p")
    assert await claimed_ids(db) == []  # the recheck is done
    await call(db, "complete_job", **pair(first))
    await db.execute("delete from pgwake.jobs where id = $1", gone)

    await update(db, child, changes={"queue": "other", "run_at": "now"})
    assert await claimed_ids(db, queue="other") == []
    await call(db, "complete_job", **pair(last))
    assert await claimed_ids(db, queue="other") == [child]


async def test_a_child_that_moves_before_anybody_has_looked_is_found(
    db: Connection,
) -> None:
    child = await insert(db, depends_on=[await insert(db, queue="p")])
    (held,) = await claim(db, queue="p")
    await update(db, child, changes={"queue": "other"})
    await call(db, "complete_job", **pair(held))
    # The recheck is the old queue's: its next claim takes it, or upkeep.
    await db.execute("update pgwake.rechecks set at = at - interval '1 minute'")
    await call(db, "maintain", step="children")
    assert await claimed_ids(db, queue="other") == [child]


async def test_priority_0_is_by_policy_of_the_kind_or_the_new_queue(
    db: Connection,
) -> None:
    await set_queue(db, "other", priority=7)
    job_id = await insert(db, priority=3)
    await update(db, job_id, changes={"queue": "other"})
    assert (await job(db, job_id))["priority"] == 3
    await update(db, job_id, changes={"priority": 0})
    assert (await job(db, job_id))["priority"] == 7
    await set_kind(db, "noop", priority=9)
    await update(db, job_id, changes={"priority": 0})
    assert (await job(db, job_id))["priority"] == 9


async def test_a_patch_that_one_payload_does_not_take_changes_none(
    db: Connection,
) -> None:
    kinds = {"strict": {"schema": {"properties": {"n": {"type": "integer"}}}}}
    await call(db, "declare_kinds", kinds=kinds)
    await set_kind(db, "strict", check_payload=True)
    await insert(db)
    await insert(db, "strict")
    large = await insert(db, payload={"a": "x" * 1_000_000})
    before = await db.fetch("select * from pgwake.jobs order by id")

    for dry_run in (True, False):
        options = {"queue": "default", "dry_run": dry_run}
        with refused("PW003") as caught:
            await update(db, **options, changes={"payload": {"n": "x"}})
        assert "kind strict" in str(caught.value)
        with refused("PW003") as caught:
            await update(db, **options, changes={"payload": {"b": "x" * 50_000}})
        assert f"job {large}" in str(caught.value)
    assert await db.fetch("select * from pgwake.jobs order by id") == before


REFUSED: list[Row] = [
    {"changes": None, "kind": "a"},
    {"changes": {}, "kind": "a"},
    {"changes": [], "kind": "a"},
    {"changes": {"priorty": 1}, "kind": "a"},
    {"changes": {"unique_key": "a"}, "kind": "a"},
    {"changes": {"queue": None}, "kind": "a"},
    {"changes": {"queue": ""}, "kind": "a"},
    {"changes": {"queue": "x" * 129}, "kind": "a"},
    {"changes": {"payload": None}, "kind": "a"},
    {"changes": {"payload": [1]}, "kind": "a"},
    {"changes": {"metadata": 1}, "kind": "a"},
    {"changes": {"priority": 1}},
    {"changes": {"priority": 1}, "status": "running"},
    {"changes": {"priority": 1}, "status": "failed"},
    {"changes": {"priority": 1}, "kind": "a", "max_jobs": 0},
    {"changes": {"priority": 1}, "kind": "a", "dry_run": None},
    {"changes": {"priority": 1}, "job_ids": [1, 2], "max_jobs": 1},
]


@pytest.mark.parametrize("arguments", REFUSED, ids=repr)
async def test_what_can_not_be_meant_is_refused(db: Connection, arguments: Row) -> None:
    job_id = await insert(db, "a")
    before = await job(db, job_id)
    with refused("PW003"):
        await update(db, **arguments)
    assert await job(db, job_id) == before


@pytest.mark.parametrize(
    ("changes", "code", "check"),
    [
        ({"priority": 101}, "23514", "priority_is_minus_100_to_100"),
        ({"max_attempts": 0}, "23514", "max_attempts_is_1_to_10000"),
        ({"run_at": "infinity"}, "23514", "run_at_is_in_years_1_to_9999"),
        ({"priority": "high"}, "22P02", None),
        ({"run_at": "soon"}, "22007", None),
    ],
)
async def test_values_out_of_range_are_refused_even_in_a_dry_run(
    db: Connection, changes: Row, code: str, check: str | None
) -> None:
    with refused(code, by=check and f"jobs_{check}"):
        await update(db, changes=changes, kind="a", dry_run=True)


async def test_a_change_of_status_is_announced_to_those_who_watch(
    connect: Connect, db: Connection
) -> None:
    job_id = await insert(db, concurrency_key="k")
    await db.execute("update pgwake.jobs set status = 'pending' where id = $1", job_id)
    watcher = await connect()
    listener = await Listener.start(watcher, "job_status_changed")
    await call(watcher, "watch")
    await update(db, job_id, changes={"queue": "other"})
    (event,) = await listener.events()
    assert (event["queue"], event["old_status"]) == ("other", "pending")
    await update(db, job_id, changes={"priority": 1})
    assert await listener.events() == []


async def test_a_payload_that_stays_is_not_written_again(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, payload) select 'noop', jsonb_build_object('a',"
        " (select string_agg(md5((n * 1000 + m)::text), '')"
        " from generate_series(1, 300) as m)) from generate_series(1, 20) as n"
    )
    toasted = (
        "select pg_relation_size(reltoastrelid) from pg_class"
        " where oid = 'pgwake.jobs_live'::regclass"
    )
    before = await db.fetchval(toasted)
    assert before > 100_000
    found = await update(db, changes={"priority": 9}, kind="noop")
    assert len(found["updated"]) == 20
    assert await db.fetchval(toasted) == before
