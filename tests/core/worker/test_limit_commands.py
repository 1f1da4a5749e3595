"""Limits of queues, keys and kinds, as an operator types them."""

from pgwake.database.statements.operate import get_limits, set_limits
from support import Connect, Connection
from support.sql.helpers import blocking
from support.worker.processes import Pgwake


async def test_limits_of_a_kind_are_shown_set_and_lifted(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("limit-kind", "k", "--json")
    none = {"max_running": None, "rate_limit": None, "rate_burst": None}
    assert answer.json == none
    assert await connection.fetchval("select count(*) from pgwake.kinds") == 0

    await pgwake("limit-kind", "k", "--max-running", "0", "--rate", "0.5")
    answer = await pgwake("limit-kind", "k", "--rate", "none")
    assert answer.output.splitlines() == [
        "max_running: 0",
        "rate_limit: none",
        "rate_burst: none",
    ]
    (kind,) = (await pgwake("kinds", "--json")).json
    assert kind["overrides"] == {"max_running": 0}


async def test_limits_are_shown_set_and_lifted(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("limit", "x")
    assert answer.output.splitlines() == [
        "max_running: none",
        "rate_limit: none",
        "rate_burst: none",
        "key_limit: none",
        "key_rate: none",
        "key_burst: none",
        "max_pending: none",
    ]
    assert await connection.fetchval("select count(*) from pgwake.queues") == 0

    await pgwake("limit", "x", "--max-running", "5", "--rate", "0.5", "--burst", "3")
    await pgwake("limit", "x", "--max-pending", "9")
    answer = await pgwake("limit", "x", "--key-burst", "2")
    assert "needs" in answer.errors
    await pgwake("limit", "x", "--key-burst", "none")
    answer = await pgwake("limit", "x", "--max-running", "none", "--json")
    assert answer.json == {
        "max_running": None,
        "rate_limit": 0.5,
        "rate_burst": 3,
        "key_limit": None,
        "key_rate": None,
        "key_burst": None,
        "max_pending": 9,
        "keys": {},
        "key_rates": {},
    }


async def test_two_changes_of_limits_at_once_both_hold(
    connect: Connect, connection: Connection
) -> None:
    other = await connect()
    change = set_limits(other, "x", {"rate_limit": 2.0, "rate_burst": None})
    async with blocking(connection, other, change) as changed:
        await set_limits(connection, "x", {"max_running": 5, "key_limit": 3})
    await changed
    limits = await get_limits(connection, "x")
    assert list(limits.values()) == [5, 2.0, None, 3, None, None, None, {}, {}]


async def test_a_key_has_a_limit_of_its_own(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("limit", "x", "--key", "k\x1b", "--key-limit", "0")
    assert answer.output.splitlines()[-1] == "key k\N{REPLACEMENT CHARACTER}: 0"
    answer = await pgwake("limit", "x", "--key", "k\x1b", "--key-rate", "0.5", "--json")
    assert answer.json["keys"] == {"k\x1b": 0}
    assert answer.json["key_rates"] == {"k\x1b": 0.5}
    answer = await pgwake("limit", "x", "--key", "k\x1b", "--key-limit", "none")
    assert answer.output.splitlines()[-1].endswith(": 0.5 a second")
    answer = await pgwake(
        "limit", "x", "--key", "k\x1b", "--key-rate", "none", "--json"
    )
    assert answer.json["keys"] == answer.json["key_rates"] == {}
    found = "select count(*) from pgwake.concurrency_limits"
    assert await connection.fetchval(found) == 0
