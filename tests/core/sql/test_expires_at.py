"""expires_at: jobs that are cancelled if they have not been started by then."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    child,
    claim,
    claim_batch,
    claimed_ids,
    insert,
    insert_many,
    job,
    pair,
    pairs,
    refused,
    rows,
    set_clock,
    status,
)


async def soon(db: Connection, seconds: float = 60) -> datetime:
    at: datetime = await db.fetchval(
        "select pgwake.now() + $1::interval", timedelta(seconds=seconds)
    )
    return at


async def swept(db: Connection) -> Any:
    return (await call(db, "maintain", step="sweep")).get("expired")


async def test_it_is_cancelled_once_it_has_expired(db: Connection) -> None:
    at = await soon(db)
    expired = await insert(db, expires_at=at, webhook="http://a.example/")
    parents = [await insert(db, "key", expires_at=at, concurrency_key="k")]
    parents.append(await insert(db, "later", run_at=at, expires_at=at))
    heir = await child(db, expired)
    follower = await child(db, *parents, on_parent_failure="run")
    never, later = await insert(db), await insert(db, expires_at=await soon(db, 9999))
    assert await swept(db) is None
    assert "not been started by" in await call(db, "explain_job", job_id=expired)

    await set_clock(db, "1 minute")
    assert "It expired at" in await call(db, "explain_job", job_id=expired)
    assert sorted(await swept(db)) == [
        ["default", "key", 1],
        ["default", "later", 1],
        ["default", "noop", 1],
    ]
    error = (await job(db, expired))["errors"][0]
    assert (error["reason"], error["attempt"]) == ("expired", 0)
    assert "it had expired" in await call(db, "explain_job", job_id=expired)
    await call(db, "maintain", step="children")
    assert await status(db, heir) == "cancelled"
    assert set(await claimed_ids(db)) == {never, later, follower}
    hooks = await db.fetch("select from pgwake.jobs where kind = 'pgwake.webhook'")
    assert len(hooks) == 1


async def test_no_claim_starts_it(db: Connection) -> None:
    await insert(db, expires_at=await soon(db))
    await insert(db, priority=5, expires_at=await soon(db))
    await insert(db, expires_at=await soon(db), crash_count=1)
    await insert(db, expires_at=await soon(db), crash_count=2)
    await set_clock(db, "61 seconds")

    assert await claim(db, 10) == []
    assert await rows(db, "claim_jobs", queue="default", count=5) == []
    assert await rows(db, "claim_next_job") == []
    assert await rows(db, "peek_jobs") == []
    row = await claim_batch(db, 10)
    assert (row["ids"], row["next_run_at"]) == ([], None)
    assert await call(db, "next_run_at") is None
    live = await insert(db)
    assert await claimed_ids(db) == [live]


@pytest.mark.parametrize(
    ("back", "arguments", "expires"),
    [
        ("fail_job", {"retry_in": timedelta(0)}, False),
        ("snooze_job", {"delay": timedelta(0)}, False),
        ("sleep_job", {"name": "s"}, False),
        ("release_jobs", {"reason": "unstarted"}, True),
    ],
)
async def test_it_holds_for_what_has_not_begun(
    db: Connection, back: str, arguments: dict[str, Any], expires: bool
) -> None:
    job_id = await insert(db, expires_at=await soon(db))
    (held,) = await claim(db)
    if back == "sleep_job":
        arguments = arguments | {"until": await soon(db, 30)}
    which = pairs(held) if back == "release_jobs" else pair(held)
    await call(db, back, **which, **arguments)
    await set_clock(db, "61 seconds")

    assert await claimed_ids(db) == ([] if expires else [job_id])
    assert await swept(db) == ([["default", "noop", 1]] if expires else None)


async def test_a_retry_by_hand_runs_however_late(db: Connection) -> None:
    expired = await insert(db, expires_at=await soon(db, -1))
    await swept(db)
    await call(db, "retry_job", job_id=expired)
    assert await claimed_ids(db) == [expired]


async def test_it_changes_until_the_first_attempt(db: Connection) -> None:
    async def change(job_id: int, value: Any) -> list[str]:
        found = await rows(
            db, "update_jobs", changes={"expires_at": value}, job_ids=[job_id]
        )
        return [row["outcome"] for row in found]

    late, later = await soon(db, -1), await soon(db, 99)
    expired = await insert(db, expires_at=late)
    never = await insert(db, expires_at=late)
    assert await change(expired, str(later)) == ["updated"]
    assert await change(expired, str(later)) == ["unchanged"]
    assert await change(never, None) == ["updated"]
    assert (await job(db, expired))["expires_at"] == later
    assert await swept(db) is None
    assert await claimed_ids(db, 2) == [expired, never]

    tried = await insert(db, attempt=1)
    assert await change(tried, str(later)) == ["unchanged"]
    with refused("PW003"):
        await change(tried, "infinity")


async def test_enqueue_many_takes_it(db: Connection) -> None:
    at = await soon(db)
    other = await soon(db, 99)

    async def enqueue(*jobs: dict[str, Any]) -> list[int]:
        ids: list[int] = await call(db, "enqueue_many", jobs=[*jobs])
        return ids

    async def expiry(job_id: int) -> Any:
        return (await job(db, job_id))["expires_at"]

    keyed = {"kind": "a", "unique_key": "u"}
    plain, (unique,) = (
        (await enqueue({"kind": "a", "expires_at": str(at)}))[0],
        await enqueue({**keyed, "expires_at": str(at)}),
    )
    assert await expiry(plain) == await expiry(unique) == at
    # returned as it is
    assert await enqueue({**keyed, "expires_at": str(other)}) == [unique]
    assert await expiry(unique) == at
    replacing = {**keyed, "on_conflict": "replace"}
    assert await enqueue({**replacing, "expires_at": str(other)}) == [unique]
    assert await expiry(unique) == other
    assert await enqueue(replacing) == [unique]
    assert await expiry(unique) is None
    await claim(db, 10)
    (new,) = await enqueue({**replacing, "expires_at": str(other)})
    assert (new == unique, await expiry(new)) == (False, other)


@pytest.mark.parametrize("value", ["infinity", "-infinity", "10000-01-01"])
async def test_a_time_that_clients_can_not_read_is_refused(
    db: Connection, value: str
) -> None:
    with refused("PW003"):
        await db.execute(
            f"insert into pgwake.jobs (kind, expires_at) values ('a', '{value}')"
        )


async def test_a_job_that_a_hook_keeps_hinders_no_other(db: Connection) -> None:
    await db.execute(
        "create function keep() returns trigger language plpgsql as"
        " $$ begin if new.kind = 'kept' then raise 'no'; end if; return new; end $$;"
        "create trigger keep before insert on pgwake.jobs_finished"
        " for each row execute function keep()"
    )
    at = await soon(db, -1)
    kept = await insert(db, "kept", expires_at=at)
    await insert(db, expires_at=at)
    assert await swept(db) == [["default", "noop", 1]]
    assert await status(db, kept) == "pending"


async def test_the_sweep_reads_only_what_may_expire(db: Connection) -> None:
    await insert_many(db, 2000)
    await insert(db, expires_at=await soon(db))
    async with db.transaction():
        read = (
            "select sum(seq_tup_read + idx_tup_fetch) from pg_stat_xact_user_tables"
            " where relname = 'jobs_live'"
        )
        before = await db.fetchval(read)
        assert await rows(db, "cancel_expired") == []
        assert await db.fetchval(read) - before <= 1
