"""What a claim says of each kind: its lease and its time limit."""

from datetime import timedelta
from typing import Any

from support import Connection
from support.sql.helpers import claim, insert, job, set_queue

MINUTE = timedelta(minutes=1)


async def set_kind(connection: Connection, name: str = "noop", **policy: Any) -> None:
    policy["name"] = name
    places = ", ".join(f"${n}" for n in range(1, len(policy) + 1))
    changes = ", ".join(f"{column} = excluded.{column}" for column in policy)
    await connection.execute(
        f"insert into pgwake.kinds ({', '.join(policy)}) values ({places})"
        f" on conflict (name) do update set {changes}",
        *policy.values(),
    )


async def lease_of(connection: Connection, kind: str = "noop", **arguments: Any) -> Any:
    await insert(connection, kind)
    (claimed,) = await claim(connection, **arguments)
    row = await job(connection, claimed["id"])
    return row["lease_expires_at"] - row["started_at"]


async def timeout_of(connection: Connection, kind: str = "noop") -> Any:
    await insert(connection, kind)
    (claimed,) = await claim(connection)
    return (claimed["options"] or {}).get("timeout")


async def test_a_lease_is_by_argument_operator_worker_queue_or_default(
    connection: Connection,
) -> None:
    assert await lease_of(connection) == 5 * MINUTE
    await set_queue(connection, lease=6 * MINUTE)
    assert await lease_of(connection) == 6 * MINUTE
    await set_kind(connection, declared_lease=7 * MINUTE)
    assert await lease_of(connection) == 7 * MINUTE
    await set_kind(connection, lease=8 * MINUTE)
    assert await lease_of(connection) == 8 * MINUTE
    assert await lease_of(connection, lease=9 * MINUTE) == 9 * MINUTE
    assert await lease_of(connection, "other") == 6 * MINUTE


async def test_each_job_of_a_claim_has_its_kinds_lease(connection: Connection) -> None:
    await set_kind(connection, "long", lease=60 * MINUTE)
    await insert(connection, "long")
    await insert(connection, "short")
    leases = {
        one["kind"]: one["lease_expires_at"] for one in await claim(connection, 2)
    }
    assert leases["long"] - leases["short"] == 55 * MINUTE


async def test_a_claim_says_the_time_limit_that_an_operator_set_for_the_kind(
    connection: Connection,
) -> None:
    assert await timeout_of(connection) is None
    await set_kind(connection, timeout=timedelta(seconds=1.5))
    assert await timeout_of(connection) == 1.5
    assert await timeout_of(connection, "other") is None


async def test_a_queues_time_limit_is_for_kinds_that_declare_none(
    connection: Connection,
) -> None:
    await set_queue(connection, timeout=MINUTE)
    assert await timeout_of(connection) == 60
    await set_kind(connection, declared_timeout=2 * MINUTE)
    assert await timeout_of(connection) is None, "its worker knows"
    await set_kind(connection, lease=MINUTE)
    assert await timeout_of(connection) is None
    await set_kind(connection, timeout=3 * MINUTE)
    assert await timeout_of(connection) == 180
    await set_kind(connection, "other", lease=MINUTE)
    assert await timeout_of(connection, "other") == 60


async def test_a_claim_agrees_with_the_policy_that_is_shown(
    connection: Connection,
) -> None:
    await set_queue(connection, lease=6 * MINUTE, timeout=MINUTE)
    await set_kind(connection, declared_lease=7 * MINUTE, timeout=2 * MINUTE)
    for kind in ("noop", "other"):
        shown = await connection.fetchrow(
            "select lease, timeout from pgwake.get_policy('default', $1)", kind
        )
        assert shown is not None
        assert await lease_of(connection, kind) == shown["lease"]
        assert await timeout_of(connection, kind) == shown["timeout"].total_seconds()
