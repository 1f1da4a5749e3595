"""What a claim says of each kind: its lease and its time limit."""

from datetime import timedelta
from typing import Any

from support import Connection
from support.sql.helpers import claim, insert, job, set_kind, set_queue

MINUTE = timedelta(minutes=1)


async def lease_of(db: Connection, kind: str = "noop", **arguments: Any) -> Any:
    await insert(db, kind)
    (claimed,) = await claim(db, **arguments)
    row = await job(db, claimed["id"])
    return row["lease_expires_at"] - row["started_at"]


async def timeout_of(db: Connection, kind: str = "noop") -> Any:
    await insert(db, kind)
    (claimed,) = await claim(db)
    return (claimed["options"] or {}).get("timeout")


async def test_a_lease_is_by_argument_operator_worker_queue_or_default(
    db: Connection,
) -> None:
    assert await lease_of(db) == 5 * MINUTE
    await set_queue(db, lease=6 * MINUTE)
    assert await lease_of(db) == 6 * MINUTE
    await set_kind(db, declared_lease=7 * MINUTE)
    assert await lease_of(db) == 7 * MINUTE
    await set_kind(db, lease=8 * MINUTE)
    assert await lease_of(db) == 8 * MINUTE
    assert await lease_of(db, lease=9 * MINUTE) == 9 * MINUTE
    assert await lease_of(db, "other") == 6 * MINUTE


async def test_each_job_of_a_claim_has_its_kinds_lease(db: Connection) -> None:
    await set_kind(db, "long", lease=60 * MINUTE)
    await insert(db, "long")
    await insert(db, "short")
    leases = {one["kind"]: one["lease_expires_at"] for one in await claim(db, 2)}
    assert leases["long"] - leases["short"] == 55 * MINUTE


async def test_a_claim_says_the_time_limit_that_an_operator_set_for_the_kind(
    db: Connection,
) -> None:
    assert await timeout_of(db) is None
    await set_kind(db, timeout=timedelta(seconds=1.5))
    assert await timeout_of(db) == 1.5
    assert await timeout_of(db, "other") is None


async def test_a_queues_time_limit_is_for_kinds_that_declare_none(
    db: Connection,
) -> None:
    await set_queue(db, timeout=MINUTE)
    assert await timeout_of(db) == 60
    await set_kind(db, declared_timeout=2 * MINUTE)
    assert await timeout_of(db) is None, "its worker knows"
    await set_kind(db, lease=MINUTE)
    assert await timeout_of(db) is None
    await set_kind(db, timeout=3 * MINUTE)
    assert await timeout_of(db) == 180
    await set_kind(db, "other", lease=MINUTE)
    assert await timeout_of(db, "other") == 60


async def test_a_claim_agrees_with_the_policy_that_is_shown(db: Connection) -> None:
    await set_queue(db, lease=6 * MINUTE, timeout=MINUTE)
    await set_kind(db, declared_lease=7 * MINUTE, timeout=2 * MINUTE)
    for kind in ("noop", "other"):
        shown = await db.fetchrow(
            "select lease, timeout from pgwake.get_policy('default', $1)", kind
        )
        assert shown is not None
        assert await lease_of(db, kind) == shown["lease"]
        assert await timeout_of(db, kind) == shown["timeout"].total_seconds()
