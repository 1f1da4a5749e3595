"""Webhooks: a job for each end of a job that has one, in the same transaction."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    call,
    claim,
    insert,
    job,
    pair,
    pairs,
    rolled_back,
    rows,
    running,
    set_clock,
    set_queue,
    status,
)
from support.sql.plans import Explained, nodes

OWN = "https://own.example/hook"
QUEUES = "https://queue.example/hook"


async def webhooks(db: Connection) -> list[dict[str, Any]]:
    """The payloads of the webhooks, in order."""
    found = await db.fetch(
        "select payload from pgwake.jobs where kind = 'pgwake.webhook'"
        " and queue = 'pgwake.webhooks' and status = 'pending' order by id"
    )
    return [row["payload"] for row in found]


async def test_a_completed_job_sends_its_webhook(db: Connection) -> None:
    held = await running(db, kind="mail", webhook=OWN)
    assert await webhooks(db) == []
    await call(db, "complete_job", **pair(held), result={"long": True})

    (sent,) = await webhooks(db)
    finished_at = datetime.fromisoformat(sent.pop("finished_at"))
    assert finished_at == (await job(db, held["id"]))["finished_at"]
    assert sent == {
        "url": OWN,
        "id": held["id"],
        "queue": "default",
        "kind": "mail",
        "status": "completed",
    }


async def test_each_job_of_a_batch_sends_its_own(db: Connection) -> None:
    for webhook in (OWN, None, QUEUES):
        await insert(db, webhook=webhook)
    held = await claim(db, 3)
    await call(db, "complete_jobs", **pairs(*held))

    sent = await webhooks(db)
    assert [(s["id"], s["url"]) for s in sent] == [
        (held[0]["id"], OWN),
        (held[2]["id"], QUEUES),
    ]


async def test_a_dead_letter_sends_its_webhook_and_a_retry_does_not(
    db: Connection,
) -> None:
    await set_queue(db, backoff_base=timedelta(0))
    held = await running(db, webhook=OWN, max_attempts=2)
    assert await call(db, "fail_job", **pair(held)) == "retry"
    assert await webhooks(db) == []
    await set_clock(db, "1 minute")
    (held,) = await claim(db)
    assert await call(db, "fail_job", **pair(held)) == "failed"

    assert [s["status"] for s in await webhooks(db)] == ["failed"]


@pytest.mark.parametrize("state", ["pending", "waiting", "running"])
async def test_a_cancelled_job_sends_its_webhook(db: Connection, state: str) -> None:
    if state == "running":
        held = await running(db, webhook=OWN)
        await call(db, "cancel_job", job_id=held["id"])
        assert await webhooks(db) == []  # it has not ended
        await call(db, "fail_job", **pair(held))
    else:
        job_id = await insert(db, status=state, webhook=OWN)
        await call(db, "cancel_job", job_id=job_id)
    assert [s["status"] for s in await webhooks(db)] == ["cancelled"]


async def test_jobs_that_are_cancelled_together_send_their_webhooks(
    db: Connection,
) -> None:
    own = await insert(db, webhook=OWN)
    plain = await insert(db)
    await set_queue(db, "other", webhook=QUEUES)
    queues = await insert(db, queue="other")
    await rows(db, "cancel_jobs", kind="noop")

    assert await status(db, plain) == "cancelled"
    sent = await webhooks(db)
    assert {(s["id"], s["url"], s["status"]) for s in sent} == {
        (own, OWN, "cancelled"),
        (queues, QUEUES, "cancelled"),
    }


async def test_the_jobs_own_comes_before_its_queues(db: Connection) -> None:
    await set_queue(db, webhook=QUEUES)
    for webhook in (None, OWN):
        held = await running(db, webhook=webhook)
        await call(db, "complete_job", **pair(held))
    assert [s["url"] for s in await webhooks(db)] == [QUEUES, OWN]


async def test_enqueue_takes_a_webhook(db: Connection) -> None:
    job_id = await call(db, "enqueue", kind="noop", webhook=OWN)
    await call(db, "cancel_job", job_id=job_id)
    assert [s["url"] for s in await webhooks(db)] == [OWN]


async def test_a_forced_end_and_a_crash_too_many_send_webhooks(db: Connection) -> None:
    job_id = await insert(db, webhook=OWN)
    await call(db, "force_fail_job", job_id=job_id, reason="by hand")
    await insert(db, webhook=OWN, crash_count=4)
    await rows(db, "claim_next_job", queue="default", worker="w1")
    await set_clock(db, "1 hour")
    await call(db, "maintain", step="sweep")

    assert [s["status"] for s in await webhooks(db)] == ["failed", "failed"]


async def test_webhooks_have_no_webhooks(db: Connection) -> None:
    await set_queue(db, "pgwake.webhooks", webhook=QUEUES)
    job_id = await insert(db, "pgwake.webhook", queue="pgwake.webhooks", webhook=OWN)
    await call(db, "cancel_job", job_id=job_id)
    assert await webhooks(db) == []


async def test_an_end_that_is_repeated_sends_one(db: Connection) -> None:
    held = await running(db, webhook=OWN)
    for _ in range(2):
        await call(db, "complete_jobs", **pairs(held))
    assert len(await webhooks(db)) == 1


async def test_each_end_of_a_job_that_was_retried_sends_one(db: Connection) -> None:
    held = await running(db, webhook=OWN)
    await call(db, "fail_job", **pair(held), retryable=False)
    await call(db, "retry_job", job_id=held["id"])
    (held,) = await claim(db)
    await call(db, "complete_job", **pair(held))

    sent = await webhooks(db)
    assert [s["status"] for s in sent] == ["failed", "completed"]


async def test_an_end_that_is_rolled_back_sends_none(db: Connection) -> None:
    held = await running(db, webhook=OWN)
    async with rolled_back(db):
        await call(db, "complete_job", **pair(held))
    assert await webhooks(db) == []


async def test_an_end_whose_lease_is_lost_sends_none(db: Connection) -> None:
    held = await running(db, webhook=OWN)
    stale = {**held, "lease_id": "00000000-0000-0000-0000-000000000001"}
    await call(db, "complete_jobs", **pairs(stale))
    assert await webhooks(db) == []


async def test_a_job_without_a_webhook_costs_one_look_at_the_queues_that_have_one(
    admin_url: str, connect: Connect
) -> None:
    db = await connect(admin_url)
    await db.execute(
        "insert into pgwake.queues (name)"
        " select n::text from generate_series(1, 5000) as n"
    )
    held = await running(db)
    explained = await Explained.start(db)
    statements = await explained.run(
        f"select pgwake.complete_jobs('{{{held['id']}}}', '{{{held['lease_id']}}}')"
    )

    assert not [s for s in statements if "pgwake.webhook" in s.text]
    (ends,) = [s for s in statements if "delete from pgwake.jobs_live" in s.text]
    looks = [node for node in nodes(ends.plan) if node.get("Alias", "")[:1] == "q"]
    assert {node["Index Name"] for node in looks} == {"queues_ends_idx"}
    assert sum(node["Shared Hit Blocks"] for node in looks) <= 4


async def test_webhooks_are_found_by_primary_keys_in_the_leaf_of_the_day(
    admin_url: str, connect: Connect
) -> None:
    db = await connect(admin_url)
    held = await running(db, webhook=OWN)
    explained = await Explained.start(db)
    statements = await explained.run(
        f"select pgwake.complete_jobs('{{{held['id']}}}', '{{{held['lease_id']}}}')"
    )

    (sends,) = [s for s in statements if "'pgwake.webhook'" in s.text]
    scans = list(sends.scans())
    assert {index for _, index in scans} == {f"{table}_pkey" for table, _ in scans}
    assert len(scans) == 2  # of dead letters, and of one leaf
