"""pgwake schedule list, add, remove, pause, resume, next."""

import asyncio
from datetime import datetime, timedelta

from support import Connection
from support.sql.helpers import Row, call, rows
from support.worker.processes import Pgwake


async def the_only_one(connection: Connection) -> Row:
    (row,) = await rows(connection, "list_schedules")
    return row


async def test_a_schedule_is_added_with_all_that_is_said(
    pgwake: Pgwake, connection: Connection
) -> None:
    arguments = [
        *("schedule", "add", "nightly", "report", '{"to": "a"}'),
        *("--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--queue", "q"),
        *("--priority", "-5", "--max-attempts", "3", "--metadata", '{"by": "me"}'),
        *("--concurrency-key", "c", "--no-overlap", "--misfire", "all"),
        *("--misfire-limit", "7", "--starts-at", "2027-01-01T00:00Z", "--json"),
    ]
    assert (await pgwake(*arguments)).json == {"name": "nightly", "is_different": True}
    wanted = {
        "name": "nightly",
        "kind": "report",
        "payload": {"to": "a"},
        "cron": "30 2 * * *",
        "every": None,
        "timezone": "Europe/Berlin",
        "queue": "q",
        "priority": -5,
        "max_attempts": 3,
        "metadata": {"by": "me"},
        "concurrency_key": "c",
        "may_overlap": False,
        "misfire": "all",
        "misfire_limit": 7,
        "starts_at": datetime.fromisoformat("2027-01-01T00:00Z"),
    }
    assert (await the_only_one(connection)).items() >= wanted.items()
    again = await pgwake(*arguments[:-1])
    assert again.output == "nightly was scheduled like that\n"


async def test_an_interval_is_said_in_seconds(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("schedule", "add", "s", "k", "--every", "90")
    assert answer.output == "s is scheduled\n"
    row = await the_only_one(connection)
    assert (row["cron"], row["every"]) == (None, timedelta(seconds=90))


async def test_the_list_shows_ticks_and_problems(
    pgwake: Pgwake, connection: Connection
) -> None:
    assert "there are no schedules" in (await pgwake("schedule", "list")).errors
    await call(connection, "schedule", name="[b]", kind="k", cron="@daily")
    await call(connection, "schedule", name="p", kind="k", every=timedelta(minutes=1))
    await call(connection, "pause_schedule", name="p")
    await connection.execute(
        "update pgwake.schedules set problem = 'no such zone', problem_at = now(),"
        " next_at = '2127-01-01 00:00+00', fired_count = 3 where name = '[b]'"
    )
    shown = (await pgwake("schedule", "list")).output
    for text in ("[b]", "@daily", "2127-01-01 00:00:00Z", "no such zone", "60.0 s"):
        assert text in shown
    assert "paused" in shown

    listed = (await pgwake("schedule", "list", "--json")).json
    assert [row["name"] for row in listed] == ["[b]", "p"]
    assert listed[0]["fired_count"] == 3
    assert listed[0]["payload"] == {}
    assert listed[1]["every"] == 60


async def test_a_schedule_is_paused_resumed_and_removed(
    pgwake: Pgwake, connection: Connection
) -> None:
    for name in ("running", "paused"):
        await call(connection, "schedule", name=name, kind="k", cron="@daily")
    await call(connection, "pause_schedule", name="paused")

    async def said(command: str) -> list[str]:
        names = ("running", "paused", "nobody")
        answers = (pgwake("schedule", command, name) for name in names)
        return [one.output or one.errors for one in await asyncio.gather(*answers)]

    unknown = (
        "pgwake: no schedule is named 'nobody' (PW003)\n"
        "Use a name of list_schedules().\n"
    )
    assert await said("pause") == [
        "running is paused\n",
        "paused was paused\n",
        unknown,
    ]
    await call(connection, "resume_schedule", name="running")
    assert await said("resume") == [
        "running was not paused\n",
        "paused is resumed\n",
        unknown,
    ]
    assert await said("run") == ["running runs as 1\n", "paused runs as 2\n", unknown]
    assert await said("remove") == [
        "running is removed\n",
        "paused is removed\n",
        "nobody was not there\n",
    ]


async def test_the_next_ticks_of_an_expression_need_no_database(
    pgwake: Pgwake,
) -> None:
    berlin = ["--cron", "30 2 * * *", "--timezone", "Europe/Berlin"]
    answer = await pgwake(
        *("schedule", "next", *berlin, "--after", "2027-03-27T02:00Z"),
        *("-n", "2", "--json"),
        PGWAKE_DATABASE_URL="postgresql://127.0.0.1:1/nowhere",
    )
    assert answer.json == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]
    shown = await pgwake("schedule", "next", *berlin, "-n", "1")
    assert len(shown.output.splitlines()) == 2


async def test_the_next_ticks_of_a_schedule_begin_with_its_next_one(
    pgwake: Pgwake, connection: Connection
) -> None:
    await call(connection, "schedule", name="c", kind="k", cron="@daily")
    await call(connection, "schedule", name="e", kind="k", every=timedelta(hours=36))
    assert len((await pgwake("schedule", "next", "c", "--json")).json) == 5
    unknown = await pgwake("schedule", "next", "e", "--json")
    assert (unknown.json, "no worker has looked" in unknown.errors) == ([], True)

    await connection.execute(
        "update pgwake.schedules set next_at = '2127-01-01 00:00+00'"
    )
    for name, second in (("c", "2127-01-02T00:00"), ("e", "2127-01-02T12:00")):
        ticks = (await pgwake("schedule", "next", name, "-n", "2", "--json")).json
        assert ticks == ["2127-01-01T00:00:00+00:00", f"{second}:00+00:00"]

    await call(connection, "pause_schedule", name="e")
    paused = await pgwake("schedule", "next", "e", "--json")
    assert (paused.json, "is paused" in paused.errors) == ([], True)
