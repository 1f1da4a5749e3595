from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    insert,
    job,
    pair,
    refused,
    rows,
    running,
    set_clock,
)
from support.sql.plans import buffers


async def fail(db: Connection, message: str, at: str = "0", **columns: Any) -> Row:
    """Make a dead letter at that time; its row."""
    await set_clock(db, at)
    held = await running(db, **columns)
    arguments = {**pair(held), "error": message, "retryable": False}
    await call(db, "fail_job", **arguments)
    return await job(db, held["id"])


async def test_errors_of_one_cause_are_one_group(db: Connection) -> None:
    first = await fail(db, "no order 1", "1 minute")
    await fail(db, "no order 2", "2 minutes")
    last = await fail(db, "no order 3", "3 minutes")
    await fail(db, "something else", "90 seconds")

    groups = await rows(db, "list_failed")
    assert groups[0] == {
        "fingerprint": first["fingerprint"],
        "queue": "default",
        "kind": "noop",
        "reason": "failed",
        "message": "no order 3",
        "job_count": 3,
        "first_failed_at": first["finished_at"],
        "last_failed_at": last["finished_at"],
        "last_job_id": last["id"],
    }
    assert [group["job_count"] for group in groups] == [3, 1]


async def test_queues_and_kinds_are_groups_of_their_own(db: Connection) -> None:
    for queue in "ab":
        for kind in "cd":
            await fail(db, "boom", queue=queue, kind=kind)

    groups = await rows(db, "list_failed")
    assert {(g["queue"], g["kind"]) for g in groups} == {
        ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")
    }  # fmt: skip
    assert len(await rows(db, "list_failed", queue="a")) == 2
    assert len(await rows(db, "list_failed", kind="c")) == 2
    (group,) = await rows(db, "list_failed", queue="a", kind="c")
    same = await rows(db, "list_failed", fingerprint=group["fingerprint"])
    assert {(g["queue"], g["kind"]) for g in same} == {("a", "c"), ("b", "c")}


async def test_the_last_ones_come_first_and_as_many_as_asked_for(
    db: Connection,
) -> None:
    for number, word in enumerate(("first", "second", "third")):
        await fail(db, word, f"{number} minutes")

    groups = await rows(db, "list_failed", max_groups=2)
    assert [group["message"] for group in groups] == ["third", "second"]


@pytest.mark.parametrize(
    ("reason", "message"),
    [("crashed", "the worker died"), ("invalid", "bad payload"), ("timeout", "late")],
)
async def test_a_group_says_why(db: Connection, reason: str, message: str) -> None:
    held = await running(db)
    arguments = {"error": message, "reason": reason, "retryable": False}
    await call(db, "fail_job", **pair(held), **arguments)

    (group,) = await rows(db, "list_failed")
    assert (group["reason"], group["message"]) == (reason, message)


async def test_dead_letters_that_were_put_there_by_hand_are_listed_too(
    db: Connection,
) -> None:
    columns = {"status": "failed", "finished_at": (await job(
        db, await insert(db)))["created_at"]}  # fmt: skip
    last = [await insert(db, "restored", **columns) for _ in range(2)][-1]

    (group,) = await rows(db, "list_failed")
    assert (group["fingerprint"], group["message"]) == (None, None)
    assert (group["job_count"], group["last_job_id"]) == (2, last)


async def test_a_retried_job_is_no_dead_letter_any_more(db: Connection) -> None:
    dead = await fail(db, "boom")
    await call(db, "retry_job", job_id=dead["id"])

    assert await rows(db, "list_failed") == []


async def test_less_than_no_group_is_refused(db: Connection) -> None:
    with refused("PW003"):
        await rows(db, "list_failed", max_groups=-1)


@pytest.mark.own_database
async def test_it_reads_the_index_and_one_job_a_group(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, status, finished_at, fingerprint, errors)"
        " select 'k', 'failed', now() - n * interval '1 second', md5((n % 50)::text),"
        " jsonb_build_array(jsonb_build_object('message', repeat('x', 1500)))"
        " from generate_series(1, 20000) as n"
    )
    await db.execute("vacuum analyze pgwake.jobs_failed")
    pages, index_pages = [
        await db.fetchval("select pg_relation_size($1::regclass) / 8192", name)
        for name in ("pgwake.jobs_failed", "pgwake.jobs_failed_fingerprint_idx")
    ]

    touched = await buffers(db, "list_failed")
    assert touched < index_pages + 50 * 8 + 100 < pages
