"""Webhooks: a URL is told how a job has ended, by a job with retries of its own."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connection, wait_for
from support.sql.helpers import call, insert, running, set_queue
from support.worker.helpers import ended, in_status, reasons
from support.worker.processes import StartProcess
from support.worker.receiver import Posted, Receiver

SECRET = base64.b64encode(bytes(range(32))).decode()
HERE: dict[str, Any] = {"http_allow_private": "127.0.0.1"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serve() as receiver:
        yield receiver


def told(post: Posted) -> dict[str, Any]:
    """What a webhook says."""
    message: dict[str, Any] = json.loads(post.body)
    return message


async def webhook_jobs(connection: Connection) -> list[int]:
    """The ids of the webhooks, in order."""
    rows = await connection.fetch(
        "select id from pgwake.jobs where kind = 'pgwake.webhook' order by id"
    )
    return [row["id"] for row in rows]


async def test_a_completed_jobs_result_is_told_and_signed(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    await start_worker("--webhooks", signing_secret=SECRET, **HERE)
    job_id = await insert(
        connection,
        "echo",
        payload={"card": "4111"},
        metadata={"trace": "t1"},
        webhook=receiver.url + "/hook",
    )
    row = await ended(connection, job_id)
    (post,) = await receiver.has_posts()

    assert post.path == "/hook"
    message = told(post)
    data = message["data"]
    for name in ("finished_at", "created_at", "started_at"):
        assert datetime.fromisoformat(data.pop(name)) == row[name]
    assert datetime.fromisoformat(message["timestamp"]) == row["finished_at"]
    assert message["type"] == "job.completed"
    assert data == {
        "id": job_id,
        "queue": "default",
        "kind": "echo",
        "status": "completed",
        "attempt": 1,
        "metadata": {"trace": "t1"},
        "result": {"card": "4111"},
        "error": None,
    }
    (webhook_id,) = await webhook_jobs(connection)
    assert post.headers["webhook-id"] == str(webhook_id)
    signed = f"{webhook_id}.{post.headers['webhook-timestamp']}.".encode() + post.body
    digest = hmac.new(bytes(range(32)), signed, hashlib.sha256).digest()
    expected = f"v1,{base64.b64encode(digest).decode()}"
    assert post.headers["webhook-signature"] == expected
    assert (await ended(connection, webhook_id))["status"] == "completed"

    # What Python does not read is delivered, too.
    for number, result in enumerate(("1" * 5000, "[" * 2000 + "]" * 2000), 2):
        held = await running(
            connection, queue="aside", kind="x", webhook=receiver.url + "/hook"
        )
        await connection.execute(
            "select pgwake.complete_job($1, $2, $3::text::jsonb)",
            *(held["id"], held["lease_id"], result),
        )
        post = (await receiver.has_posts(number))[-1]
        assert f'"result": {result},'.encode() in post.body


async def test_a_dead_letters_last_error_is_told_without_its_traceback(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    await set_queue(connection, webhook=receiver.url)
    await start_worker("--webhooks", **HERE)
    job_id = await insert(
        connection, "fail", payload={"message": "no such user"}, max_attempts=1
    )
    await ended(connection, job_id)
    (post,) = await receiver.has_posts()

    assert told(post)["type"] == "job.failed"
    error = told(post)["data"]["error"]
    assert error["message"] == "ValueError: no such user"
    assert error["reason"] == "failed"
    assert "traceback" not in error


async def test_a_queue_is_worked_on_for_webhooks_beside_those_that_are_named(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    worker = await start_worker("--webhooks", "--queue", "other:1", imports="", **HERE)
    (line,) = worker.log("worker started")
    assert line["queues"] == "pgwake.webhooks:10,other:1"

    job_id = await insert(connection, webhook=receiver.url)
    await call(connection, "cancel_job", job_id=job_id)
    (post,) = await receiver.has_posts()
    assert told(post)["type"] == "job.cancelled"


async def test_a_webhook_is_tried_until_it_is_taken_with_one_id(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    await set_queue(connection, "pgwake.webhooks", backoff_base=timedelta(0))
    receiver.answer("/", 500, "not now")
    await start_worker("--webhooks", imports="", **HERE)
    job_id = await insert(connection, webhook=receiver.url)
    await call(connection, "cancel_job", job_id=job_id)
    await receiver.has_posts(2)
    receiver.answer("/", 204)

    (webhook_id,) = await webhook_jobs(connection)
    row = await ended(connection, webhook_id)
    assert row["status"] == "completed"
    assert row["attempt"] == len(receiver.posted)
    assert {p.headers["webhook-id"] for p in receiver.posted} == {str(webhook_id)}
    assert len({post.body for post in receiver.posted}) == 1


async def test_a_webhook_that_can_not_be_delivered_is_a_dead_letter(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    receiver.answer("/", 410, "gone")
    await start_worker("--webhooks", imports="", **HERE)
    for url in (receiver.url, f"{receiver.url}/\r\nX-Injected: 1"):
        job_id = await insert(connection, webhook=url)
        await call(connection, "cancel_job", job_id=job_id)
    for refused, message in zip(
        await webhook_jobs(connection),
        (f"{receiver.url}: HTTP 410: gone", ""),
        strict=True,
    ):
        row = await ended(connection, refused)
        assert reasons(row) == ["discarded"]
        assert row["errors"][0]["message"].startswith(message)
    assert len(receiver.posted) == 1  # a line break makes no header
    # Those that were made by hand say nothing.
    unsaid = {"url": "x", "id": "one", "queue": "q", "kind": "k", "status": "s"}
    by_hand: list[dict[str, Any]] = [{}, {"url": 1}, unsaid]
    for payload in by_hand:
        job_id = await insert(
            connection, "pgwake.webhook", queue="pgwake.webhooks", payload=payload
        )
        assert reasons(await ended(connection, job_id)) == ["invalid"]


async def test_a_webhook_never_reaches_the_inside_unless_it_is_allowed_to(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    # The operator's own endpoint may be there; producers gain nothing by that.
    await start_worker("--webhooks", "--http", f"mail={receiver.url}", imports="")
    mail = await insert(connection, "mail", webhook=f"{receiver.url}/hook")
    assert (await ended(connection, mail))["status"] == "completed"

    await wait_for(lambda: webhook_jobs(connection))
    (webhook_id,) = await webhook_jobs(connection)
    row = await ended(connection, webhook_id)
    assert reasons(row) == ["discarded"]
    assert "PGWAKE_HTTP_ALLOW_PRIVATE" in row["errors"][0]["message"]
    assert [post.path for post in receiver.posted] == ["/"]


async def test_of_a_job_that_has_changed_since_only_its_end_is_told(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    ends = {}
    for what in ("retried", "purged"):
        job_id = await insert(
            connection, what, payload={"secret": 1}, webhook=receiver.url
        )
        await call(connection, "force_fail_job", job_id=job_id, reason="by hand")
        ends[job_id] = what
    retried, purged = ends
    await call(connection, "retry_job", job_id=retried)
    await connection.execute("delete from pgwake.jobs where id = $1", purged)
    await start_worker("--webhooks", imports="", **HERE)
    posts = await receiver.has_posts(2)

    assert {told(post)["data"]["id"] for post in posts} == set(ends)
    for post in posts:
        assert told(post)["type"] == "job.failed"
        assert told(post)["data"].keys() == {
            "id",
            "queue",
            "kind",
            "status",
            "finished_at",
        }


async def test_without_the_flag_webhooks_wait(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    await start_worker("--queue", "default", **HERE)
    job_id = await insert(connection, "noop", webhook=receiver.url)
    await ended(connection, job_id)
    (webhook_id,) = await webhook_jobs(connection)
    await ended(connection, await insert(connection, "noop"))

    await in_status(connection, webhook_id, "pending")
    assert receiver.posted == []
