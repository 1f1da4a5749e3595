"""How far running jobs are, as their handlers say."""

from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    ABSENT,
    Listener,
    Row,
    call,
    claim,
    flush_statistics,
    insert_many,
    job,
    pair,
    pairs,
    refused,
    running,
    set_queue,
    sweep,
)


async def note(db: Connection, held: Row, progress: Any) -> str:
    outcome: str = await call(db, "set_progress", **pair(held), progress=progress)
    return outcome


async def note_all(db: Connection, jobs: list[Row], progresses: list[Any]) -> list[str]:
    outcomes: list[str] = await call(
        db, "set_progresses", **pairs(*jobs), progresses=progresses
    )
    return outcomes


async def progress_of(db: Connection, held: Row) -> Any:
    return (await job(db, held["id"]))["progress"]


@pytest.mark.parametrize("progress", [{"share": 0.4}, 0.4, "step 3", [1, 2], False])
async def test_any_json_value_is_noted(db: Connection, progress: Any) -> None:
    held = await running(db)
    before = await job(db, held["id"])

    assert await note(db, held, progress) == "noted"
    after = await job(db, held["id"])
    assert {name for name in before if before[name] != after[name]} == {"progress"}
    assert await progress_of(db, held) == progress


async def test_null_takes_it_back(db: Connection) -> None:
    held = await running(db)
    await note(db, held, 1)

    assert await note(db, held, None) == "noted"
    assert await progress_of(db, held) is None


async def test_one_whose_cancellation_is_asked_for_is_told(db: Connection) -> None:
    held = await running(db)
    await call(db, "cancel_job", job_id=held["id"])

    assert await note(db, held, 1) == "cancel_requested"
    assert await progress_of(db, held) == 1


async def test_each_of_a_batch_gets_its_own_and_an_outcome(db: Connection) -> None:
    await insert_many(db, 4)
    a, b, lost, cancelled = await claim(db, 4)
    await call(db, "release_jobs", **pairs(lost))
    await call(db, "cancel_job", job_id=cancelled["id"])
    absent = {"id": ABSENT, "lease_id": a["lease_id"]}

    outcomes = await note_all(db, [b, cancelled, absent, lost, a], [1, 2, 3, 4, 5])
    assert outcomes == [
        "noted",
        "cancel_requested",
        "no_such_job",
        "lease_lost",
        "noted",
    ]
    jobs = [b, cancelled, lost, a]
    assert [await progress_of(db, one) for one in jobs] == [1, 2, None, 5]


@pytest.mark.parametrize("end", ["complete_job", "fail_job"])
async def test_one_that_is_being_ended_is_skipped_and_not_waited_for(
    db: Connection, other: Connection, end: str
) -> None:
    held, beside = await running(db), await running(db)
    async with db.transaction():
        await call(db, end, **pair(held))
        outcomes = await note_all(other, [held, beside], [1, 2])

    assert outcomes == ["skipped", "noted"]
    assert await progress_of(db, held) is None


@pytest.mark.parametrize("end", ["complete_job", "fail_job", "cancel_job"])
async def test_the_last_one_is_kept_with_the_ended_job(
    db: Connection, end: str
) -> None:
    held = await running(db, max_attempts=1)
    await note(db, held, 0.9)
    if end == "cancel_job":
        await call(db, end, job_id=held["id"])
        await call(db, "fail_job", **pair(held))
    else:
        await call(db, end, **pair(held))

    assert await progress_of(db, held) == 0.9


async def test_it_stays_until_the_next_one_whatever_becomes_of_the_job(
    db: Connection,
) -> None:
    held = await running(db)
    await note(db, held, 1)
    await call(db, "release_jobs", **pairs(held))
    (held,) = await claim(db)
    await sweep(db, "1 hour")
    (held,) = await claim(db)
    await call(db, "fail_job", **pair(held), retryable=False)
    await call(db, "retry_job", job_id=held["id"])

    assert await progress_of(db, held) == 1


@pytest.mark.parametrize("function", ["set_progress", "set_progresses"])
async def test_one_that_is_too_large_is_refused_and_says_what_to_do(
    db: Connection, function: str
) -> None:
    held = await running(db)
    largest, too_large = "x" * 4094, "x" * 4095
    assert await note(db, held, largest) == "noted"

    with refused("PW003") as caught:
        if function == "set_progress":
            await note(db, held, too_large)
        else:
            await note_all(db, [held], [too_large])
    assert "4097 bytes" in str(caught.value)
    assert await progress_of(db, held) == largest


async def test_a_batch_wants_one_progress_a_job(db: Connection) -> None:
    held = await running(db)

    for progresses in ([], [1, 2]):
        with refused("PW003"):
            await note_all(db, [held], [*progresses])
    with refused("PW003"):
        await call(db, "set_progresses", **pairs(held), progresses=None)


async def test_who_watches_hears_of_it(connect: Connect, db: Connection) -> None:
    watcher = await connect()
    listener = await Listener.start(watcher, "job_progress")
    held = await running(db, kind="import")
    await note(db, held, {"share": 0.1})
    await call(watcher, "watch")
    await note(db, held, {"share": 0.2})

    event = {"id": held["id"], "queue": "default", "kind": "import"}
    assert await listener.events() == [{**event, "progress": {"share": 0.2}}]


@pytest.mark.parametrize("notify", [True, False])
async def test_a_queue_that_always_announces_needs_nobody_who_watches(
    connect: Connect, db: Connection, notify: bool
) -> None:
    await set_queue(db, status_events="always")
    listener = await Listener.start(await connect(), "job_progress")
    held = await running(db)
    if not notify:
        await db.execute("set pgwake.notify = off")
    await note(db, held, 1)

    assert len(await listener.events()) == notify


async def test_the_largest_event_that_there_can_be_is_sent(
    connect: Connect, db: Connection
) -> None:
    name = "\1" * 128  # six characters each in JSON
    await set_queue(db, name, status_events="always")
    listener = await Listener.start(await connect(), "job_progress")
    held = await running(db, kind=name, queue=name)
    largest = "x" * 4094

    assert await note(db, held, largest) == "noted"
    (event,) = await listener.events()
    assert (event["queue"], event["progress"]) == (name, largest)


@pytest.mark.own_database
async def test_a_thousand_notes_of_a_job_touch_no_index(db: Connection) -> None:
    await db.execute("alter table pgwake.jobs_live set (autovacuum_enabled=no)")
    held = await running(db)
    for n in range(1000):
        await note(db, held, n)
    await flush_statistics(db)

    updates = await db.fetchrow(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables"
        " where relname = 'jobs_live'"
    )
    assert updates is not None
    assert updates[0] - updates[1] < 20, updates  # the claim's, and a page that is full
