"""Each language's consumer and producer, alone with the database."""

import json
from pathlib import Path

import pytest

from conformance.clients import LANGUAGES, POLLING, Clients
from sql.helpers import call, insert, job
from support import Connection, wait_for
from worker.helpers import all_ended

every_language = pytest.mark.parametrize("language", LANGUAGES)


@every_language
async def test_a_producer_inserts_in_its_own_transactions(
    connection: Connection, database: str, binaries: Path, language: str
) -> None:
    clients = Clients(database, binaries)

    first = await clients.run(language, "producer", "25", QUEUE="theirs")
    again = await clients.run(language, "producer", "25", QUEUE="theirs")

    assert first == (0, ["refused 23514", "inserted 25"])
    assert again == (0, ["refused 23514", "inserted 0"])
    rows = await connection.fetch(
        "select queue, kind, payload ->> 'number' as number, metadata ->> 'from' as by,"
        " unique_key from pgwake.jobs order by (payload ->> 'number')::int"
    )
    assert [tuple(row) for row in rows] == [
        ("theirs", "conformance.echo", str(n), language, f"{language}-{n}")
        for n in range(25)
    ]


@every_language
async def test_a_consumer_ends_each_job_as_it_should(
    connection: Connection, database: str, binaries: Path, language: str
) -> None:
    clients = Clients(database, binaries)
    echo = await insert(connection, kind="conformance.echo", payload=echo_of(1))
    once = await insert(connection, kind="conformance.fail_once", payload=echo_of(2))
    never = await insert(connection, kind="conformance.fail")
    strange = await insert(connection, kind="strange", max_attempts=1)

    async with clients.consuming(language) as consumer:
        await all_ended(connection)

        await consumer.printed(f"{echo} conformance.echo completed")
        await consumer.printed(f"{once} conformance.fail_once retry")
        await consumer.printed(f"{once} conformance.fail_once completed")
        await consumer.printed(f"{never} conformance.fail failed")
        await consumer.printed(f"{strange} strange failed")

        # It goes on when its sessions are ended under it.
        await connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        later = await insert(connection, kind="conformance.echo", payload=echo_of(3))
        await consumer.printed(f"{later} conformance.echo completed")

    rows = {n: await job(connection, n) for n in (echo, once, never, strange)}
    assert json.loads(rows[echo]["result"]) == {"number": 1, "by": language}
    assert json.loads(rows[once]["result"]) == {"number": 2, "by": language}
    assert [
        (
            row["status"],
            row["attempt"],
            [e["message"] for e in json.loads(row["errors"] or "[]")],
        )
        for row in rows.values()
    ] == [
        ("completed", 1, []),
        ("completed", 2, ["not yet"]),
        ("failed", 1, ["never"]),
        ("failed", 1, ["unknown kind strange"]),
    ]


@every_language
async def test_a_long_job_is_kept_stopped_and_given_back(
    connection: Connection, database: str, binaries: Path, language: str
) -> None:
    clients = Clients(database, binaries)

    async with clients.consuming(language, lease=1) as consumer:  # nobody sweeps
        if language not in POLLING:
            await wait_for(lambda: is_on_duty(connection), 10)
        payload = echo_of(1, seconds=60)
        first = await insert(connection, kind="conformance.echo", payload=payload)
        await wait_for(lambda: is_running(connection, first), 10)
        assert await call(connection, "cancel_job", job_id=first) == "cancel_requested"
        await consumer.printed(f"{first} conformance.echo cancelled")

        second = await insert(connection, kind="conformance.echo", payload=payload)
        await wait_for(lambda: is_running(connection, second), 10)
        began = await job(connection, second)

        async def is_extended() -> bool:
            row = await job(connection, second)
            return bool(row["lease_expires_at"] > began["lease_expires_at"])

        await wait_for(is_extended, 10)
        assert began["claimed_by"].startswith(f"{language}-")
        assert await consumer.stop() == 0
        await consumer.printed(f"{second} conformance.echo released")

    row = await job(connection, second)
    assert (row["status"], row["attempt"]) == ("pending", 0)
    assert not await is_on_duty(connection)


async def is_on_duty(connection: Connection) -> bool:
    """Whether somebody else is on duty for the queue."""
    if await call(connection, "park"):
        await call(connection, "unpark")
        return False
    return True


async def is_running(connection: Connection, job_id: int) -> bool:
    """Whether somebody has claimed the job."""
    return bool((await job(connection, job_id))["status"] == "running")


def echo_of(number: int, seconds: float = 0) -> str:
    """The payload of a job that echoes a number."""
    return json.dumps({"number": number, "seconds": seconds})
