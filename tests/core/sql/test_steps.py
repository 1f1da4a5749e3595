"""What jobs record while they run, how they sleep, and how they wait for events."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    ABSENT,
    Row,
    blocking,
    call,
    child,
    claim,
    claim_batch,
    complete,
    insert,
    insert_many,
    job,
    pair,
    pairs,
    refused,
    row_count,
    rows,
    running,
    set_clock,
    set_queue,
    status,
    sweep,
)

SECOND = timedelta(seconds=1)


async def record(db: Connection, held: Row, name: str, result: Any = None) -> Any:
    return await call(db, "record_step", **pair(held), name=name, result=result)


async def ask(db: Connection, held: Row, event: str, **arguments: Any) -> Any:
    (row,) = await rows(db, "await_event", **pair(held), event=event, **arguments)
    return row["outcome"], row["result"]


async def ask_job(db: Connection, held: Row, other: int, **arguments: Any) -> Any:
    (row,) = await rows(db, "await_job", **pair(held), other_id=other, **arguments)
    return row["outcome"], row["result"]


async def sleep(db: Connection, held: Row, name: str, until: datetime) -> str:
    outcome: str = await call(db, "sleep_job", **pair(held), name=name, until=until)
    return outcome


async def emit(db: Connection, name: str, payload: Any = None) -> bool:
    is_first: bool = await call(db, "emit_event", name=name, payload=payload)
    return is_first


async def names(db: Connection, job_id: int) -> list[str]:
    return [step["name"] for step in await rows(db, "get_steps", job_id=job_id)]


async def left_over(db: Connection) -> int:
    """Rows of steps and waits, and of rechecks of single jobs."""
    count: int = await db.fetchval(
        "select (select count(*) from pgwake.steps) + (select count(*) from"
        " pgwake.waits) + (select count(*) from pgwake.rechecks where child_id is not"
        " null)"
    )
    return count


async def test_a_step_is_recorded_once_and_comes_with_the_next_claim(
    db: Connection,
) -> None:
    held = await running(db)
    assert held["options"] is None
    assert await record(db, held, "a", {"x": None}) == {"x": None}
    assert await record(db, held, "a", 2) == {"x": None}
    assert await record(db, held, "b") is None
    await call(db, "release_jobs", **pairs(held))

    (held,) = await claim(db)
    for step in held["options"]["steps"]:
        assert (step.pop("attempt"), step.pop("at")[:2]) == (1, "20")
    assert held["options"]["steps"] == [
        {"place": 1, "name": "a", "kind": "step", "result": {"x": None}},
        {"place": 2, "name": "b", "kind": "step"},
    ]
    await record(db, held, "large", "x" * 70_000)
    await call(db, "release_jobs", **pairs(held))
    (held,) = await claim(db)
    assert held["options"]["steps"] is True
    assert await names(db, held["id"]) == ["a", "b", "large"]


async def test_a_batch_is_recorded_each_with_its_outcome(db: Connection) -> None:
    await insert_many(db, 4)
    a, b, lost, cancelled = await claim(db, 4)
    await call(db, "release_jobs", **pairs(lost))
    await call(db, "cancel_job", job_id=cancelled["id"])
    absent = {"id": ABSENT, "lease_id": a["lease_id"]}
    batch = [b, a, absent, lost, a, cancelled, a]
    ids = {
        "job_ids": [held["id"] for held in batch],
        "lease_ids": [held["lease_id"] for held in batch],
        "names": ["x", "y", "x", "x", "z", "x", "y"],
        "results": [1, 2, 3, 4, None, 6, 7],
    }

    outcomes = await call(db, "record_steps", **ids)
    assert outcomes == [
        "recorded",
        "recorded",
        "no_such_job",
        "lease_lost",
        "recorded",
        "cancel_requested",
        "recorded",
    ]
    assert await call(db, "record_steps", **ids) == outcomes
    steps = await rows(db, "get_steps", job_id=a["id"])
    assert [(step["place"], step["name"], step["result"]) for step in steps] == [
        (1, "y", 2),
        (2, "z", None),
    ]
    assert await names(db, lost["id"]) == []


async def test_what_cannot_be_recorded_is_refused(db: Connection) -> None:
    held = await running(db)
    now = await db.fetchval("select pgwake.now()")
    await record(db, held, "x" * 512)
    with refused("23514", "jobs_result_is_at_most_1_mib"):
        await record(db, held, "too large", "x" * 1048576)
    for column, most, check in (
        ("total_bytes", 16777216, "steps_results_are_at_most_16_mib_a_job"),
        ("place", 1000, "steps_are_at_most_1000_a_job"),
    ):
        await db.execute(f"update pgwake.steps set {column} = {most}")
        with refused("23514", check):
            await record(db, held, "y", 1)
        await db.execute(f"update pgwake.steps set {column} = 1")
    for name in None, "", "x" * 513:
        for named in (
            record(db, held, name),  # type: ignore[arg-type]
            ask(db, held, name),  # type: ignore[arg-type]
            ask(db, held, "e", name=name or ""),
            sleep(db, held, name, now),  # type: ignore[arg-type]
            emit(db, name),  # type: ignore[arg-type]
        ):
            with refused("PW003") as caught:
                await named
            assert str(caught.value).startswith("the name of a step or event ")
    for unknown in {**held, "id": None}, {**held, "lease_id": None}:
        for fenced in (
            record(db, unknown, "y"),
            ask(db, unknown, "y"),
            sleep(db, unknown, "y", now),
        ):
            with refused("PW003") as caught:
                await fenced
            assert str(caught.value).startswith("a job id or lease id is null")
    with refused("PW001"):
        await record(db, {**held, "id": ABSENT}, "y")
    with refused("PW001"):
        await rows(db, "get_steps", job_id=ABSENT)
    for statement in (
        ask(db, held, "x" * 512),  # the name of a step
        ask_job(db, held, None),  # type: ignore[arg-type]
        sleep(db, held, "s", None),  # type: ignore[arg-type]
        sleep(db, held, "s", datetime.max),  # noqa: DTZ901, infinity
    ):
        with refused("PW003"):
            await statement
    assert len(await names(db, held["id"])) == 1


async def test_nothing_is_recorded_under_a_lost_lease(db: Connection) -> None:
    held = await running(db)
    assert await sweep(db, "1 hour") == 1
    for statement in (
        record(db, held, "a"),
        ask(db, held, "e"),
        ask_job(db, held, ABSENT),
        sleep(db, held, "s", await db.fetchval("select now()")),
    ):
        with refused("PW002"):
            await statement
    assert await left_over(db) == 0


async def test_an_ended_job_has_its_steps_in_its_row_and_a_retry_brings_them_back(
    db: Connection,
) -> None:
    held = await running(db)
    for name in "abc":
        await record(db, held, name, name)
    await ask(db, held, "e", timeout=SECOND, may_wait=False)
    await call(db, "fail_job", **pair(held), retryable=False)
    assert (await left_over(db), await names(db, held["id"])) == (0, ["a", "b", "c"])

    await call(db, "retry_job", job_id=held["id"])
    assert await names(db, held["id"]) == ["a", "b", "c"]
    (held,) = await claim(db)
    assert [step["result"] for step in held["options"]["steps"]] == ["a", "b", "c"]
    for kept in ["a", "b", "c"], ["a", "b"], []:
        await call(db, "fail_job", **pair(held), retryable=False)
        with refused("PW003"):
            await call(db, "retry_from_step", job_id=held["id"], keep_steps=-1)
        count = None if len(kept) == 3 else len(kept)
        await call(db, "retry_from_step", job_id=held["id"], keep_steps=count)
        assert await names(db, held["id"]) == kept
        (held,) = await claim(db)
    await record(db, held, "d")
    await call(db, "fail_job", **pair(held), retryable=False)
    assert await row_count(db, "retry_failed") == 1
    assert await names(db, held["id"]) == ["d"]
    (held,) = await claim(db)
    assert await record(db, held, "e", None) is None
    await complete(db, held)
    assert (await left_over(db), await names(db, held["id"])) == (0, ["d", "e"])
    assert await call(db, "purge", status="completed", queue="default") == 1
    assert await left_over(db) == 0


async def test_a_job_whose_id_came_before_has_no_steps_of_that_one(
    db: Connection,
) -> None:
    held = await running(db)
    await db.execute(
        "insert into pgwake.steps"
        " values ($1, 1, 'old', 'step', '1', null, 1, 1, now())",
        held["id"],
    )
    await db.execute(
        "insert into pgwake.waits values ($1, 'e', 'e', null, now(), now())", held["id"]
    )
    assert await names(db, held["id"]) == []
    assert (await ask(db, held, "e"))[0] == "waits"
    assert await names(db, held["id"]) == []


async def test_a_sleep_is_a_job_put_off_and_the_first_end_counts(
    db: Connection,
) -> None:
    held = await running(db)
    assert await sweep(db, "1 hour") == 1
    (held,) = await claim(db)
    assert held["options"]["crash_count"] == 1
    until = await db.fetchval("select pgwake.now() + interval '1 hour'")
    assert await sleep(db, held, "nap", until) == "sleeps"
    row = await job(db, held["id"])
    assert (row["status"], row["attempt"], row["crash_count"]) == ("pending", 0, 0)
    batch = await claim_batch(db)
    assert (batch["ids"], batch["next_run_at"]) == ([], until)

    await set_clock(db, "2 hours")
    (held,) = await claim(db)
    assert held["attempt"] == 1
    assert await sleep(db, held, "nap", until + timedelta(days=9)) == "over"
    assert await sleep(db, held, "nap 2", until) == "over"
    for statement in ask(db, held, "nap"), record(db, held, "nap"):
        with refused("PW003"):
            await statement
    await call(db, "cancel_job", job_id=held["id"])
    assert await sleep(db, held, "nap 3", until) == "cancelled"
    assert await names(db, held["id"]) == ["nap", "nap 2"]


async def test_who_waits_goes_on_when_the_event_comes(
    db: Connection, connect: Connect
) -> None:
    other = await connect()
    held = await running(db)
    assert await ask(db, held, "early", may_wait=False) == ("waits", None)
    assert await emit(db, "early", {"x": None})
    assert not await emit(other, "early", 2)
    assert await ask(db, held, "early") == ("here", {"x": None})
    assert await ask(db, held, "late", name="n") == ("waits", None)
    assert await status(db, held["id"]) == "waiting"
    assert await claim(db) == []
    assert (await rows(db, "maintain", step="children"))[0]["maintain"] == {
        "children": 0
    }

    await other.execute("insert into pgwake.events (name) values ('late')")
    (held,) = await claim(db)
    assert held["attempt"] == 1
    assert await ask(db, held, "late", name="n") == ("here", None)
    assert await ask(db, held, "early") == ("here", {"x": None})
    steps = held["options"]["steps"]
    assert [(step["kind"], step["result"]) for step in steps] == [
        ("event", {"x": None})
    ]
    assert await call(db, "recount_jobs") == 0
    await complete(db, held)
    assert await left_over(db) == 0


async def test_an_emit_that_is_not_committed_is_not_waited_for(
    db: Connection, connect: Connect
) -> None:
    other = await connect()
    for constraints in "deferred", "immediate":  # without the event's lock, and with it
        event = f"e {constraints}"
        held = await running(db)
        async with other.transaction():
            await other.execute(f"set constraints all {constraints}")
            await emit(other, event, 1)
            assert await ask(db, held, event) == ("waits", None)
        await set_clock(db, "1 second")
        (held,) = await claim(db)
        assert await ask(db, held, event) == ("here", 1)
        await complete(db, held)
        await set_clock(db, "0")

    held = await running(db)
    transaction = other.transaction()
    await transaction.start()
    await emit(other, "e", 1)
    await transaction.rollback()
    assert await ask(db, held, "e") == ("waits", None)
    assert await claim(db) == []
    assert await emit(db, "e")
    assert len(await claim(db)) == 1


async def test_an_emitter_waits_for_who_is_about_to_wait(
    db: Connection, connect: Connect
) -> None:
    other = await connect()
    held = await running(db)
    async with blocking(db, other, emit(other, "e", 5)) as emitted:
        assert await ask(db, held, "e") == ("waits", None)
    assert await emitted
    (held,) = await claim(db)
    assert await ask(db, held, "e") == ("here", 5)


async def test_an_emitter_with_an_old_snapshot_is_found_by_the_upkeep(
    db: Connection, connect: Connect
) -> None:
    other = await connect()
    held = await running(db)
    async with db.transaction(isolation="repeatable_read"):
        with refused("PW003"):
            async with db.transaction():
                await ask(db, held, "e")
    async with other.transaction(isolation="repeatable_read"):
        await other.execute("select from pgwake.waits")
        assert await ask(db, held, "e") == ("waits", None)
        await emit(other, "e", 6)
    assert await claim(db) == []
    await rows(db, "maintain", step="children")
    (held,) = await claim(db)
    assert await ask(db, held, "e") == ("here", 6)
    assert not await db.fetchval("select bool_or(is_unseen) from pgwake.events")


async def test_all_who_wait_for_it_hear_of_an_event_in_their_queues(
    db: Connection,
) -> None:
    held = [await running(db, queue=queue) for queue in "abb"]
    for one in held:
        await ask(db, one, "e")
    await emit(db, "e", 7)
    held = await claim(db, queue="a") + await claim(db, 2, queue="b")
    assert [await ask(db, one, "e") for one in held] == [("here", 7)] * 3


async def test_a_time_out_is_answered_the_same_for_ever(db: Connection) -> None:
    held = await running(db)
    hour = timedelta(hours=1)
    assert (await ask(db, held, "e", timeout=hour))[0] == "waits"
    batch = await claim_batch(db)
    assert batch["ids"] == []
    assert batch["next_run_at"] - batch["claimed_at"] > hour - timedelta(minutes=2)
    with refused("PW003"):
        await ask(db, held, "e", timeout=-hour)

    await set_clock(db, "2 hours")
    (held,) = await claim(db)
    assert (await ask(db, held, "e", timeout=9 * hour))[0] == "timed_out"
    await emit(db, "e", 8)
    assert (await ask(db, held, "e"))[0] == "timed_out"
    assert await ask(db, held, "e", name="again") == ("here", 8)
    (step, _) = await rows(db, "get_steps", job_id=held["id"])
    assert (step["kind"], step["until"] is None) == ("event", False)


async def test_a_woken_job_that_asks_too_early_waits_as_long_as_it_said_first(
    db: Connection,
) -> None:
    held = await running(db)
    await ask(db, held, "e", timeout=timedelta(hours=1))
    before = await db.fetchrow("select since, deadline from pgwake.waits")
    await db.execute("update pgwake.rechecks set at = now()")
    (held,) = await claim(db)
    assert (await ask(db, held, "e", timeout=timedelta(hours=9)))[0] == "waits"
    assert await db.fetchrow("select since, deadline from pgwake.waits") == before
    await db.execute("update pgwake.rechecks set at = now()")
    (held,) = await claim(db)
    assert (await ask(db, held, "f"))[0] == "waits"
    assert await db.fetchval("select deadline is null from pgwake.waits")


async def test_who_waits_or_sleeps_can_be_cancelled(db: Connection) -> None:
    hour = timedelta(hours=1)
    until = await db.fetchval("select now() + interval '1 hour'")
    one, other, asleep, told = [await running(db) for _ in range(4)]
    await record(db, one, "a")
    await ask(db, one, "e", timeout=hour)
    await ask(db, other, "e", timeout=hour)
    await sleep(db, asleep, "s", until)
    assert await call(db, "cancel_job", job_id=told["id"]) == "cancel_requested"
    assert await ask(db, told, "e") == ("cancelled", None)
    assert await call(db, "cancel_job", job_id=one["id"]) == "cancelled"
    (cancelled,) = await rows(db, "cancel_jobs", queue="default")
    assert (cancelled["outcome"], cancelled["job_count"]) == ("cancelled", 2)
    assert await left_over(db) == 0

    await emit(db, "e")
    assert await claim(db) == []
    await call(db, "retry_job", job_id=one["id"])
    (held,) = await claim(db)
    assert await ask(db, held, "e") == ("here", None)
    assert await names(db, one["id"]) == ["a", "e"]


async def test_deleted_and_truncated_jobs_leave_nothing(db: Connection) -> None:
    for statement in "delete from pgwake.jobs", "truncate pgwake.jobs":
        held = await running(db)
        await record(db, held, "a")
        await ask(db, held, "e", timeout=SECOND)
        await db.execute(statement)
        assert await left_over(db) == 0


async def test_who_waits_gives_its_key_up_and_takes_its_turn_again(
    db: Connection,
) -> None:
    await set_queue(db, keep_order=True)
    held = await running(db, concurrency_key="k")
    next_id = await insert(db, concurrency_key="k")
    assert await claim(db) == []
    await ask(db, held, "e")
    (following,) = await claim(db)
    assert following["id"] == next_id
    await emit(db, "e")
    assert await claim(db) == []
    await complete(db, following)
    (held,) = await claim(db)
    assert await ask(db, held, "e") == ("here", None)
    until = await db.fetchval("select now() + interval '1 hour'")
    await insert(db, concurrency_key="k")
    await sleep(db, held, "s", until)  # keep_order keeps the key
    assert await claim(db) == []
    assert await call(db, "recount_jobs") == 0


async def test_who_waits_leaves_the_room_of_its_queue_and_comes_back_by_priority(
    db: Connection,
) -> None:
    await set_queue(db, max_running=1)
    held = await running(db, priority=5)
    await ask(db, held, "e")
    other = await running(db)
    await insert(db)
    await emit(db, "e")
    assert await claim(db) == []
    await complete(db, other)
    (again,) = await claim(db)
    assert (again["id"], await ask(db, again, "e")) == (held["id"], ("here", None))


async def test_who_waits_can_be_moved_with_its_time_out(db: Connection) -> None:
    held = await running(db)
    await ask(db, held, "e", timeout=SECOND)
    moved = {"changes": {"queue": "other"}, "job_ids": [held["id"]]}
    assert (await rows(db, "update_jobs", **moved))[0]["outcome"] == "updated"
    await set_clock(db, "1 minute")
    await rows(db, "maintain", step="children")  # by its recheck in the old queue
    (held,) = await claim(db, queue="other")
    assert (await ask(db, held, "e"))[0] == "timed_out"


async def test_a_job_of_its_unique_key_comes_beside_one_that_has_begun(
    db: Connection,
) -> None:
    until = await db.fetchval("select pgwake.now() + interval '1 hour'")
    for event in None, "e":
        held = await running(db, unique_key="k", payload={"n": 1})
        await record(db, held, "charge")
        await (ask(db, held, event) if event else sleep(db, held, "s", until))
        new = {"kind": "noop", "unique_key": "k", "payload": {"n": 2}}
        assert await call(db, "enqueue", **new) == held["id"]
        new_id = await call(db, "enqueue", **new, on_conflict="replace")
        (fresh,) = await claim(db)
        assert (fresh["id"], fresh["payload"]) == (new_id, {"n": 2})
        assert fresh["options"] is None
        await complete(db, fresh)
        left = await job(db, held["id"])
        assert (left["payload"], left["unique_key"]) == ({"n": 1}, None)


async def test_children_wait_for_a_parent_that_waits(db: Connection) -> None:
    for end in "completed", "cancelled":
        parent = await running(db)
        waiting = await child(db, parent["id"])
        await ask(db, parent, end)
        assert await claim(db) == []
        if end == "completed":
            await emit(db, end)
            (parent,) = await claim(db)
            assert await ask(db, parent, end) == ("here", None)
            await complete(db, parent)
            (held,) = await claim(db)
            assert held["id"] == waiting
            await complete(db, held)
        else:
            await call(db, "cancel_job", job_id=parent["id"])
            assert await claim(db) == []
            assert await status(db, waiting) == end


async def test_its_parents_do_not_matter_any_more(db: Connection) -> None:
    parent = await running(db)
    waiting = await child(db, parent["id"])
    await complete(db, parent)
    (held,) = await claim(db)
    assert held["id"] == waiting
    await ask(db, held, "e")
    await db.execute("delete from pgwake.jobs where id = $1", parent["id"])
    await emit(db, "e")
    (held,) = await claim(db)
    assert await ask(db, held, "e") == ("here", None)


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "deleted"])
async def test_a_job_can_wait_for_the_end_of_another(db: Connection, how: str) -> None:
    held, other = await running(db), await running(db)
    assert await ask_job(db, held, other["id"]) == ("waits", None)
    if how == "completed":
        await call(db, "complete_job", **pair(other), result=7)
    elif how == "failed":
        await call(db, "fail_job", **pair(other), retryable=False)
    elif how == "cancelled":
        await call(db, "release_jobs", **pairs(other))
        await call(db, "cancel_job", job_id=other["id"])
    else:
        await db.execute("delete from pgwake.jobs where id = $1", other["id"])
    (held,) = await claim(db)
    outcome, result = await ask_job(db, held, other["id"])
    assert outcome == "here"
    assert result == {
        "status": how if how != "deleted" else None,
        "result": 7 if how == "completed" else None,
    }
    assert await ask_job(db, held, ABSENT) == ("here", {"status": None, "result": None})
    with refused("PW003"):
        await ask_job(db, held, held["id"])


async def test_who_ends_the_other_waits_for_who_is_about_to_wait(
    db: Connection, connect: Connect
) -> None:
    ender = await connect()
    held, other = await running(db), await running(db)
    async with blocking(
        db, ender, call(ender, "complete_job", **pair(other))
    ) as completed:
        assert await ask_job(db, held, other["id"]) == ("waits", None)
    await completed
    (held,) = await claim(db)

    third = await running(db)
    async with ender.transaction():  # now the end comes first, but is not committed
        await call(ender, "complete_job", **pair(third))
        assert await ask_job(db, held, third["id"]) == ("waits", None)
        await set_clock(db, "1 second")
        (held,) = await claim(db)
        assert await ask_job(db, held, third["id"]) == ("waits", None)
    await set_clock(db, "2 seconds")
    (held,) = await claim(db)
    assert (await ask_job(db, held, third["id"]))[0] == "here"


async def test_events_go_when_they_have_expired_and_nobody_waits(
    db: Connection,
) -> None:
    held = await running(db)
    assert (await ask(db, held, "waited for"))[0] == "waits"
    day = timedelta(days=1)
    for name in "waited for", "old":
        await call(db, "emit_event", name=name, keep=day)
    await call(db, "emit_event", name="new", keep=9 * day)
    for wrong in {"keep": -day}, {"payload": "x" * 1048576}:
        with refused("PW003"):
            await call(db, "emit_event", name="e", **wrong)
    with refused("23514", "events_name_is_1_to_512_bytes"):
        await db.execute("insert into pgwake.events (name) values ('')")
    await call(db, "emit_event", name="heard", keep=day)
    await db.execute("insert into pgwake.events values ('e', '1', now(), 'infinity')")
    assert (await ask(db, await running(db), "heard"))[0] == "here"
    await set_clock(db, "23 hours")
    (finding,) = await db.fetch("select * from pgwake.diagnose_children()")
    assert (finding["check_name"], finding["value"]) == ("events_unheard", 1)
    await set_clock(db, "2 days")
    for left in ["new", "waited for"], ["new"]:
        await rows(db, "maintain", step="retention")
        events = await db.fetch(
            "select name from pgwake.events where name <> 'e' order by name"
        )
        assert [row["name"] for row in events] == left
        if "waited for" in left:
            (held,) = await claim(db)
            assert (await ask(db, held, "waited for"))[0] == "here"


async def test_who_lost_its_recheck_is_found_again(db: Connection) -> None:
    held, other = await running(db), await running(db)
    await ask(db, held, "e", timeout=SECOND)
    await ask(db, other, "f")
    await db.execute("delete from pgwake.rechecks")
    (finding,) = await db.fetch("select * from pgwake.diagnose_children()")
    assert finding["value"] == 1
    await db.execute("update pgwake.waits set since = now() - interval '25 hours'")
    (_, finding) = await db.fetch("select * from pgwake.diagnose_children()")
    assert (finding["check_name"], finding["subject"]) == ("waits_long", "default")
    assert finding["problem"].endswith(f': job {other["id"]} for event "f"')
    await call(db, "flag_lost_children")
    (again,) = await claim(db)
    assert again["id"] == held["id"]
    assert len(await db.fetch("select * from pgwake.diagnose_children()")) == 1
