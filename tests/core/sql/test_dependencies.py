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
    claim,
    claim_batch,
    insert,
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


async def ids(connection: Connection, count: int = 100, **arguments: Any) -> list[int]:
    """Claim; the ids."""
    return [job["id"] for job in await claim(connection, count, **arguments)]


async def complete(connection: Connection, *jobs: Row) -> None:
    outcomes = await call(connection, "complete_jobs", **pairs(*jobs))
    assert set(outcomes) == {"completed"}


async def fail(connection: Connection, held: Row) -> None:
    await call(connection, "fail_job", **pair(held), retryable=False)


async def child(connection: Connection, *parents: int, **columns: Any) -> int:
    return await insert(connection, depends_on=list(parents), **columns)


async def left(connection: Connection) -> int:
    """Rows of what children wait for: looks at them too."""
    count: int = await connection.fetchval(
        "select (select count(*) from pgwake.dependencies)"
        " + (select count(*) from pgwake.looks where child_id is not null)"
    )
    return count


async def test_a_chain_runs_one_after_the_other(connection: Connection) -> None:
    first = await insert(connection)
    second = await child(connection, first)
    third = await child(connection, second)
    assert await status(connection, third) == "waiting"

    ran = []
    while jobs := await claim(connection, 100):
        ran.append([job["id"] for job in jobs])
        await complete(connection, *jobs)
    assert ran == [[first], [second], [third]]
    assert await left(connection) == 0


async def test_a_fan_out_runs_when_its_parent_has_completed(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    children = [await child(connection, parent) for _ in range(5)]
    (held,) = await claim(connection, 100)
    assert await ids(connection) == []

    await complete(connection, held)
    assert sorted(await ids(connection)) == children


async def test_a_fan_in_runs_when_the_last_parent_has_completed(
    connection: Connection,
) -> None:
    parents = [await insert(connection) for _ in range(5)]
    joined = await child(connection, *parents, *parents)
    jobs = await claim(connection, 100)
    for held in jobs:
        assert await ids(connection) == []
        await complete(connection, held)
    assert await ids(connection) == [joined]
    assert await left(connection) == 0


async def test_a_child_of_completed_parents_runs_at_once(
    connection: Connection,
) -> None:
    parent = await job_in(connection, "completed")
    joined = await child(connection, parent)
    assert await ids(connection) == [joined]
    assert await left(connection) == 0


async def test_a_child_waits_across_queues(connection: Connection) -> None:
    parent = await insert(connection, queue="a")
    joined = await child(connection, parent, queue="b")
    assert await ids(connection, queue="b") == []
    (held,) = await claim(connection, queue="a")
    await complete(connection, held)
    assert await ids(connection, queue="b") == [joined]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
@pytest.mark.parametrize("when", ["before", "unseen", "seen"])
async def test_a_parent_that_does_not_complete_cancels_its_child_and_that_its_own(
    connection: Connection, end: str, when: str
) -> None:
    held: Row = {}
    if when == "before":
        parent = await job_in(connection, end)
    else:
        parent = await insert(connection)
        (held,) = await claim(connection)
    joined = await child(connection, parent)
    grandchild = await child(connection, joined)
    if when == "seen":
        assert await ids(connection) == []
    if when != "before":
        if end == "cancelled":
            await call(connection, "cancel_job", job_id=parent)
        await fail(connection, held)
        assert await status(connection, parent) == end

    assert await ids(connection) == []
    for one, by in ((joined, parent), (grandchild, joined)):
        row = await job(connection, one)
        assert row["status"] == "cancelled"
        (error,) = row["errors"]
        assert error["reason"] == "parent_failed"
        assert error["message"] == f"parent {by} did not complete"
    assert await left(connection) == 0


async def test_a_child_may_run_whatever_became_of_its_parents(
    connection: Connection,
) -> None:
    parents = [await insert(connection) for _ in range(3)]
    joined = await child(connection, *parents, on_parent_failure="run")
    completed, failed, cancelled = await claim(connection, 100)
    await complete(connection, completed)
    await fail(connection, failed)
    assert await ids(connection) == []
    await call(connection, "cancel_job", job_id=cancelled["id"])
    await fail(connection, cancelled)
    assert await ids(connection) == [joined]


async def _crash(connection: Connection, held: Row) -> None:
    await connection.execute(
        "update pgwake.jobs_live set crash_count = 4 where id = $1", held["id"]
    )
    assert await call(connection, "release_worker_jobs", worker="w1") is not None


async def _cancel_and_release(connection: Connection, held: Row) -> None:
    await call(connection, "cancel_job", job_id=held["id"])
    await call(connection, "release_jobs", **pairs(held))


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
    connection: Connection, way: str
) -> None:
    held = await running(connection, kind="parent")
    joined = await child(connection, held["id"], on_parent_failure="run")
    assert await ids(connection) == []
    await WAYS_TO_END[way](connection, held)
    assert await ids(connection) == [joined]
    assert await left(connection) == 0


@pytest.mark.parametrize("way", WAYS_TO_CANCEL)
async def test_whoever_cancels_a_parent_frees_its_children(
    connection: Connection, way: str
) -> None:
    later = await at(connection, "1 hour")
    parent = await insert(connection, kind="parent", run_at=later)
    joined = await child(connection, parent, on_parent_failure="run")
    assert await ids(connection) == []
    await WAYS_TO_CANCEL[way](connection, parent)
    assert await ids(connection) == [joined]
    assert await left(connection) == 0


async def test_the_first_parent_that_fails_cancels_a_child_at_once(
    connection: Connection,
) -> None:
    parents = [await insert(connection) for _ in range(2)]
    joined = await child(connection, *parents)
    first, second = await claim(connection, 100)
    await fail(connection, first)
    assert await ids(connection) == []
    assert await status(connection, joined) == "cancelled"
    await complete(connection, second)
    assert await left(connection) == 0


async def test_a_hook_that_raises_keeps_its_child_and_stands_in_nobodys_way(
    connection: Connection,
) -> None:
    parent = await job_in(connection, "failed")
    bad = await child(connection, parent, kind="bad")
    good = await child(connection, parent)
    plain = await insert(connection)
    await connection.execute("""
        create function public.refuse() returns trigger language plpgsql
        as $$ begin raise 'not this one'; end $$;
        create trigger refuse before insert on pgwake.jobs_finished for each row
        when (new.kind = 'bad') execute function public.refuse();
    """)
    assert await ids(connection) == [plain]
    assert await status(connection, bad) == "waiting"
    assert await status(connection, good) == "cancelled"
    assert await ids(connection) == []

    await connection.execute("drop trigger refuse on pgwake.jobs_finished")
    await set_clock(connection, "61 seconds")
    assert await ids(connection) == []
    assert await status(connection, bad) == "cancelled"


async def test_a_parent_to_be_retried_keeps_its_child_waiting(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    joined = await child(connection, parent)
    (held,) = await claim(connection)
    assert await call(connection, "fail_job", **pair(held)) == "retry"
    assert await ids(connection) == []
    await set_clock(connection, "1 hour")
    (held,) = await claim(connection)
    await complete(connection, held)
    assert await ids(connection) == [joined]


async def test_a_child_is_due_when_it_was_to_be_and_its_turn_begins_with_its_room(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    early = await child(connection, parent, run_at=await at(connection, "-1 hour"))
    late = await child(connection, parent, run_at=await at(connection, "1 hour"))
    (held,) = await claim(connection)
    await complete(connection, held)

    row = await claim_batch(connection, 10)
    assert row["ids"] == [early]
    assert (await job(connection, early))["run_at"] > held["created_at"]
    assert row["next_run_at"] == (await job(connection, late))["run_at"]
    assert await status(connection, late) == "pending"


async def at(connection: Connection, offset: str) -> Any:
    return await connection.fetchval("select pgwake.now() + $1::text::interval", offset)


async def test_a_child_with_a_key_waits_for_its_parents_and_then_for_its_key(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    one = await child(connection, parent, concurrency_key="k")
    two = await insert(connection, concurrency_key="k")
    (p, held) = await claim(connection, 100)
    assert (p["id"], held["id"]) == (parent, two), "one that has parents takes no room"
    await complete(connection, p)
    assert await ids(connection) == []
    assert await status(connection, one) == "waiting"
    await complete(connection, held)
    assert await ids(connection) == [one]


async def test_a_child_with_a_key_that_is_not_due_is_let_in_when_it_is(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    later = await at(connection, "1 hour")
    one = await child(connection, parent, concurrency_key="k", run_at=later)
    (held,) = await claim(connection)
    await complete(connection, held)
    row = await claim_batch(connection)
    assert (row["ids"], row["next_run_at"]) == ([], later)
    await set_clock(connection, "61 minutes")
    assert await ids(connection) == [one]


async def test_parents_and_child_may_come_in_one_statement(
    connection: Connection,
) -> None:
    joined, parents = await connection.fetchrow("""
        with parents as (
          insert into pgwake.jobs (kind, payload)
          select 'part', jsonb_build_object('part', n) from generate_series(1, 3) as n
          returning id
        )
        insert into pgwake.jobs (kind, depends_on)
        select 'done', array_agg(id) from parents
        returning id, depends_on
    """) or (0, [])
    jobs = await claim(connection, 100)
    assert [job["id"] for job in jobs] == parents
    await complete(connection, *jobs)
    assert await ids(connection) == [joined]


async def test_parents_and_child_may_be_enqueued_in_one_statement(
    connection: Connection,
) -> None:
    joined = await connection.fetchval("""
        select pgwake.enqueue('done', depends_on => array(
          select pgwake.enqueue('part') from generate_series(1, 3)))
    """)
    jobs = await claim(connection, 100)
    assert len(jobs) == 3
    await complete(connection, *jobs)
    assert await ids(connection) == [joined]


@pytest.mark.parametrize("parent", [ABSENT, 0, None])
async def test_a_parent_that_does_not_exist_is_refused(
    connection: Connection, parent: int | None
) -> None:
    known = await insert(connection)
    with refused("PW003") as caught:
        await insert(connection, depends_on=[known, parent])
    assert "does not exist" in str(caught.value)
    assert await left(connection) == 0


async def test_there_are_no_cycles(connection: Connection) -> None:
    own = await connection.fetchval("select nextval('pgwake.jobs_id_seq') + 1")
    with refused("PW003") as caught:
        await connection.execute(
            "insert into pgwake.jobs (kind, depends_on)"
            " values ('k', array[$1::bigint])",
            own,
        )
    assert "is not older" in str(caught.value)
    own += 1
    with refused("PW003"):
        await connection.execute(
            "insert into pgwake.jobs (kind, depends_on) values"
            f" ('k', array[{own + 1}]), ('k', array[{own}])"
        )

    arguments = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}
    first = await call(connection, "enqueue", **arguments)
    second = await child(connection, first)
    with refused("PW003") as caught:
        await call(connection, "enqueue", **arguments, depends_on=[second])
    assert f"job {first} depends on job {second}, which is not older" in str(
        caught.value
    )
    assert await ids(connection) == [first]


async def test_one_bad_child_in_a_batch_is_named(connection: Connection) -> None:
    parent = await insert(connection)
    with refused("PW003") as caught:
        await connection.execute(
            "insert into pgwake.jobs (kind, depends_on)"
            " select 'k', array[$1, case n when 7 then -1 else $1 end]"
            " from generate_series(1, 10) as n",
            parent,
        )
    assert "depends on job -1" in str(caught.value)


async def test_a_replaced_child_waits_for_its_new_parents_only(
    connection: Connection,
) -> None:
    old, new = await insert(connection), await insert(connection)
    arguments = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}
    job_id = await call(connection, "enqueue", **arguments, depends_on=[old])
    first, second = await claim(connection, 100)
    again = await call(connection, "enqueue", **arguments, depends_on=[new])
    assert again == job_id
    await fail(connection, first)
    assert await ids(connection) == []
    await complete(connection, second)
    assert await ids(connection) == [job_id]
    assert await left(connection) == 0


async def test_a_replaced_child_waits_for_its_old_parents_no_more(
    connection: Connection,
) -> None:
    old, new = await insert(connection), await insert(connection)
    arguments = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}
    job_id = await call(connection, "enqueue", **arguments, depends_on=[old])
    first, second = await claim(connection, 100)
    await call(connection, "enqueue", **arguments, depends_on=[new])
    await complete(connection, second)
    assert await ids(connection) == [job_id]
    await complete(connection, first)
    assert await left(connection) == 0


async def test_one_that_is_replaced_without_parents_waits_for_none(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    arguments = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}
    job_id = await call(connection, "enqueue", **arguments, depends_on=[parent])
    (held,) = await claim(connection)
    assert await call(connection, "enqueue", **arguments) == job_id
    assert await ids(connection) == [job_id]
    await fail(connection, held)
    assert await ids(connection) == []
    assert await left(connection) == 0


async def test_a_pending_job_can_be_replaced_by_one_that_has_parents(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    arguments = {"kind": "k", "unique_key": "u", "on_conflict": "replace"}
    job_id = await call(connection, "enqueue", **arguments)
    await call(connection, "enqueue", **arguments, depends_on=[parent])
    (held,) = await claim(connection, 100)
    await complete(connection, held)
    assert await ids(connection) == [job_id]
    (stats,) = await rows(connection, "get_queue_stats")
    assert (stats["waiting_count"], stats["running_count"]) == (0, 1)


async def test_a_retried_child_waits_for_those_parents_that_are_live(
    connection: Connection,
) -> None:
    gone, live = await insert(connection), await insert(connection)
    joined = await child(connection, gone, live)
    first, second = await claim(connection, 100)
    await fail(connection, first)
    assert await ids(connection) == []
    assert await status(connection, joined) == "cancelled"

    await call(connection, "retry_job", job_id=joined)
    assert await ids(connection) == []
    assert await status(connection, joined) == "waiting"
    await fail(connection, second)
    assert await ids(connection) == [joined]
    assert await left(connection) == 0


async def test_a_retried_child_whose_parents_have_ended_is_claimed_next(
    connection: Connection,
) -> None:
    parent = await job_in(connection, "failed")
    joined = await child(connection, parent, on_parent_failure="run")
    (held,) = await claim(connection)
    await fail(connection, held)
    await call(connection, "retry_job", job_id=joined)
    assert await ids(connection) == [joined]


async def test_a_retried_parent_frees_the_children_that_it_gets_then(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    await child(connection, parent)
    (held,) = await claim(connection, 100)
    await fail(connection, held)
    assert await ids(connection) == []
    await call(connection, "retry_job", job_id=parent)
    assert (await job(connection, parent))["has_children"] is None
    joined = await child(connection, parent)
    (held,) = await claim(connection, 100)
    await complete(connection, held)
    assert await ids(connection) == [joined]


async def test_dead_letters_retried_together_keep_their_order(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    joined = await child(
        connection, parent, on_parent_failure="run", webhook="http://example.org/"
    )
    for _ in range(2):
        (held,) = await claim(connection, 100)
        await fail(connection, held)
    retried = await rows(connection, "retry_failed", kind="noop")
    assert {row["outcome"] for row in retried} == {"retried"}
    (held,) = await claim(connection, 100)
    assert held["id"] == parent
    await complete(connection, held)
    assert await ids(connection) == [joined]
    assert (await job(connection, joined))["webhook"] == "http://example.org/"


@pytest.mark.parametrize("policy", ["cancel", "run"])
@pytest.mark.parametrize("is_seen", [False, True])
async def test_a_parent_that_is_deleted_by_hand_counts_as_failed(
    connection: Connection, policy: str, is_seen: bool
) -> None:
    parent = await insert(connection, run_at=await at(connection, "1 hour"))
    joined = await child(connection, parent, on_parent_failure=policy)
    if is_seen:
        assert await ids(connection) == []
    await connection.execute("delete from pgwake.jobs where id = $1", parent)
    assert await ids(connection) == ([joined] if policy == "run" else [])
    if policy == "cancel":
        assert await status(connection, joined) == "cancelled"
    assert await left(connection) == 0


async def test_a_parent_that_is_completed_by_hand_counts_as_completed(
    connection: Connection,
) -> None:
    parent = await insert(connection, run_at=await at(connection, "1 hour"))
    joined = await child(connection, parent)
    assert await ids(connection) == []
    await connection.execute(
        "update pgwake.jobs set status = 'completed', finished_at = now(),"
        " finished_slot = pgwake.finished_slot(now()) where id = $1",
        parent,
    )
    assert await ids(connection) == [joined]


async def test_a_child_that_is_deleted_or_cancelled_leaves_nothing(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    first, second = await child(connection, parent), await child(connection, parent)
    (held,) = await claim(connection, 100)
    third = await child(connection, parent)
    await connection.execute("delete from pgwake.jobs where id = $1", first)
    for one in (second, third):
        await call(connection, "cancel_job", job_id=one)
    await complete(connection, held)
    assert await ids(connection) == []
    assert await left(connection) == 0


async def test_when_live_jobs_are_truncated_nothing_is_left(
    connection: Connection,
) -> None:
    parent = await insert(connection)
    await child(connection, parent)
    await claim(connection)
    await child(connection, parent)
    assert await left(connection) == 2
    await connection.execute("truncate pgwake.jobs_live")
    assert await left(connection) == 0


async def test_a_parent_purged_before_it_was_seen_counts_as_failed(
    connection: Connection,
) -> None:
    parent = await job_in(connection, "failed")
    joined = await child(connection, parent)
    await call(connection, "purge", kind="noop")
    assert await ids(connection) == []
    assert await status(connection, joined) == "cancelled"


async def test_results_of_parents_come_in_the_order_that_was_asked_for(
    connection: Connection,
) -> None:
    parents = [await insert(connection, kind=kind) for kind in "abcd"]
    joined = await child(connection, *reversed(parents), on_parent_failure="run")
    a, b, c, d = await claim(connection, 100)
    await call(connection, "complete_job", **pair(a), result={"n": 1})
    await call(connection, "complete_job", **pair(b))
    await fail(connection, c)
    await connection.execute("delete from pgwake.jobs where id = $1", d["id"])
    (held,) = await claim(connection)

    results = await rows(connection, "get_parent_results", job_id=held["id"])
    assert [tuple(row.values()) for row in results] == [
        (parents[3], None, None, None),
        (parents[2], "c", "failed", None),
        (parents[1], "b", "completed", None),
        (parents[0], "a", "completed", {"n": 1}),
    ]
    await complete(connection, held)
    assert await rows(connection, "get_parent_results", job_id=joined) == results


async def test_results_of_no_parents_are_none(connection: Connection) -> None:
    job_id = await insert(connection)
    assert await rows(connection, "get_parent_results", job_id=job_id) == []
    with refused("PW001"):
        await rows(connection, "get_parent_results", job_id=ABSENT)


async def test_upkeep_lets_children_in_where_nobody_claims(
    connect: Connect, connection: Connection
) -> None:
    await set_queue(connection, "b", paused_until=None)
    parent = await insert(connection, queue="a")
    runs = await child(connection, parent, queue="b")
    (held,) = await claim(connection, queue="a")
    failing = await insert(connection, queue="a")
    first = await child(connection, failing, queue="c")
    second = await child(connection, first, queue="c")
    await call(connection, "cancel_job", job_id=failing)
    await complete(connection, held)
    assert await call(connection, "maintain", step="children") == {"children": 0}

    await set_clock(connection, "2 seconds")
    listener = await Listener.with_bells(await connect(), "b")
    assert (await call(connection, "maintain", step="children"))["children"] > 0
    assert await listener.heard() == ["b"]
    assert await status(connection, runs) == "pending"
    assert await status(connection, first) == "cancelled"
    assert await status(connection, second) == "cancelled"
    assert await call(connection, "maintain", step="children") == {"children": 0}
    assert await left(connection) == 0


async def test_who_ends_a_parent_wakes_the_childs_queue(
    connect: Connect, connection: Connection
) -> None:
    parent = await insert(connection, queue="a")
    await child(connection, parent, queue="b")
    await claim(connection, queue="b")
    (held,) = await claim(connection, queue="a")
    listener = await Listener.with_bells(await connect(), "b")
    await complete(connection, held)
    assert await listener.heard() == ["b"]


async def test_what_children_do_is_announced(connection: Connection) -> None:
    await set_queue(connection, status_events="always")
    parent = await insert(connection)
    joined = await child(connection, parent)
    (held,) = await claim(connection, 100)
    await complete(connection, held)
    listener = await Listener.start(connection, "job_status_changed")
    await claim(connection)
    assert [
        (e["id"], e["old_status"], e["new_status"]) for e in await listener.events()
    ] == [
        (joined, "waiting", "pending"),
        (joined, "pending", "running"),
    ]


async def test_counts_follow_children_wherever_they_go(
    connection: Connection,
) -> None:
    parents = [await insert(connection, queue="a") for _ in range(2)]
    for parent in parents:
        await child(connection, parent, queue="b")
        await child(connection, parent, queue="b", concurrency_key="k")
    first, second = await claim(connection, 2, queue="a")
    await complete(connection, first)
    await fail(connection, second)
    await set_clock(connection, "2 seconds")
    await call(connection, "maintain", step="children")
    (stats,) = await rows(connection, "get_queue_stats", queue="b")
    assert [stats[f"{name}_count"] for name in ("waiting", "pending", "cancelled")] == [
        1,
        1,
        2,
    ]
    assert await call(connection, "recount_jobs") == 0
