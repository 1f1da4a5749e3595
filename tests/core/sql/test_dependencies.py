"""Jobs that depend on others: when they run, and what becomes of them otherwise."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    ABSENT,
    Listener,
    Row,
    call,
    child,
    claim,
    claim_batch,
    claimed_ids,
    complete,
    insert,
    insert_many,
    job,
    job_in,
    pair,
    pairs,
    refused,
    rows,
    running,
    set_clock,
    set_queue,
    status,
)

REPLACE = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}


async def fail(db: Connection, held: Row) -> None:
    await call(db, "fail_job", **pair(held), retryable=False)


async def left(db: Connection) -> int:
    """Rows of what children wait for: rechecks of them too."""
    count: int = await db.fetchval(
        "select (select count(*) from pgwake.dependencies)"
        " + (select count(*) from pgwake.rechecks where child_id is not null)"
    )
    return count


async def test_a_chain_runs_one_after_the_other(db: Connection) -> None:
    first = await insert(db)
    second = await child(db, first)
    third = await child(db, second)
    assert await status(db, third) == "waiting"

    ran = []
    while jobs := await claim(db, 100):
        ran.append([job["id"] for job in jobs])
        await complete(db, *jobs)
    assert ran == [[first], [second], [third]]
    assert await left(db) == 0


async def test_a_fan_out_runs_when_its_parent_has_completed(db: Connection) -> None:
    parent = await insert(db)
    children = [await child(db, parent) for _ in range(5)]
    (held,) = await claim(db, 100)
    assert await claimed_ids(db) == []

    await complete(db, held)
    assert sorted(await claimed_ids(db)) == children


async def test_a_fan_in_of_more_parents_than_a_claim_sees_to(db: Connection) -> None:
    await insert_many(db, 250)
    parents = [row["id"] for row in await db.fetch("select id from pgwake.jobs")]
    joined = await child(db, *parents, parents[0])
    spoilt = await child(db, *parents)
    single = await child(db, parents[0])
    jobs = await claim(db, 10)
    assert await left(db) == 100 + 3, "of the first, and a recheck each"
    while len(jobs) < 250:
        jobs += await claim(db, 30)
    assert await left(db) == 501

    await fail(db, jobs.pop())
    await complete(db, *jobs)
    ran = []
    while await left(db):
        ran += await claimed_ids(db)
    assert ran == [single]
    assert await status(db, joined) == await status(db, spoilt) == "cancelled"


async def test_a_fan_in_runs_when_the_last_parent_has_completed(db: Connection) -> None:
    parents = [await insert(db) for _ in range(5)]
    joined = await child(db, *parents, *parents)
    jobs = await claim(db, 100)
    for held in jobs:
        assert await claimed_ids(db) == []
        await complete(db, held)
    assert await claimed_ids(db) == [joined]
    assert await left(db) == 0


async def test_a_child_of_completed_parents_runs_at_once(db: Connection) -> None:
    parent = await job_in(db, "completed")
    joined = await child(db, parent)
    assert await claimed_ids(db) == [joined]
    assert await left(db) == 0


async def test_a_child_waits_across_queues(db: Connection) -> None:
    parent = await insert(db, queue="a")
    joined = await child(db, parent, queue="b")
    assert await claimed_ids(db, queue="b") == []
    (held,) = await claim(db, queue="a")
    await complete(db, held)
    assert await claimed_ids(db, queue="b") == [joined]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
@pytest.mark.parametrize("when", ["before", "unseen", "seen"])
async def test_a_parent_that_does_not_complete_cancels_its_child_and_that_its_own(
    db: Connection, end: str, when: str
) -> None:
    held: Row = {}
    if when == "before":
        parent = await job_in(db, end)
    else:
        parent = await insert(db)
        (held,) = await claim(db)
    joined = await child(db, parent)
    grandchild = await child(db, joined)
    if when == "seen":
        assert await claimed_ids(db) == []
    if when != "before":
        if end == "cancelled":
            await call(db, "cancel_job", job_id=parent)
        await fail(db, held)
        assert await status(db, parent) == end

    assert await claimed_ids(db) == []
    for one, by in ((joined, parent), (grandchild, joined)):
        row = await job(db, one)
        assert row["status"] == "cancelled"
        (error,) = row["errors"]
        assert error["reason"] == "parent_failed"
        assert error["message"] == f"parent {by} did not complete"
    assert await left(db) == 0


async def test_a_child_may_run_whatever_became_of_its_parents(db: Connection) -> None:
    parents = [await insert(db) for _ in range(3)]
    joined = await child(db, *parents, on_parent_failure="run")
    completed, failed, cancelled = await claim(db, 100)
    await complete(db, completed)
    await fail(db, failed)
    assert await claimed_ids(db) == []
    await call(db, "cancel_job", job_id=cancelled["id"])
    await fail(db, cancelled)
    assert await claimed_ids(db) == [joined]


async def _crash(db: Connection, held: Row) -> None:
    await db.execute(
        "update pgwake.jobs_live set crash_count = 4 where id = $1", held["id"]
    )
    assert await call(db, "release_worker_jobs", worker="w1") is not None


async def _cancel_and_release(db: Connection, held: Row) -> None:
    await call(db, "cancel_job", job_id=held["id"])
    await call(db, "release_jobs", **pairs(held))


WAYS_TO_END: dict[str, Callable[[Connection, Row], Awaitable[Any]]] = {
    "complete_jobs": lambda c, held: call(c, "complete_jobs", **pairs(held)),
    "fail_jobs": lambda c, held: call(
        c, "fail_jobs", **pairs(held), retryables=[False]
    ),
    "force_complete_job": lambda c, held: call(
        c, "force_complete_job", job_id=held["id"], reason="x"
    ),
    "force_fail_job": lambda c, held: call(
        c, "force_fail_job", job_id=held["id"], reason="x"
    ),
    "a crash": _crash,
    "release_jobs": _cancel_and_release,
}
WAYS_TO_CANCEL: dict[str, Callable[[Connection, int], Awaitable[Any]]] = {
    "cancel_job": lambda c, job_id: call(c, "cancel_job", job_id=job_id),
    "cancel_jobs": lambda c, _: rows(c, "cancel_jobs", kind="parent"),
    "a person's DELETE": lambda c, job_id: c.execute(
        "delete from pgwake.jobs where id = $1", job_id
    ),
}


@pytest.mark.parametrize("way", WAYS_TO_END)
async def test_whoever_ends_a_running_parent_frees_its_children(
    db: Connection, way: str
) -> None:
    held = await running(db, kind="parent")
    joined = await child(db, held["id"], on_parent_failure="run")
    assert await claimed_ids(db) == []
    await WAYS_TO_END[way](db, held)
    assert await claimed_ids(db) == [joined]
    assert await left(db) == 0


@pytest.mark.parametrize("way", WAYS_TO_CANCEL)
async def test_whoever_cancels_a_parent_frees_its_children(
    db: Connection, way: str
) -> None:
    later = await at(db, "1 hour")
    parent = await insert(db, kind="parent", run_at=later)
    joined = await child(db, parent, on_parent_failure="run")
    assert await claimed_ids(db) == []
    await WAYS_TO_CANCEL[way](db, parent)
    assert await claimed_ids(db) == [joined]
    assert await left(db) == 0


async def test_the_first_parent_that_fails_cancels_a_child_at_once(
    db: Connection,
) -> None:
    parents = [await insert(db) for _ in range(2)]
    joined = await child(db, *parents)
    first, second = await claim(db, 100)
    await fail(db, first)
    assert await claimed_ids(db) == []
    assert await status(db, joined) == "cancelled"
    await complete(db, second)
    assert await left(db) == 0


async def test_a_hook_that_raises_keeps_its_child_and_stands_in_nobodys_way(
    db: Connection,
) -> None:
    parent = await job_in(db, "failed")
    bad = await child(db, parent, kind="bad")
    good = await child(db, parent)
    plain = await insert(db)
    await db.execute("""
        create function public.refuse() returns trigger language plpgsql
        as $$ begin raise 'not this one'; end $$;
        create trigger refuse before insert on pgwake.jobs_finished for each row
        when (new.kind = 'bad') execute function public.refuse();
    """)
    assert await claimed_ids(db) == [plain]
    assert await status(db, bad) == "waiting"
    assert await status(db, good) == "cancelled"
    assert await claimed_ids(db) == []

    await db.execute("drop trigger refuse on pgwake.jobs_finished")
    await set_clock(db, "61 seconds")
    assert await claimed_ids(db) == []
    assert await status(db, bad) == "cancelled"


async def test_a_parent_to_be_retried_keeps_its_child_waiting(db: Connection) -> None:
    parent = await insert(db)
    joined = await child(db, parent)
    (held,) = await claim(db)
    assert await call(db, "fail_job", **pair(held)) == "retry"
    assert await claimed_ids(db) == []
    await set_clock(db, "1 hour")
    (held,) = await claim(db)
    await complete(db, held)
    assert await claimed_ids(db) == [joined]


async def test_a_child_is_due_when_it_was_to_be_and_its_turn_begins_with_its_room(
    db: Connection,
) -> None:
    parent = await insert(db)
    early = await child(db, parent, run_at=await at(db, "-1 hour"))
    late = await child(db, parent, run_at=await at(db, "1 hour"))
    (held,) = await claim(db)
    await complete(db, held)

    row = await claim_batch(db, 10)
    assert row["ids"] == [early]
    assert (await job(db, early))["run_at"] > held["created_at"]
    assert row["next_run_at"] == (await job(db, late))["run_at"]
    assert await status(db, late) == "pending"


async def at(db: Connection, offset: str) -> Any:
    return await db.fetchval("select pgwake.now() + $1::text::interval", offset)


async def test_a_child_with_a_key_waits_for_its_parents_and_then_for_its_key(
    db: Connection,
) -> None:
    parent = await insert(db)
    one = await child(db, parent, concurrency_key="k")
    two = await insert(db, concurrency_key="k")
    (p, held) = await claim(db, 100)
    assert (p["id"], held["id"]) == (parent, two), "one that has parents takes no room"
    await complete(db, p)
    assert await claimed_ids(db) == []
    assert await status(db, one) == "waiting"
    await complete(db, held)
    assert await claimed_ids(db) == [one]


async def test_a_child_with_a_key_that_is_not_due_is_let_in_when_it_is(
    db: Connection,
) -> None:
    parent = await insert(db)
    later = await at(db, "1 hour")
    one = await child(db, parent, concurrency_key="k", run_at=later)
    (held,) = await claim(db)
    await complete(db, held)
    row = await claim_batch(db)
    assert (row["ids"], row["next_run_at"]) == ([], later)
    await set_clock(db, "61 minutes")
    assert await claimed_ids(db) == [one]


async def test_parents_and_child_may_come_in_one_statement(db: Connection) -> None:
    joined, parents = await db.fetchrow("""
        with parents as (
          insert into pgwake.jobs (kind, payload)
          select 'part', jsonb_build_object('part', n) from generate_series(1, 3) as n
          returning id
        )
        insert into pgwake.jobs (kind, depends_on)
        select 'done', array_agg(id) from parents
        returning id, depends_on
    """) or (0, [])
    jobs = await claim(db, 100)
    assert [job["id"] for job in jobs] == parents
    await complete(db, *jobs)
    assert await claimed_ids(db) == [joined]


async def test_parents_and_child_may_be_enqueued_in_one_statement(
    db: Connection,
) -> None:
    joined = await db.fetchval("""
        select pgwake.enqueue('done', depends_on => array(
          select pgwake.enqueue('part') from generate_series(1, 3)))
    """)
    jobs = await claim(db, 100)
    assert len(jobs) == 3
    await complete(db, *jobs)
    assert await claimed_ids(db) == [joined]


@pytest.mark.parametrize("parent", [ABSENT, 0, None])
async def test_a_parent_that_does_not_exist_is_refused(
    db: Connection, parent: int | None
) -> None:
    known = await insert(db)
    with refused("PW003") as caught:
        await insert(db, depends_on=[known, parent])
    assert "does not exist" in str(caught.value)
    assert await left(db) == 0


async def test_there_are_no_cycles(db: Connection) -> None:
    own = await db.fetchval("select nextval('pgwake.jobs_id_seq') + 1")
    with refused("PW003") as caught:
        await db.execute(
            "insert into pgwake.jobs (kind, depends_on)"
            " values ('k', array[$1::bigint])",
            own,
        )
    assert "is not older" in str(caught.value)
    own += 1
    with refused("PW003"):
        await db.execute(
            "insert into pgwake.jobs (kind, depends_on) values"
            f" ('k', array[{own + 1}]), ('k', array[{own}])"
        )

    first = await call(db, "enqueue", **REPLACE)
    second = await child(db, first)
    with refused("PW003") as caught:
        await call(db, "enqueue", **REPLACE, depends_on=[second])
    assert f"job {first} depends on job {second}, which is not older" in str(
        caught.value
    )
    assert await claimed_ids(db) == [first]


async def test_one_bad_child_in_a_batch_is_named(db: Connection) -> None:
    parent = await insert(db)
    with refused("PW003") as caught:
        await db.execute(
            "insert into pgwake.jobs (kind, depends_on)"
            " select 'k', array[$1, case n when 7 then -1 else $1 end]"
            " from generate_series(1, 10) as n",
            parent,
        )
    assert "depends on job -1" in str(caught.value)


async def test_a_replaced_child_waits_for_its_new_parents_only(db: Connection) -> None:
    old, new = await insert(db), await insert(db)
    job_id = await call(db, "enqueue", **REPLACE, depends_on=[old])
    first, second = await claim(db, 100)
    again = await call(db, "enqueue", **REPLACE, depends_on=[new])
    assert again == job_id
    await fail(db, first)
    assert await claimed_ids(db) == []
    await complete(db, second)
    assert await claimed_ids(db) == [job_id]
    assert await left(db) == 0


async def test_a_replaced_child_waits_for_its_old_parents_no_more(
    db: Connection,
) -> None:
    old, new = await insert(db), await insert(db)
    job_id = await call(db, "enqueue", **REPLACE, depends_on=[old])
    first, second = await claim(db, 100)
    await call(db, "enqueue", **REPLACE, depends_on=[new])
    await complete(db, second)
    assert await claimed_ids(db) == [job_id]
    await complete(db, first)
    assert await left(db) == 0


async def test_one_that_is_replaced_without_parents_waits_for_none(
    db: Connection,
) -> None:
    parent = await insert(db)
    job_id = await call(db, "enqueue", **REPLACE, depends_on=[parent])
    (held,) = await claim(db)
    assert await call(db, "enqueue", **REPLACE) == job_id
    assert await claimed_ids(db) == [job_id]
    await fail(db, held)
    assert await claimed_ids(db) == []
    assert await left(db) == 0


async def test_a_pending_job_can_be_replaced_by_one_that_has_parents(
    db: Connection,
) -> None:
    parent = await insert(db)
    job_id = await call(db, "enqueue", **REPLACE)
    await call(db, "enqueue", **REPLACE, depends_on=[parent])
    (held,) = await claim(db, 100)
    await complete(db, held)
    assert await claimed_ids(db) == [job_id]
    (stats,) = await rows(db, "get_queue_stats")
    assert (stats["waiting_count"], stats["running_count"]) == (0, 1)


async def test_a_retried_child_waits_for_those_parents_that_are_live(
    db: Connection,
) -> None:
    gone, live = await insert(db), await insert(db)
    joined = await child(db, gone, live)
    first, second = await claim(db, 100)
    await fail(db, first)
    assert await claimed_ids(db) == []
    assert await status(db, joined) == "cancelled"

    await call(db, "retry_job", job_id=joined)
    assert await claimed_ids(db) == []
    assert await status(db, joined) == "waiting"
    await fail(db, second)
    assert await claimed_ids(db) == [joined]
    assert await left(db) == 0


async def test_a_retried_child_whose_parents_have_ended_is_claimed_next(
    db: Connection,
) -> None:
    parent = await job_in(db, "failed")
    joined = await child(db, parent, on_parent_failure="run")
    (held,) = await claim(db)
    await fail(db, held)
    await call(db, "retry_job", job_id=joined)
    assert await claimed_ids(db) == [joined]


async def test_a_retried_parent_frees_the_children_that_it_gets_then(
    db: Connection,
) -> None:
    parent = await insert(db)
    await child(db, parent)
    (held,) = await claim(db, 100)
    await fail(db, held)
    assert await claimed_ids(db) == []
    await call(db, "retry_job", job_id=parent)
    assert (await job(db, parent))["has_children"] is None
    joined = await child(db, parent)
    (held,) = await claim(db, 100)
    await complete(db, held)
    assert await claimed_ids(db) == [joined]


async def test_dead_letters_retried_together_keep_their_order(db: Connection) -> None:
    parent = await insert(db)
    joined = await child(
        db, parent, on_parent_failure="run", webhook="http://example.org/"
    )
    for _ in range(2):
        (held,) = await claim(db, 100)
        await fail(db, held)
    retried = await rows(db, "retry_failed", kind="noop")
    assert {row["outcome"] for row in retried} == {"retried"}
    (held,) = await claim(db, 100)
    assert held["id"] == parent
    await complete(db, held)
    assert await claimed_ids(db) == [joined]
    assert (await job(db, joined))["webhook"] == "http://example.org/"


@pytest.mark.parametrize("policy", ["cancel", "run"])
@pytest.mark.parametrize("is_seen", [False, True])
async def test_a_parent_that_is_deleted_by_hand_counts_as_failed(
    db: Connection, policy: str, is_seen: bool
) -> None:
    parent = await insert(db, run_at=await at(db, "1 hour"))
    joined = await child(db, parent, on_parent_failure=policy)
    if is_seen:
        assert await claimed_ids(db) == []
    await db.execute("delete from pgwake.jobs where id = $1", parent)
    assert await claimed_ids(db) == ([joined] if policy == "run" else [])
    if policy == "cancel":
        assert await status(db, joined) == "cancelled"
    assert await left(db) == 0


async def test_a_parent_that_is_completed_by_hand_counts_as_completed(
    db: Connection,
) -> None:
    parent = await insert(db, run_at=await at(db, "1 hour"))
    joined = await child(db, parent)
    assert await claimed_ids(db) == []
    await db.execute(
        "update pgwake.jobs set status = 'completed', finished_at = now(),"
        " finished_slot = pgwake.finished_slot(now()) where id = $1",
        parent,
    )
    assert await claimed_ids(db) == [joined]


async def test_a_child_that_is_deleted_or_cancelled_leaves_nothing(
    db: Connection,
) -> None:
    parent = await insert(db)
    first, second = await child(db, parent), await child(db, parent)
    (held,) = await claim(db, 100)
    third = await child(db, parent)
    await db.execute("delete from pgwake.jobs where id = $1", first)
    for one in (second, third):
        await call(db, "cancel_job", job_id=one)
    await complete(db, held)
    assert await claimed_ids(db) == []
    assert await left(db) == 0


async def test_when_live_jobs_are_truncated_nothing_is_left(db: Connection) -> None:
    parent = await insert(db)
    await child(db, parent)
    await claim(db)
    await child(db, parent)
    assert await left(db) == 2
    await db.execute("truncate pgwake.jobs_live")
    assert await left(db) == 0


async def test_a_parent_purged_before_it_was_seen_counts_as_failed(
    db: Connection,
) -> None:
    parent = await job_in(db, "failed")
    joined = await child(db, parent)
    await call(db, "purge", kind="noop")
    assert await claimed_ids(db) == []
    assert await status(db, joined) == "cancelled"


async def test_results_of_parents_come_in_the_order_that_was_asked_for(
    db: Connection,
) -> None:
    parents = [await insert(db, kind=kind) for kind in "abcd"]
    joined = await child(db, *reversed(parents), on_parent_failure="run")
    a, b, c, d = await claim(db, 100)
    await call(db, "complete_job", **pair(a), result={"n": 1})
    await call(db, "complete_job", **pair(b))
    await fail(db, c)
    await db.execute("delete from pgwake.jobs where id = $1", d["id"])
    (held,) = await claim(db)

    results = await rows(db, "get_parent_results", job_id=held["id"])
    assert [tuple(row.values()) for row in results] == [
        (parents[3], None, None, None),
        (parents[2], "c", "failed", None),
        (parents[1], "b", "completed", None),
        (parents[0], "a", "completed", {"n": 1}),
    ]
    await complete(db, held)
    assert await rows(db, "get_parent_results", job_id=joined) == results


async def test_results_of_no_parents_are_none(db: Connection) -> None:
    job_id = await insert(db)
    assert await rows(db, "get_parent_results", job_id=job_id) == []
    with refused("PW001"):
        await rows(db, "get_parent_results", job_id=ABSENT)


async def test_upkeep_admits_children_where_nobody_claims(
    connect: Connect, db: Connection
) -> None:
    await set_queue(db, "b", paused_until=None)
    parent = await insert(db, queue="a")
    runs = await child(db, parent, queue="b")
    (held,) = await claim(db, queue="a")
    failing = await insert(db, queue="a")
    first = await child(db, failing, queue="c")
    second = await child(db, first, queue="c")
    await call(db, "cancel_job", job_id=failing)
    await complete(db, held)
    assert await call(db, "maintain", step="children") == {"children": 0}

    await set_clock(db, "2 seconds")
    listener = await Listener.with_notify_locks(await connect(), "b")
    assert (await call(db, "maintain", step="children"))["children"] > 0
    assert await listener.heard() == ["b"]
    assert await status(db, runs) == "pending"
    assert await status(db, first) == "cancelled"
    assert await status(db, second) == "cancelled"
    assert await call(db, "maintain", step="children") == {"children": 0}
    assert await left(db) == 0


async def test_who_ends_a_parent_wakes_the_childs_queue(
    connect: Connect, db: Connection
) -> None:
    parent = await insert(db, queue="a")
    await child(db, parent, queue="b")
    await claim(db, queue="b")
    (held,) = await claim(db, queue="a")
    listener = await Listener.with_notify_locks(await connect(), "b")
    await complete(db, held)
    assert await listener.heard() == ["b"]


async def test_what_children_do_is_announced(db: Connection) -> None:
    await set_queue(db, status_events="always")
    parent = await insert(db)
    joined = await child(db, parent)
    (held,) = await claim(db, 100)
    listener = await Listener.start(db, "job_status_changed")
    await complete(db, held)
    await claim(db)
    assert [
        (e["id"], e["old_status"], e["new_status"])
        for e in await listener.events()
        if e["id"] == joined
    ] == [(joined, "waiting", "pending"), (joined, "pending", "running")]


async def test_counts_follow_children_wherever_they_go(db: Connection) -> None:
    parents = [await insert(db, queue="a") for _ in range(2)]
    for parent in parents:
        await child(db, parent, queue="b")
        await child(db, parent, queue="b", concurrency_key="k")
    first, second = await claim(db, 2, queue="a")
    await complete(db, first)
    await fail(db, second)
    await set_clock(db, "2 seconds")
    await call(db, "maintain", step="children")
    (stats,) = await rows(db, "get_queue_stats", queue="b")
    assert [stats[f"{name}_count"] for name in ("waiting", "pending", "cancelled")] == [
        1,
        1,
        2,
    ]
    assert await call(db, "recount_jobs") == 0


async def lost(db: Connection) -> list[str]:
    """What diagnose_children() finds."""
    return [row["check_name"] for row in await rows(db, "diagnose_children")]


async def test_children_without_their_rechecks_are_found(db: Connection) -> None:
    """As after a replication of jobs and dependencies alone, or of jobs alone."""
    parents = [await running(db, kind=kind) for kind in ("a", "b")]
    children = [await child(db, parent["id"]) for parent in parents]
    both = await child(db, *(parent["id"] for parent in parents))
    keyed = await child(db, parents[0]["id"], concurrency_key="k", queue="keyed")
    assert await claimed_ids(db) == []
    assert await lost(db) == []
    await db.execute("delete from pgwake.rechecks")
    await complete(db, parents[0])
    await db.execute("delete from pgwake.rechecks; delete from pgwake.dependencies")
    assert await lost(db) == ["children_wait", "children_wait"]

    await call(db, "maintain", step="children")
    assert await lost(db) == []
    assert await claimed_ids(db) == [children[0]]
    assert await claimed_ids(db, queue="keyed") == [keyed]
    await complete(db, parents[1])
    assert await claimed_ids(db) == [children[1], both]


async def test_jobs_that_were_pending_are_found_after_a_restore_of_data_alone(
    db: Connection,
) -> None:
    parent = await running(db)
    waited = await child(db, parent["id"])
    keyed = await insert(db, concurrency_key="k")
    await complete(db, parent)
    await db.execute("select pgwake.next_run_at('default')")
    assert set(await claimed_ids(db)) == {waited, keyed}
    await db.execute(
        "update pgwake.jobs_live set status = 'pending', lease_id = null,"
        " lease_expires_at = null, claimed_by = null, started_at = null;"
        " create temp table kept as table pgwake.jobs_live;"
        " delete from pgwake.jobs_live;"
        " insert into pgwake.jobs_live table kept; drop table kept"
    )
    assert await status(db, waited) == await status(db, keyed) == "waiting"
    assert await claimed_ids(db) == []
    for step in ("children", "keys"):
        await call(db, "maintain", step=step)
    assert set(await claimed_ids(db)) == {waited, keyed}


async def test_the_search_for_lost_children_is_bounded_and_goes_on(
    db: Connection,
) -> None:
    parent = await running(db)
    children = [await child(db, parent["id"]) for _ in range(5)]
    await complete(db, parent)
    await db.execute("delete from pgwake.rechecks; delete from pgwake.dependencies")
    flagged = "select coalesce(array_agg(child_id order by child_id), '{}')"
    for done in (2, 4, 5, 5):
        await call(db, "flag_lost_children", max_children=2)
        told = await db.fetchval(f"{flagged} from pgwake.rechecks")
        assert told == children[:done]
