"""A user's own row triggers on the leaves that jobs end in."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    call,
    claim,
    insert,
    insert_many,
    job,
    job_in,
    pair,
    pairs,
    refused,
    rolled_back,
    rows,
    running,
    set_clock,
    status,
    sweep,
)

SESSIONS = """
create table public.sessions (
  id bigint primary key, state text not null default 'open', xid xid8);
create function public.end_session() returns trigger language plpgsql
set search_path = public as $$
begin
  update sessions set state = new.status, xid = pg_current_xact_id()
  where id = (new.payload ->> 'session')::bigint;
  return null;
end $$;
create trigger end_session after insert on pgwake.jobs_failed
for each row when (new.payload ? 'session') execute function public.end_session();
create trigger end_session after insert on pgwake.jobs_finished
for each row when (new.payload ? 'session') execute function public.end_session();
insert into public.sessions values (7);
"""

REFUSE = """
create function public.refuse() returns trigger language plpgsql
set search_path = public as $$
begin raise exception 'not now, %', new.kind; end $$;
create trigger refuse after insert on pgwake.jobs_{leaf}
for each row when (new.kind = 'bad') execute function public.refuse();
"""

PAYLOAD = {"payload": {"session": 7}}

End: TypeAlias = Callable[[Connection], Awaitable[Any]]


async def complete(connection: Connection) -> None:
    await call(connection, "complete_job", **pair(await running(connection, **PAYLOAD)))


async def complete_many(connection: Connection) -> None:
    held = await running(connection, **PAYLOAD)
    await call(connection, "complete_jobs", **pairs(held))


async def fail(connection: Connection) -> None:
    held = await running(connection, max_attempts=1, **PAYLOAD)
    await call(connection, "fail_job", **pair(held))


async def discard(connection: Connection) -> None:
    held = await running(connection, **PAYLOAD)
    await call(connection, "fail_jobs", **pairs(held), retryables=[False])


async def crash(connection: Connection) -> None:
    await running(connection, crash_count=4, **PAYLOAD)
    assert await sweep(connection, "1 hour") == 1


async def die(connection: Connection) -> None:
    await running(connection, crash_count=4, **PAYLOAD)
    await rows(connection, "release_worker_jobs", worker="w1")


async def cancel(connection: Connection) -> None:
    await call(
        connection, "cancel_job", job_id=await job_in(connection, "pending", **PAYLOAD)
    )


async def cancel_many(connection: Connection) -> None:
    await insert(connection, "a", **PAYLOAD)
    await rows(connection, "cancel_jobs", kind="a")


async def honour_a_cancellation(connection: Connection) -> None:
    held = await running(connection, **PAYLOAD)
    await call(connection, "cancel_job", job_id=held["id"])
    await call(connection, "release_jobs", **pairs(held))


async def force(connection: Connection) -> None:
    job_id = await insert(connection, **PAYLOAD)
    await call(connection, "force_fail_job", job_id=job_id, reason="it hangs")


ENDS: dict[str, tuple[End, str]] = {
    "complete_job": (complete, "completed"),
    "complete_jobs": (complete_many, "completed"),
    "fail_job": (fail, "failed"),
    "fail_jobs, not retryable": (discard, "failed"),
    "sweep": (crash, "failed"),
    "release_worker_jobs": (die, "failed"),
    "cancel_job": (cancel, "cancelled"),
    "cancel_jobs": (cancel_many, "cancelled"),
    "a cancellation honoured": (honour_a_cancellation, "cancelled"),
    "force_fail_job": (force, "failed"),
}


@pytest.mark.parametrize(("end", "state"), ENDS.values(), ids=ENDS)
async def test_a_hook_is_part_of_the_transaction_of_the_end(
    connection: Connection, end: End, state: str
) -> None:
    await connection.execute(SESSIONS)
    look = "select state, xid = pg_current_xact_id() from sessions"
    async with rolled_back(connection):
        await end(connection)
        assert tuple(await connection.fetchrow(look) or ()) == (state, True)
        assert await connection.fetchval("select status from pgwake.jobs") == state

    assert await connection.fetchval("select state from sessions") == "open"
    assert await connection.fetchval("select count(*) from pgwake.jobs") == 0


async def test_a_retry_is_no_end(connection: Connection) -> None:
    await connection.execute(SESSIONS)
    held = await running(connection, **PAYLOAD)
    assert await call(connection, "fail_job", **pair(held)) == "retry"
    assert await connection.fetchval("select state from sessions") == "open"


async def test_a_hook_without_a_search_path_of_its_own_finds_nothing(
    connection: Connection,
) -> None:
    await connection.execute(SESSIONS)
    await connection.execute(
        "alter function public.end_session() reset search_path;set search_path = public"
    )
    held = await running(connection, **PAYLOAD)
    with refused("42P01"):
        await call(connection, "complete_job", **pair(held))
    assert await status(connection, held["id"]) == "running"


@pytest.mark.parametrize(
    ("function", "leaf"), [("complete_jobs", "finished"), ("fail_jobs", "failed")]
)
async def test_a_hook_that_raises_refuses_the_whole_batch(
    connection: Connection, function: str, leaf: str
) -> None:
    await connection.execute(REFUSE.format(leaf=leaf))
    await insert(connection, "good", max_attempts=1)
    await insert(connection, "bad", max_attempts=1)
    held = await claim(connection, 2)
    with refused("P0001") as caught:
        await call(connection, function, **pairs(*held))
    assert str(caught.value) == "not now, bad"
    assert {row["kind"] for row in await claim_states(connection)} == {"good", "bad"}

    (outcome,) = await call(connection, function, **pairs(held[0]))
    assert outcome in ("completed", "failed")


async def claim_states(connection: Connection) -> list[Any]:
    return await connection.fetch(
        "select kind from pgwake.jobs where status = 'running'"
    )


async def test_a_refused_job_is_put_off_for_longer_and_longer_and_says_why(
    connection: Connection,
) -> None:
    held = await running(connection, max_attempts=1)
    outcome = await call(
        connection,
        "release_jobs",
        **pairs(held),
        reason="refused",
        errors=["not now"],
    )
    assert outcome == ["released"]
    row = await job(connection, held["id"])
    assert (row["status"], row["attempt"], row["bounce_count"]) == ("pending", 0, 1)
    assert (row["run_at"] - row["created_at"]).total_seconds() >= 1
    (error,) = row["errors"]
    assert (error["reason"], error["message"]) == ("refused", "not now")
    assert (error["attempt"], error["worker"]) == (1, "w1")

    for bounces in (2, 3):
        await set_clock(connection, f"{bounces} hours")
        (held,) = await claim(connection)
        at = await connection.fetchval("select pgwake.now()")
        await call(connection, "release_jobs", **pairs(held), reason="refused")
        row = await job(connection, held["id"])
        seconds = (row["run_at"] - at).total_seconds()
        assert 2 ** (bounces - 1) <= seconds < 2 ** (bounces - 1) + 0.5
        assert len(row["errors"]) == 1


async def test_errors_are_one_a_job(connection: Connection) -> None:
    held = await running(connection)
    with refused("PW003"):
        await call(
            connection, "release_jobs", **pairs(held), reason="refused", errors=[]
        )


async def test_a_sweep_gets_past_more_refused_jobs_than_it_takes_at_once(
    connection: Connection,
) -> None:
    await connection.execute(REFUSE.format(leaf="failed"))
    for kind in ("bad", "bad", "bad", "good", "good"):
        await insert(connection, kind, crash_count=4)
    for _ in range(5):
        await rows(connection, "claim_next_job", worker="w1")
    await set_clock(connection, "1 hour")

    (swept,) = await rows(connection, "sweep_expired_leases", max_jobs=2)
    assert (swept["kind"], swept["job_count"]) == ("good", 2)
    assert await rows(connection, "sweep_expired_leases", max_jobs=2) == []
    await connection.execute("drop trigger refuse on pgwake.jobs_failed")
    (swept,) = await rows(connection, "sweep_expired_leases")
    assert (swept["kind"], swept["job_count"]) == ("bad", 3)


async def test_a_sweep_that_left_many_is_not_repeated_at_once(
    connect: Connect, connection: Connection
) -> None:
    await connection.execute(REFUSE.format(leaf="failed"))
    await connection.execute(
        "insert into pgwake.jobs (kind) select 'bad' from generate_series(1, 101)"
    )
    await claim(connection, 101, worker="w1")
    await connection.execute("update pgwake.jobs_live set crash_count = 4")
    await insert(connection, "good")
    await claim(connection, worker="w2")
    assert await sweep(connection, "1 hour") == 1

    await insert(connection, "good")
    await claim(connection, worker="w2")
    assert await sweep(connection, "2 hours") == 0
    assert await sweep(await connect(), "2 hours") == 1


async def test_a_dead_workers_other_jobs_are_given_back(connection: Connection) -> None:
    await connection.execute(REFUSE.format(leaf="failed"))
    bad = await insert(connection, "bad", crash_count=4)
    await rows(connection, "claim_next_job", worker="w1")
    await insert_many(connection, 3)
    await claim(connection, 3, worker="w1")

    (given,) = await rows(connection, "release_worker_jobs", worker="w1")
    assert (given["kind"], given["job_count"]) == ("noop", 3)
    assert await status(connection, bad) == "running"
