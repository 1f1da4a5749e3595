"""A user's own row triggers on the leaves that jobs end in."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    call,
    child,
    claim,
    insert,
    insert_many,
    job,
    job_in,
    leaf,
    pair,
    pairs,
    put_off_sweep,
    refused,
    rolled_back,
    rows,
    running,
    set_clock,
    set_queue,
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

# As REFUSE, but what it writes is refused at the commit, as by foreign keys of Django.
DEFER = """
create table public.parents (name text primary key);
insert into public.parents values ('good');
create table public.notes (
  name text references public.parents deferrable initially deferred);
create function public.note() returns trigger language plpgsql
set search_path = public as $$
begin insert into notes values (new.kind); return null; end $$;
create trigger note after insert on pgwake.jobs_{leaf}
for each row execute function public.note();
"""

PAYLOAD = {"payload": {"session": 7}}

End: TypeAlias = Callable[[Connection], Awaitable[Any]]


async def complete(db: Connection) -> None:
    await call(db, "complete_job", **pair(await running(db, **PAYLOAD)))


async def complete_many(db: Connection) -> None:
    held = await running(db, **PAYLOAD)
    await call(db, "complete_jobs", **pairs(held))


async def fail(db: Connection) -> None:
    held = await running(db, max_attempts=1, **PAYLOAD)
    await call(db, "fail_job", **pair(held))


async def discard(db: Connection) -> None:
    held = await running(db, **PAYLOAD)
    await call(db, "fail_jobs", **pairs(held), retryables=[False])


async def crash(db: Connection) -> None:
    await running(db, crash_count=4, **PAYLOAD)
    assert await sweep(db, "1 hour") == 1


async def die(db: Connection) -> None:
    await running(db, crash_count=4, **PAYLOAD)
    await rows(db, "release_worker_jobs", worker="w1")


async def cancel(db: Connection) -> None:
    await call(db, "cancel_job", job_id=await job_in(db, "pending", **PAYLOAD))


async def cancel_many(db: Connection) -> None:
    await insert(db, "a", **PAYLOAD)
    await rows(db, "cancel_jobs", kind="a")


async def honour_a_cancellation(db: Connection) -> None:
    held = await running(db, **PAYLOAD)
    await call(db, "cancel_job", job_id=held["id"])
    await call(db, "release_jobs", **pairs(held))


async def force(db: Connection) -> None:
    job_id = await insert(db, **PAYLOAD)
    await call(db, "force_fail_job", job_id=job_id, reason="it hangs")


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
    db: Connection, end: End, state: str
) -> None:
    await db.execute(SESSIONS)
    look = "select state, xid = pg_current_xact_id() from sessions"
    async with rolled_back(db):
        await end(db)
        assert tuple(await db.fetchrow(look) or ()) == (state, True)
        assert await db.fetchval("select status from pgwake.jobs") == state

    assert await db.fetchval("select state from sessions") == "open"
    assert await db.fetchval("select count(*) from pgwake.jobs") == 0


async def test_a_retry_is_no_end(db: Connection) -> None:
    await db.execute(SESSIONS)
    held = await running(db, **PAYLOAD)
    assert await call(db, "fail_job", **pair(held)) == "retry"
    assert await db.fetchval("select state from sessions") == "open"


async def test_a_hook_without_a_search_path_of_its_own_finds_nothing(
    db: Connection,
) -> None:
    await db.execute(SESSIONS)
    await db.execute(
        "alter function public.end_session() reset search_path;set search_path = public"
    )
    held = await running(db, **PAYLOAD)
    with refused("42P01"):
        await call(db, "complete_job", **pair(held))
    assert await status(db, held["id"]) == "running"


@pytest.mark.parametrize(
    ("function", "leaf"), [("complete_jobs", "finished"), ("fail_jobs", "failed")]
)
async def test_a_hook_that_raises_refuses_the_whole_batch(
    db: Connection, function: str, leaf: str
) -> None:
    await db.execute(REFUSE.format(leaf=leaf))
    await insert(db, "good", max_attempts=1)
    await insert(db, "bad", max_attempts=1)
    held = await claim(db, 2)
    with refused("P0001") as caught:
        await call(db, function, **pairs(*held))
    assert str(caught.value) == "not now, bad"
    assert {row["kind"] for row in await claim_states(db)} == {"good", "bad"}

    (outcome,) = await call(db, function, **pairs(held[0]))
    assert outcome in ("completed", "failed")


async def claim_states(db: Connection) -> list[Any]:
    return await db.fetch("select kind from pgwake.jobs where status = 'running'")


async def test_a_refused_job_is_put_off_for_longer_and_longer_and_says_why(
    db: Connection,
) -> None:
    held = await running(db, max_attempts=1)
    outcome = await call(
        db, "release_jobs", **pairs(held), reason="refused", errors=["not now"]
    )
    assert outcome == ["released"]
    row = await job(db, held["id"])
    assert (row["status"], row["attempt"], row["bounce_count"]) == ("pending", 0, 1)
    assert (row["run_at"] - row["created_at"]).total_seconds() >= 1
    (error,) = row["errors"]
    assert (error["reason"], error["message"]) == ("refused", "not now")
    assert (error["attempt"], error["worker"]) == (1, "w1")

    for bounces in (2, 3):
        await set_clock(db, f"{bounces} hours")
        (held,) = await claim(db)
        at = await db.fetchval("select pgwake.now()")
        await call(db, "release_jobs", **pairs(held), reason="refused")
        row = await job(db, held["id"])
        seconds = (row["run_at"] - at).total_seconds()
        assert 2 ** (bounces - 1) <= seconds < 2**bounces
        assert len(row["errors"]) == 1


async def test_errors_are_one_a_job(db: Connection) -> None:
    held = await running(db)
    with refused("PW003"):
        await call(db, "release_jobs", **pairs(held), reason="refused", errors=[])


async def test_a_sweep_gets_past_more_refused_jobs_than_it_takes_at_once(
    db: Connection,
) -> None:
    await db.execute(REFUSE.format(leaf="failed"))
    for kind in ("bad", "bad", "bad", "good", "good"):
        await insert(db, kind, crash_count=4)
    for _ in range(5):
        await rows(db, "claim_next_job", worker="w1")
    await set_clock(db, "1 hour")

    (swept,) = await rows(db, "sweep_expired_leases", max_jobs=2)
    assert (swept["kind"], swept["job_count"]) == ("good", 2)
    assert await rows(db, "sweep_expired_leases", max_jobs=2) == []
    await db.execute("drop trigger refuse on pgwake.jobs_failed")
    (swept,) = await rows(db, "sweep_expired_leases")
    assert (swept["kind"], swept["job_count"]) == ("bad", 3)


async def test_a_sweep_that_left_many_is_not_repeated_at_once(
    connect: Connect, db: Connection
) -> None:
    await db.execute(REFUSE.format(leaf="failed"))
    await db.execute(
        "insert into pgwake.jobs (kind) select 'bad' from generate_series(1, 101)"
    )
    await claim(db, 101, worker="w1")
    await db.execute("update pgwake.jobs_live set crash_count = 4")
    await insert(db, "good")
    await claim(db, worker="w2")
    assert await sweep(db, "1 hour") == 1
    await put_off_sweep(db)

    await insert(db, "good")
    await claim(db, worker="w2")
    assert await sweep(db, "2 hours") == 0
    assert await sweep(await connect(), "2 hours") == 1


async def test_a_dead_workers_other_jobs_are_given_back(db: Connection) -> None:
    await db.execute(REFUSE.format(leaf="failed"))
    bad = await insert(db, "bad", crash_count=4)
    await rows(db, "claim_next_job", worker="w1")
    await insert_many(db, 3)
    await claim(db, 3, worker="w1")

    (given,) = await rows(db, "release_worker_jobs", worker="w1")
    assert (given["kind"], given["job_count"]) == ("noop", 3)
    assert await status(db, bad) == "running"


@pytest.mark.parametrize("way", ["sweep", "release_worker_jobs"])
async def test_a_refusal_at_the_commit_leaves_one_job_and_stops_no_other(
    db: Connection, way: str
) -> None:
    await db.execute(DEFER.format(leaf="failed"))
    bad = await insert(db, "bad", crash_count=4)
    for _ in range(3):
        await insert(db, "good", crash_count=4)
    for _ in range(4):
        await rows(db, "claim_next_job", worker="w1")
    if way == "sweep":
        assert await sweep(db, "1 hour") == 3
    else:
        (given,) = await rows(db, way, worker="w1")
        assert (given["kind"], given["failed_count"]) == ("good", 3)
    assert await status(db, bad) == "running"
    assert await db.fetchval("select count(*) from public.notes") == 3


async def test_a_cancelled_child_that_is_refused_at_the_commit_stops_no_claim(
    db: Connection,
) -> None:
    await db.execute(DEFER.format(leaf="finished"))
    parent = await running(db, kind="good")
    bad = await child(db, parent["id"], kind="bad")
    await child(db, parent["id"], kind="good")
    await insert(db, "good")
    await call(db, "fail_job", **pair(parent), retryable=False)

    assert len(await claim(db, 9)) == 1
    assert await status(db, bad) == "waiting"
    assert await db.fetchval("select count(*) from public.notes") == 1


KEEP = """
create function public.keep() returns trigger language plpgsql as
$$ begin raise exception 'it is kept'; end $$;
create trigger keep before delete on pgwake.jobs_{leaf}
for each row when (old.kind = 'bad') execute function public.keep();
"""


@pytest.mark.parametrize("way", ["retention", "purge"])
@pytest.mark.parametrize(
    ("state", "where"), [("failed", "failed"), ("completed", "finished")]
)
async def test_a_row_that_may_not_be_deleted_is_left_and_stops_no_other(
    db: Connection, way: str, state: str, where: str
) -> None:
    # Of another queue: so that no leaf is truncated, which calls no hook.
    await set_queue(db, "other", retention_completed=timedelta(days=30))
    await set_queue(db, retention_failed=timedelta(days=7))
    await db.execute(KEEP.format(leaf=where))
    ids = [
        await job_in(db, state, kind=kind) for kind in ["good", "bad", "good", "good"]
    ]
    await set_clock(db, "8 days")
    if way == "retention":
        assert await call(db, "maintain", step="retention") == {"retention": 3}
    else:
        assert await call(db, "purge", status=state, queue="default") == 3
    left = await db.fetch("select id from pgwake.jobs")
    assert [job_id for (job_id,) in left] == [ids[1]]
    (stats,) = await rows(db, "get_queue_stats", queue="default")
    assert stats[f"{state}_count"] == 1


async def test_jobs_that_a_table_refers_to_are_left_by_retention(
    db: Connection,
) -> None:
    kept, _ = [await job_in(db, "completed") for _ in range(2)]
    name = await leaf(db, kept)
    await db.execute(
        f"create table public.receipts (id bigint references pgwake.{name}"
        " deferrable initially deferred);"
        f" insert into public.receipts values ({kept})"
    )
    await set_clock(db, "100 days")
    assert await call(db, "maintain", step="retention") == {"retention": 1}
    assert await leaf(db, kept) == name
    assert await db.fetchval("select count(*) from pgwake.jobs") == 1
