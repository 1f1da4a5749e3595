"""Each language's consumer and producer, alone with the database."""

import json
from pathlib import Path

import pytest

from clients.clients import ALONE, LANGUAGES, POLLING, Clients
from support import PATIENCE, Connection, wait_for
from support.sql.helpers import call, insert, job
from support.worker.helpers import all_ended

NOTE_EXTENSIONS = """
create table extensions (job_id bigint);
create function note_extension() returns trigger language plpgsql security definer as $$
begin insert into public.extensions values (new.id); return null; end $$;
create trigger note_extension after update of lease_expires_at on pgwake.jobs_live
  for each row when (old.lease_expires_at < new.lease_expires_at)
  execute function note_extension();
"""

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
async def test_a_job_longer_than_its_lease_is_kept_and_ended_before_the_consumer_stops(
    connection: Connection, database: str, binaries: Path, language: str
) -> None:
    clients = Clients(database, binaries)
    await connection.execute(NOTE_EXTENSIONS)

    async with clients.consuming(language, lease=1) as consumer:  # nobody sweeps
        if language not in POLLING:
            await wait_for(lambda: is_on_duty(connection), PATIENCE)
        payload = echo_of(1, seconds=2)
        kept = await insert(connection, kind="conformance.echo", payload=payload)
        await wait_for(lambda: is_running(connection, kept), PATIENCE)
        left = await insert(connection, kind="conformance.echo", payload=payload)

        assert await consumer.stop() == 0
        end = "released" if language in ALONE else "completed"
        await consumer.printed(f"{kept} conformance.echo {end}")

    row = await job(connection, kept)
    extensions = await connection.fetchval("select count(*) from extensions")
    if language in ALONE:
        assert (row["status"], row["attempt"], extensions) == ("pending", 0, 0)
    else:
        assert (row["status"], row["attempt"], extensions > 0) == ("completed", 1, True)
        assert row["claimed_by"].startswith(f"{language}-")
    assert (await job(connection, left))["status"] == "pending"
    assert not await is_on_duty(connection)


@every_language
async def test_a_job_taken_away_or_cancelled_meanwhile_ends_as_the_server_says(
    connection: Connection, database: str, binaries: Path, language: str
) -> None:
    clients = Clients(database, binaries)

    async def start(kind: str, seconds: float = 1.5) -> int:
        payload = echo_of(1, seconds)
        job_id = await insert(connection, kind=f"conformance.{kind}", payload=payload)
        await wait_for(lambda: is_running(connection, job_id), PATIENCE)
        return job_id

    async with clients.consuming(language) as consumer:
        taken = await start("echo")
        await connection.execute(
            "update pgwake.jobs_live set lease_id = gen_random_uuid() where id = $1",
            taken,
        )
        await consumer.printed(f"{taken} conformance.echo lost")
        failed = await start("fail")
        assert await call(connection, "cancel_job", job_id=failed) == "cancel_requested"
        await consumer.printed(f"{failed} conformance.fail cancelled")


async def test_a_job_with_steps_goes_on_in_the_next_consumer(
    connection: Connection, database: str, binaries: Path
) -> None:
    clients = Clients(database, binaries)
    await connection.execute("create table parcels (number int)")
    payload = json.dumps({"number": 42})
    job_id = await insert(connection, kind="conformance.order", payload=payload)
    line = f"{job_id} conformance.order"

    async with clients.consuming("node") as consumer:  # killed while the job waits
        await consumer.printed(f"{line} waits")
        assert f"charged {job_id}:charge" in consumer.lines
    await call(connection, "emit_event", name="order:42:approved", payload='{"by": 1}')
    async with clients.consuming("node") as consumer:
        await consumer.printed(f"{line} sleeps")
        await consumer.printed(f"{line} completed")
        assert consumer.lines == ["ready", f"{line} sleeps", f"{line} completed"]

    result = json.loads((await job(connection, job_id))["result"])
    assert result == {"receipt": f"{job_id}:charge", "by": 1}
    assert await connection.fetchval("select array_agg(number) from parcels") == [42]


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
