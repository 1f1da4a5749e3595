"""Schedules fired by workers: each tick one job, whoever dies, stops or is late."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from pgwake.database.session import Session
from pgwake.engine.scheduler import Scheduler
from pgwake.observe.metrics import Metrics
from support import Connect, Connection, wait_for
from support.sql.helpers import Row, call, claim, rows, set_clock
from support.worker.helpers import embedded, ended
from support.worker.metrics import Samples
from support.worker.processes import StartProcess
from support.worker.registries import quick

MINUTE = timedelta(minutes=1)


class Bench:
    """A scheduler that looks when it is told to, by a clock that the test sets."""

    def __init__(self, url: str) -> None:
        self.metrics = Metrics([])
        self.session = Session(url, "pgwake:bench", "bench", 10)
        self._scheduler = Scheduler(self.session, self.metrics)

    async def look(self, at: datetime | None = None) -> None:
        if at is not None:
            await self.set_clock(at)
        while await self._scheduler.fire_due():
            pass

    async def set_clock(self, at: datetime) -> None:
        async def move(connection: Connection) -> None:
            offset = at - await connection.fetchval("select now()")
            await set_clock(connection, f"{offset.total_seconds()} s")

        await self.session.call(move)

    async def schedule(self, name: str, **arguments: Any) -> None:
        async def schedule(connection: Connection) -> None:
            await call(connection, "schedule", name=name, kind="quick", **arguments)

        await self.session.call(schedule)


@pytest.fixture
async def bench(database: str) -> AsyncIterator[Bench]:
    bench = Bench(database)
    yield bench
    bench.session.close()


async def fired(connection: Connection, name: str) -> list[str]:
    """The ticks of a schedule that became jobs, in order; each once."""
    found = await connection.fetch(
        "select metadata ->> 'scheduled_for' from pgwake.jobs"
        " where metadata ->> 'schedule' = $1 order by 1",
        name,
    )
    ticks = [tick for (tick,) in found]
    assert len(set(ticks)) == len(ticks), Counter(ticks).most_common(3)
    return ticks


async def listed(connection: Connection, name: str) -> Row:
    found = {row["name"]: row for row in await rows(connection, "list_schedules")}
    return found[name]


@pytest.mark.parametrize(
    ("evening", "at_half_past_two"),
    [
        ("2027-03-27T20:00Z", "2027-03-28T01:00:00Z"),
        ("2027-10-30T20:00Z", "2027-10-31T00:30:00Z"),
    ],
)
async def test_in_both_nights_of_the_year_a_time_comes_once_and_quarters_go_on(
    bench: Bench, connection: Connection, evening: str, at_half_past_two: str
) -> None:
    start = datetime.fromisoformat(evening)
    await bench.set_clock(start)
    for name, cron in (("daily", "30 2 * * *"), ("quarters", "*/15 * * * *")):
        await bench.schedule(name, cron=cron, timezone="Europe/Berlin")
    for minutes in range(0, 12 * 60, 15):
        await bench.look(start + minutes * MINUTE)

    assert await fired(connection, "daily") == [at_half_past_two]
    assert await fired(connection, "quarters") == [
        f"{start + minutes * MINUTE:%Y-%m-%dT%H:%M:%SZ}"
        for minutes in range(15, 12 * 60, 15)
    ]


async def test_a_midnight_that_does_not_come_is_one_o_clock(
    bench: Bench, connection: Connection
) -> None:
    start = datetime.fromisoformat("2027-09-04T20:00Z")
    await bench.set_clock(start)
    await bench.schedule("s", cron="0 0 * * *", timezone="America/Santiago")
    for hours in range(48):
        await bench.look(start + hours * 60 * MINUTE)
    assert await fired(connection, "s") == [
        "2027-09-05T04:00:00Z",
        "2027-09-06T03:00:00Z",
    ]


async def test_many_that_are_due_at_once_are_fired_in_batches(
    bench: Bench, connection: Connection
) -> None:
    """Each in a transaction of its own, and one that is refused hinders none."""
    await bench.schedule("bad", every=MINUTE, queue="full")
    await connection.execute(
        "insert into pgwake.schedules (name, every, kind)"
        " select 's' || n, '1 minute', 'quick' from generate_series(1, 250) as n;"
        " create function public.refuse() returns trigger language plpgsql as"
        " 'begin raise exception using message = ''full''; end';"
        " create trigger refuse after insert on pgwake.jobs_live for each row"
        " when (new.queue = 'full') execute function public.refuse()"
    )
    await bench.look()
    next_at = await connection.fetchval("select max(next_at) from pgwake.schedules")
    with capture_logs() as logs:
        await bench.look(next_at)
    assert [line["schedule"] for line in logs if "problem" in line] == ["bad"]
    commits = await connection.fetch(
        "select count(*) from pgwake.jobs group by xmin::text order by count(*) desc"
    )
    counts = [count for (count,) in commits]
    assert sum(counts) == 250
    assert counts[0] == 100  # the batch with the bad one is fired one by one


async def test_after_a_day_without_workers_a_minutely_schedule_makes_one_job(
    bench: Bench, connection: Connection
) -> None:
    start = datetime.fromisoformat("2027-06-01T12:00:30Z")
    await bench.set_clock(start)
    await bench.schedule("once", cron="* * * * *")
    await bench.schedule("skip", cron="* * * * *", misfire="skip")
    await bench.schedule("all", cron="* * * * *", misfire="all")
    await bench.schedule("every", every=MINUTE)
    await bench.schedule("hourly", cron="5 * * * *", misfire="skip")
    await bench.look(start)
    assert (await listed(connection, "once"))["next_at"] == start.replace(
        minute=1, second=0
    )

    await bench.look(start + timedelta(days=1))
    counts = {
        name: len(await fired(connection, name))
        for name in ("once", "skip", "all", "every", "hourly")
    }
    assert counts == {"once": 1, "skip": 1, "all": 100, "every": 1, "hourly": 0}
    assert await fired(connection, "once") == ["2027-06-02T12:00:00Z"]
    await bench.look(start + timedelta(days=1, minutes=1))
    assert len(await fired(connection, "once")) == 2


async def test_a_clock_put_forward_and_back_again_floods_and_silences_nothing(
    bench: Bench, connection: Connection
) -> None:
    start = datetime.fromisoformat("2027-06-01T12:00:30Z")
    await bench.set_clock(start)
    await bench.schedule("s", cron="* * * * *")
    await bench.look(start)
    await bench.look(start + timedelta(days=3650))
    assert len(await fired(connection, "s")) == 1
    for minutes in range(3):
        await bench.look(start + minutes * MINUTE)
    assert (await fired(connection, "s"))[:2] == [
        "2027-06-01T12:01:00Z",
        "2027-06-01T12:02:00Z",
    ]


async def test_what_one_schedule_has_wrong_is_shown_and_hinders_no_other(
    bench: Bench, connection: Connection
) -> None:
    await connection.execute(
        "insert into pgwake.schedules (name, kind, cron, timezone, every, next_at)"
        " values ('a cron', 'quick', '61 * * * *', 'UTC', null, null),"
        " ('c zone', 'quick', '* * * * *', 'Europe/Nowhere', null, null),"
        " ('d kind', 'picky', null, 'UTC', '1 s', now()),"
        " ('e queue', 'quick', null, 'UTC', '1 s', now()),"
        " ('f right', 'quick', null, 'UTC', '1 s', now())"
    )
    await connection.execute(
        "insert into pgwake.kinds (name, check_payload, declared_schema)"
        """ values ('picky', true, '{"type": "object", "required": ["to"]}')"""
    )
    await connection.execute(
        "update pgwake.schedules set metadata = jsonb_build_object('x', $1::text)"
        " where name = 'e queue'",
        "x" * 65_500,
    )
    with capture_logs() as logs:
        await bench.look()

    problems = {
        row["name"]: row["problem"] for row in await rows(connection, "list_schedules")
    }
    assert "minute" in problems["a cron"]
    assert "Europe/Nowhere" in problems["c zone"]
    assert "PW003" in problems["d kind"]
    assert "23514" in problems["e queue"]
    assert problems["f right"] is None
    assert len(await fired(connection, "f right")) > 0
    told = {line["schedule"]: line["problem"] for line in logs}
    assert told | {"f right": None} == problems

    with capture_logs() as logs:
        await bench.look()
        await bench.session.call(lambda session: set_clock(session, "61 s"))
        await bench.look()
    assert logs == []
    ticks = Samples(bench.metrics.render())
    assert ticks.total("pgwake_schedule_ticks", outcome="refused") == 8
    assert ticks.total("pgwake_schedule_ticks", outcome="fired") > 0

    await connection.execute("update pgwake.kinds set check_payload = false")
    await bench.session.call(lambda session: set_clock(session, "122 s"))
    await bench.look()
    assert (await listed(connection, "d kind"))["problem"] is None
    assert len(await fired(connection, "d kind")) > 0


async def test_a_tick_that_is_left_out_is_counted(
    bench: Bench, connection: Connection
) -> None:
    start = datetime.fromisoformat("2027-06-01T12:00:30Z")
    await bench.set_clock(start)
    await bench.schedule("s", cron="* * * * *", may_overlap=False)
    for minutes in range(4):
        await bench.look(start + minutes * MINUTE)
    row = await listed(connection, "s")
    assert (row["fired_count"], row["left_out_count"]) == (1, 2)
    ticks = Samples(bench.metrics.render())
    assert ticks.total("pgwake_schedule_ticks", outcome="left_out") == 2
    assert len(await claim(connection)) == 0  # by its own clock it is not due yet


async def test_a_late_tick_is_told(bench: Bench) -> None:
    start = datetime.fromisoformat("2027-06-01T12:00:30Z")
    await bench.set_clock(start)
    await bench.schedule("s", cron="0 13 * * *")
    await bench.look(start)
    with capture_logs() as logs:
        await bench.look(start + 90 * MINUTE)
    (line,) = logs
    assert line["event"] == "schedule fired late"
    assert line["tick"] == "2027-06-01 13:00:00+00:00"


async def test_five_schedulers_with_clocks_apart_make_one_job_of_each_tick(
    connection: Connection, database: str
) -> None:
    benches = [Bench(database) for _ in range(5)]
    await benches[0].schedule("c", cron="* * * * *", misfire="all")
    await benches[0].schedule("e", every=timedelta(seconds=20), misfire="all")
    start = await connection.fetchval("select now()")
    try:
        for look in range(60):
            # Up to two seconds apart, and now and then all in the same instant.
            instants = [start + timedelta(seconds=5 * look + n / 2) for n in range(5)]
            random.shuffle(instants)
            await asyncio.gather(
                *(bench.look(at) for bench, at in zip(benches, instants, strict=True))
            )
    finally:
        for bench in benches:
            bench.session.close()

    for name, seconds in (("c", 60), ("e", 20)):
        ticks = list(map(datetime.fromisoformat, await fired(connection, name)))
        assert len(ticks) >= 300 // seconds - 1
        assert {b - a for a, b in pairwise(ticks)} == {timedelta(seconds=seconds)}
        # Nobody even came to the jobs' unique keys a second time.
        row = await listed(connection, name)
        assert (row["fired_count"], row["left_out_count"]) == (len(ticks), 0)


async def test_workers_that_are_killed_and_stopped_make_one_job_of_each_tick(
    start_application: StartProcess, connection: Connection
) -> None:
    # Without supervisors: one that is stopped comes back with what it believes.
    workers = await asyncio.gather(*(start_application() for _ in range(5)))
    await call(
        connection,
        "schedule",
        name="s",
        kind="noop",
        every=timedelta(seconds=1),
        misfire="all",
    )

    async def has_fired(count: int) -> None:
        async def are_there() -> bool:
            return len(await fired(connection, "s")) >= count

        await wait_for(are_there)

    await has_fired(2)
    os.kill(workers[0].pid, signal.SIGKILL)
    os.kill(workers[1].pid, signal.SIGSTOP)
    os.kill(workers[2].pid, signal.SIGSTOP)
    await has_fired(4)
    os.kill(workers[3].pid, signal.SIGKILL)
    os.kill(workers[1].pid, signal.SIGCONT)
    await has_fired(6)
    os.kill(workers[4].pid, signal.SIGSTOP)
    os.kill(workers[1].pid, signal.SIGKILL)
    await asyncio.sleep(3)  # nobody is there
    os.kill(workers[2].pid, signal.SIGCONT)
    os.kill(workers[4].pid, signal.SIGCONT)
    await has_fired(12)
    assert (await listed(connection, "s"))["left_out_count"] == 0
    await call(connection, "unschedule", name="s")
    for worker in (workers[2], workers[4]):
        os.kill(worker.pid, signal.SIGKILL)

    ticks = list(map(datetime.fromisoformat, await fired(connection, "s")))
    gaps = Counter(b - a for a, b in pairwise(ticks))
    assert gaps.keys() == {timedelta(seconds=1)}


@pytest.mark.parametrize(
    ("clock", "cron", "tick"),
    [
        ("2027-03-28T00:59:57Z", "30 2 * * *", "2027-03-28T01:00:00Z"),
        ("2027-10-31T00:29:57Z", "30 2 * * *", "2027-10-31T00:30:00Z"),
        ("2027-06-01T12:00:00Z", None, None),
    ],
)
async def test_a_worker_runs_the_job_of_a_tick(
    connection: Connection,
    connect: Connect,
    database: str,
    admin: psycopg.Connection,
    clock: str,
    cron: str | None,
    tick: str | None,
) -> None:
    offset = datetime.fromisoformat(clock) - await connection.fetchval("select now()")
    name = database.rpartition("/")[2]
    admin.execute(
        f"alter database {name} set pgwake.clock_offset = '{offset.total_seconds()} s'"
    )
    there = await connect()  # by the clock that the worker will have
    async with embedded(database, quick()) as worker:
        beat: Row = {"cron": cron} if cron else {"every": timedelta(seconds=1)}
        await call(
            there, "schedule", name="s", kind="quick", timezone="Europe/Berlin", **beat
        )

        async def is_there() -> bool:
            return len(await fired(there, "s")) > 0

        await wait_for(is_there)
        job = await ended(there, 1)
        assert job["status"] == "completed"
        assert job["started_at"] >= job["run_at"]
        if tick is not None:
            assert await fired(there, "s") == [tick]
            assert job["run_at"] == datetime.fromisoformat(tick)
        shown = Samples(worker.metrics.render())
        assert shown.total("pgwake_schedule_ticks", outcome="fired") >= 1
