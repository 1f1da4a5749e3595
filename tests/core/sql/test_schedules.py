"""schedule, due_schedules, fire_schedule and their like: each tick becomes one job."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    pair,
    refused,
    rolled_back,
    rows,
    set_clock,
    status,
)

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


async def schedule(db: Connection, **arguments: Any) -> bool:
    """Schedule "s", of kind "k", every ten minutes if nothing else is said."""
    given = {"name": "s", "kind": "k", **arguments}
    if "cron" not in given:
        given.setdefault("every", 10 * 60 * SECOND)
    is_different: bool = await call(db, "schedule", **given)
    return is_different


async def look(db: Connection, name: str = "s") -> Row | None:
    """What due_schedules says of one."""
    due = {row["name"]: row for row in await rows(db, "due_schedules")}
    return due.get(name)


async def due(db: Connection, name: str = "s") -> Row:
    found = await look(db, name)
    assert found is not None
    return found


async def fire(
    db: Connection, found: Row, *ticks: datetime, next_at: datetime | None = None
) -> int | None:
    """Fire ticks; the next one is an hour after the last."""
    count: int | None = await call(
        db,
        "fire_schedule",
        name=found["name"],
        version=found["version"],
        ticks=list(ticks),
        next_at=next_at or (ticks[-1] if ticks else found["now"]) + HOUR,
    )
    return count


async def listed(db: Connection, name: str = "s") -> Row:
    found = {row["name"]: row for row in await rows(db, "list_schedules")}
    return found[name]


async def jobs(db: Connection) -> list[Row]:
    found = await db.fetch("select * from pgwake.jobs order by id")
    return [dict(row) for row in found]


async def test_a_schedule_is_added_then_replaced_only_if_it_is_different(
    db: Connection,
) -> None:
    given: Row = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "payload": {}}
    assert await schedule(db, **given)
    before = await db.fetchval("select xmin::text from pgwake.schedules")

    assert not await schedule(db, **given)
    after = await db.fetchval("select xmin::text from pgwake.schedules")
    assert after == before
    for change in (
        {"cron": "31 2 * * *"},
        {"timezone": "Europe/London"},
        {"payload": {"a": 2}},
        {"queue": "other"},
        {"priority": 1},
        {"max_attempts": 3},
        {"metadata": {"b": 1}},
        {"concurrency_key": "c"},
        {"may_overlap": False},
        {"misfire": "all"},
        {"misfire_limit": 5},
        {"starts_at": datetime.fromisoformat("2027-01-01T00:00Z")},
        {"kind": "other"},
    ):
        given |= change
        assert await schedule(db, **given), change
        assert not await schedule(db, **given), change
    assert [row["name"] for row in await rows(db, "list_schedules")] == ["s"]


async def test_the_same_again_waits_for_nobody_and_keeps_nobody_waiting(
    db: Connection, other: Connection
) -> None:
    await schedule(db)
    async with db.transaction(), other.transaction():
        await call(db, "pause_schedule", name="s")
        await other.execute("set local lock_timeout = '1 s'")
        assert not await schedule(other)
    await call(db, "resume_schedule", name="s")

    async with other.transaction():
        assert not await schedule(other)
        found = await due(db)
        assert await fire(db, found, found["now"]) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"cron": "* * * * *", "every": SECOND},
        {"cron": None},
        {"every": timedelta(0)},
        {"every": 0.5 * SECOND},
        {"every": 1.5 * SECOND},
        {"every": -SECOND},
        {"every": timedelta(days=367)},
        {"timezone": "Europe/Nowhere"},
        {"timezone": "CEST"},
        {"timezone": "+01"},
        {"timezone": ""},
        {"timezone": None},
        {"kind": None},
        {"name": None},
        {"payload": None},
        {"queue": None},
        {"may_overlap": None},
        {"priority": 101},
        {"misfire": "never"},
        {"misfire_limit": 0},
        {"misfire_limit": 10_001},
    ],
)
async def test_what_can_not_be_meant_is_refused(db: Connection, given: Row) -> None:
    with refused("PW003"):
        await schedule(db, **given)
    assert await rows(db, "list_schedules") == []


async def test_months_are_refused_as_an_interval(db: Connection) -> None:
    with refused("PW003") as caught:
        await db.execute("select pgwake.schedule('s', kind => 'k', every => '1 month')")
    assert "differ in length" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("by", "column", "value"),
    [
        ("schedules_name_is_1_to_128_bytes", "name", "x" * 129),
        ("schedules_kind_is_1_to_128_bytes", "kind", ""),
        ("schedules_queue_is_1_to_128_bytes", "queue", "x" * 129),
        ("schedules_have_cron_or_every", "cron", "* * * * *"),
        ("schedules_have_cron_or_every", "every", None),
        ("schedules_every_is_1_second_to_366_days", "every", timedelta(days=367)),
        ("schedules_every_is_in_whole_seconds", "every", 1.5 * SECOND),
        ("schedules_timezone_is_1_to_128_bytes", "timezone", ""),
        ("schedules_misfire_is_known", "misfire", "never"),
        ("schedules_misfire_limit_is_1_to_10000", "misfire_limit", 0),
        ("schedules_problem_has_its_time", "problem", "why"),
    ],
)
async def test_a_row_that_can_not_be_is_refused(
    db: Connection, by: str, column: str, value: object
) -> None:
    await schedule(db)
    with refused("23514", by):
        await db.execute(f"update pgwake.schedules set {column} = $1", value)


@pytest.mark.parametrize(
    ("by", "values"),
    [
        ("schedules_cron_is_1_to_256_bytes", "cron = repeat('*', 257), every = null"),
        ("schedules_next_is_after_last", "next_at = now(), last_at = now()"),
    ],
)
async def test_columns_that_contradict_each_other_are_refused(
    db: Connection, by: str, values: str
) -> None:
    await schedule(db)
    with refused("23514", by):
        await db.execute(f"update pgwake.schedules set {values}")


async def test_a_payload_that_its_kind_does_not_take_is_refused(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.kinds (name, check_payload, declared_schema)"
        """ values ('k', true, '{"type": "object", "required": ["to"]}')"""
    )
    with refused("PW003"):
        await schedule(db)
    assert await schedule(db, payload={"to": "a"})


async def test_a_tick_becomes_a_job_with_all_that_was_said(db: Connection) -> None:
    await schedule(
        db,
        payload={"a": 1},
        queue="q",
        priority=7,
        max_attempts=3,
        metadata={"by": "me", "schedule": "not this"},
    )
    found = await due(db)
    await db.execute("set timezone = 'Asia/Tokyo'")
    tick = found["now"].replace(microsecond=0)

    assert await fire(db, found, tick) == 1
    (job,) = await jobs(db)
    stamp = f"{tick:%Y-%m-%dT%H:%M:%SZ}"
    wanted = {
        "kind": "k",
        "status": "pending",
        "payload": {"a": 1},
        "queue": "q",
        "priority": 7,
        "max_attempts": 3,
        "metadata": {"by": "me", "schedule": "s", "scheduled_for": stamp},
        "unique_key": f"schedule/s/{stamp}",
    }
    assert job.items() >= wanted.items()
    row = await listed(db)
    seen = (row["last_at"], row["next_at"], row["last_job_id"], row["fired_count"])
    assert seen == (tick, tick + HOUR, job["id"], 1)


async def test_a_job_is_due_at_its_tick_or_now_if_that_is_past(db: Connection) -> None:
    await schedule(db)
    found = await due(db)
    now = found["now"]

    assert await fire(db, found, now - HOUR, now + SECOND) == 2
    late, coming = await jobs(db)
    assert late["run_at"] == late["created_at"]
    assert coming["run_at"] == now + SECOND


async def test_a_job_of_a_schedule_waits_for_its_concurrency_key(
    db: Connection,
) -> None:
    await schedule(db, concurrency_key="c")
    found = await due(db)
    await fire(db, found, found["now"])
    (job,) = await jobs(db)
    assert (job["status"], job["concurrency_key"]) == ("waiting", "c")
    assert [one["id"] for one in await claim(db)] == [job["id"]]


async def test_who_comes_second_with_the_same_tick_fires_nothing(
    db: Connection,
) -> None:
    await schedule(db)
    found = await due(db)

    assert await fire(db, found, found["now"]) == 1
    assert await fire(db, found, found["now"]) is None
    assert len(await jobs(db)) == 1


async def test_who_comes_while_another_fires_waits_for_nothing(
    db: Connection, other: Connection
) -> None:
    await schedule(db)
    found = await due(db)
    async with db.transaction():
        assert await fire(db, found, found["now"]) == 1
        await other.execute("set lock_timeout = '1 s'")
        assert await fire(other, found, found["now"]) is None
        assert not await note(other, found, "busy")
    assert await fire(other, found, found["now"]) is None
    assert len(await jobs(db)) == 1


async def test_a_tick_whose_job_was_rolled_back_is_left_to_others(
    db: Connection, other: Connection
) -> None:
    await schedule(db)
    found = await due(db)
    async with rolled_back(db):
        assert await fire(db, found, found["now"]) == 1

    assert await fire(other, found, found["now"]) == 1
    assert len(await jobs(db)) == 1


async def test_a_transaction_that_fires_twice_makes_one_job_a_tick(
    db: Connection,
) -> None:
    await schedule(db)
    async with db.transaction():
        found = await due(db)
        tick = found["now"]
        assert await fire(db, found, tick) == 1
        assert await fire(db, found, tick) is None
        assert await fire(db, found, next_at=tick) is None
    assert len(await jobs(db)) == 1


@pytest.mark.parametrize("change", ["replaced", "paused", "resumed", "removed"])
async def test_a_schedule_that_changed_meanwhile_fires_nothing_old(
    db: Connection, change: str
) -> None:
    await schedule(db)
    found = await due(db)
    if change == "replaced":
        await schedule(db, payload={"new": True})
    elif change == "removed":
        assert await call(db, "unschedule", name="s")
    else:
        assert await call(db, "pause_schedule", name="s")
    if change == "resumed":
        assert await call(db, "resume_schedule", name="s")

    assert await fire(db, found, found["now"]) is None
    assert await jobs(db) == []


@pytest.mark.parametrize(
    ("ticks", "next_at"),
    [
        ([None], HOUR),
        ([timedelta(0), timedelta(0)], HOUR),
        ([timedelta(0), -SECOND], HOUR),
        ([timedelta(0)], timedelta(0)),
        ([timedelta(0)], None),
        ([3 * SECOND], HOUR),
        (None, HOUR),
    ],
)
async def test_ticks_that_can_not_be_are_refused(
    db: Connection, ticks: Any, next_at: timedelta | None
) -> None:
    await schedule(db)
    found = await due(db)
    now = found["now"]
    with refused("PW003"):
        await call(
            db,
            "fire_schedule",
            name="s",
            version=found["version"],
            ticks=ticks and [tick if tick is None else now + tick for tick in ticks],
            next_at=next_at if next_at is None else now + next_at,
        )
    assert await jobs(db) == []


async def test_without_overlap_a_tick_is_left_out_while_the_last_job_is_live(
    db: Connection,
) -> None:
    await schedule(db, may_overlap=False)
    found = await due(db)
    now = found["now"]
    assert await fire(db, found, now, next_at=now + SECOND) == 1
    await set_clock(db, "2 s")
    found = await due(db)
    assert await fire(db, found, now + SECOND, next_at=now + 2 * SECOND) == 0
    row = await listed(db)
    assert (row["fired_count"], row["left_out_count"]) == (1, 1)
    assert row["last_at"] == now + SECOND

    (held,) = await claim(db)
    found = await due(db)
    assert await fire(db, found, now + 2 * SECOND, next_at=now + 3 * SECOND) == 0
    await call(db, "complete_job", **pair(held))
    await set_clock(db, "4 s")
    found = await due(db)
    assert await fire(db, found, now + 3 * SECOND) == 1


async def test_without_overlap_a_tick_is_not_due_before_its_time(
    db: Connection,
) -> None:
    await schedule(db, name="alone", may_overlap=False)
    await schedule(db, name="together")
    async with db.transaction():  # in which now() stands still
        tick = await db.fetchval("select now() + interval '1 hour'")
        for name in ("alone", "together"):
            await fire(db, await due(db, name), next_at=tick)
        await set_clock(db, "3599 s")
        assert await look(db, "alone") is None
        assert (await due(db, "together"))["until"] > tick

    await set_clock(db, "3601 s")
    alone = await due(db, "alone")
    assert alone["until"] == alone["now"]


async def test_a_schedule_is_looked_at_two_seconds_before_its_tick(
    db: Connection,
) -> None:
    await schedule(db)
    found = await due(db)
    await fire(db, found, next_at=found["now"] + HOUR)

    await set_clock(db, "3500 s")
    assert await look(db) is None
    await set_clock(db, "3599 s")
    again = await due(db)
    assert again["since"] == found["now"] + HOUR
    assert again["until"] == again["now"] + 2 * SECOND


async def test_no_tick_before_a_schedule_was_added_or_replaced_is_fired(
    db: Connection,
) -> None:
    await schedule(db, cron="* * * * *")
    found = await due(db)
    added = (await listed(db))["updated_at"]
    assert found["since"] == added
    await fire(db, found, next_at=found["now"] + SECOND)

    await set_clock(db, "1 day")
    await schedule(db, cron="*/5 * * * *")
    row = await listed(db)
    assert row["next_at"] is None
    assert (await due(db))["since"] == row["updated_at"]
    assert row["updated_at"] > added + timedelta(hours=23)


async def test_no_tick_is_fired_before_the_start(db: Connection) -> None:
    start = datetime.fromisoformat("2127-01-01T00:00:10Z")
    for name, given in (("c", {"cron": "* * * * *"}), ("e", {"every": 7 * SECOND})):
        await schedule(db, name=name, starts_at=start, **given)
        assert (await due(db, name))["since"] == start


async def test_an_interval_begins_when_it_is_added(db: Connection) -> None:
    await schedule(db, every=HOUR)
    created = await db.fetchval("select created_at from pgwake.schedules")
    since = (await due(db))["since"]
    assert since == created.replace(microsecond=0) + HOUR


async def test_an_interval_keeps_its_beat_when_it_is_replaced_or_resumed(
    db: Connection,
) -> None:
    await schedule(db, every=HOUR)
    found = await due(db)
    tick = found["now"].replace(microsecond=0)
    await fire(db, found, tick, next_at=tick + HOUR)

    await set_clock(db, "59 minutes")
    await schedule(db, every=HOUR, payload={"new": True})
    assert (await due(db))["since"] == tick + HOUR
    await call(db, "pause_schedule", name="s")
    await set_clock(db, "150 minutes")
    await call(db, "resume_schedule", name="s")
    assert (await due(db))["since"] == tick + 3 * HOUR


async def test_an_interval_counts_from_its_start(db: Connection) -> None:
    start = datetime.fromisoformat("2020-01-01T00:00:05Z")
    await schedule(db, every=HOUR, starts_at=start)
    found = await due(db)
    assert found["now"] <= found["since"] <= found["now"] + HOUR
    assert (found["since"] - start) % HOUR == timedelta(0)

    # A tick that was fired ahead of its time is not fired again.
    await fire(db, found, found["now"] + SECOND, next_at=found["since"] + HOUR)
    await schedule(db, every=2 * SECOND, starts_at=start)
    assert (await due(db))["since"] > found["now"] + SECOND


async def test_a_day_has_24_hours_whatever_the_session_thinks(db: Connection) -> None:
    await db.execute("set timezone = 'Europe/Berlin'")
    start = datetime.fromisoformat("2026-03-28T12:00Z")  # the night of summer time
    await schedule(db, every=timedelta(days=1), starts_at=start)
    since = (await due(db))["since"]
    assert (since - start) % timedelta(hours=24) == timedelta(0)


async def test_a_clock_put_back_a_little_waits_and_one_put_back_far_begins_anew(
    db: Connection,
) -> None:
    for name, given in (("c", {"cron": "* * * * *"}), ("e", {"every": 10 * SECOND})):
        await schedule(db, name=name, **given)
        await set_clock(db, "1 day")
        found = await due(db, name)
        await fire(db, found, found["now"], next_at=found["now"] + SECOND)
        await set_clock(db, "23 hours")
        assert await look(db, name) is None

        await set_clock(db, "0")
        again = await due(db, name)
        assert again["since"] <= again["now"] + 10 * SECOND
        assert await fire(db, again, again["now"]) == 1


async def test_a_paused_schedule_is_not_due_until_it_is_resumed(db: Connection) -> None:
    await schedule(db, cron="* * * * *")
    assert await call(db, "pause_schedule", name="s")
    assert not await call(db, "pause_schedule", name="s")
    assert await look(db) is None
    await schedule(db, cron="*/2 * * * *")
    assert await look(db) is None
    assert (await listed(db))["is_paused"]

    await set_clock(db, "1 hour")
    assert await call(db, "resume_schedule", name="s")
    assert not await call(db, "resume_schedule", name="s")
    found = await due(db)
    assert found["since"] > found["now"] - timedelta(minutes=1)


async def test_a_schedule_is_run_at_will_beside_its_ticks(db: Connection) -> None:
    await schedule(db, payload={"a": 1}, may_overlap=False)
    await call(db, "pause_schedule", name="s")
    before = await listed(db)
    job_id = await call(db, "run_schedule", name="s")
    (job,) = await jobs(db)
    assert (job["id"], job["status"], job["payload"]) == (job_id, "pending", {"a": 1})
    assert job["unique_key"] == "schedule/s"
    assert await call(db, "run_schedule", name="s") is None
    assert await listed(db) == before | {"last_job_id": job_id, "fired_count": 1}


@pytest.mark.parametrize(
    "function", ["pause_schedule", "resume_schedule", "run_schedule"]
)
async def test_a_name_that_no_schedule_has_is_refused(
    db: Connection, function: str
) -> None:
    with refused("PW003"):
        await call(db, function, name="nobody")
    assert not await call(db, "unschedule", name="nobody")


async def test_a_schedule_removed_and_added_again_doubles_no_coming_tick(
    db: Connection,
) -> None:
    await schedule(db)
    found = await due(db)
    tick = found["now"].replace(microsecond=0) + 2 * SECOND
    assert await fire(db, found, tick) == 1
    assert await call(db, "unschedule", name="s")

    await schedule(db)
    assert await fire(db, await due(db), tick) == 0
    assert len(await jobs(db)) == 1


async def note(db: Connection, found: Row, problem: str) -> bool:
    is_news: bool = await call(
        db,
        "note_schedule_problem",
        name=found["name"],
        version=found["version"],
        problem=problem,
    )
    return is_news


async def test_a_problem_is_news_once_and_is_looked_at_again_after_a_minute(
    db: Connection,
) -> None:
    await schedule(db)
    found = await due(db)
    assert await note(db, found, "no such zone")
    assert not await note(db, found, "no such zone")  # that version is void
    assert await look(db) is None
    assert (await listed(db))["problem"] == "no such zone"

    await set_clock(db, "61 s")
    again = await due(db)
    assert not await note(db, again, "no such zone")
    await set_clock(db, "122 s")
    assert await note(db, await due(db), "y" * 5000)
    assert (await listed(db))["problem"] == "y" * 1000

    await set_clock(db, "183 s")
    last = await due(db)
    assert await fire(db, last, last["now"]) == 1
    assert (await listed(db))["problem"] is None


async def test_a_problem_is_forgotten_when_the_schedule_is_replaced(
    db: Connection,
) -> None:
    await schedule(db)
    await note(db, await due(db), "no such zone")
    await schedule(db, every=HOUR)
    assert (await listed(db))["problem"] is None
    assert await look(db) is not None


async def test_a_job_that_is_refused_leaves_its_tick_as_it_was(db: Connection) -> None:
    await schedule(db)
    await db.execute(
        "insert into pgwake.kinds (name, check_payload, declared_schema)"
        """ values ('k', true, '{"type": "object", "required": ["to"]}')"""
    )
    found = await due(db)
    with refused("PW003"):
        await fire(db, found, found["now"])
    assert (await listed(db))["last_at"] is None

    await db.execute("update pgwake.kinds set check_payload = false")
    assert await fire(db, found, found["now"]) == 1


async def test_intervals_can_be_fired_in_sql_alone(db: Connection) -> None:
    await schedule(db, every=10 * SECOND)
    await schedule(db, name="c", cron="* * * * *")
    for seconds in range(0, 65, 5):
        await set_clock(db, f"{seconds} s")
        await db.execute(
            "select pgwake.fire_schedule(d.name, d.version,"
            " case when d.since <= d.until then array[d.since] else '{}' end,"
            " case when d.since <= d.until then d.since + d.every else d.since end)"
            " from pgwake.due_schedules() as d where d.every is not null"
        )
    ticks = [job["metadata"]["scheduled_for"] for job in await jobs(db)]
    assert len(set(ticks)) == len(ticks) == 6


async def test_other_jobs_do_not_stand_in_a_schedules_way(db: Connection) -> None:
    await insert(db, "k", unique_key="s")
    await schedule(db, may_overlap=False)
    found = await due(db)
    assert await fire(db, found, found["now"]) == 1
    assert [await status(db, n) for n in (1, 2)] == ["pending", "pending"]


async def test_many_are_fired_by_one_statement(db: Connection) -> None:
    for name in ("a", "b", "c"):
        await schedule(db, name=name)
    found = [await due(db, name) for name in ("a", "b", "c")]
    at: datetime = found[0]["now"]
    arguments: Row = {
        "names": ["a", "b", "c"],
        "versions": [found[0]["version"], "void", found[2]["version"]],
        "next_ats": [at + HOUR] * 3,
        "ticks": [at - 2 * SECOND, at - SECOND, at, at],
        "tick_counts": [2, 1, 1],
    }
    for name, value in (("tick_counts", [2, 1, 2]), ("versions", ["x"])):
        with refused("PW003"):
            await call(db, "fire_schedules", **arguments | {name: value})
    assert await call(db, "fire_schedules", **arguments) == [2, None, 1]
    told = [job["metadata"]["schedule"] for job in await jobs(db)]
    assert told == ["a", "a", "c"]
