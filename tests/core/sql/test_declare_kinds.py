"""What workers declare of their kinds: the newest version's, once, and never more."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import Row, blocking, call, refused, set_kind, waits

WHOLE: dict[str, Any] = {
    "max_attempts": 3,
    "backoff_base": 1.5,
    "backoff_cap": 60,
    "backoff_jitter": 0.25,
    "timeout": 30,
    "lease": 90,
    "priority": -5,
    "schema": {"type": "object"},
}
DECLARED: Row = {
    "declared_max_attempts": 3,
    "declared_backoff_base": timedelta(seconds=1.5),
    "declared_backoff_cap": timedelta(minutes=1),
    "declared_backoff_jitter": 0.25,
    "declared_timeout": timedelta(seconds=30),
    "declared_lease": timedelta(seconds=90),
    "declared_priority": -5,
    "declared_schema": {"type": "object"},
}
OPERATORS: Row = {
    "max_attempts": 9,
    "backoff_base": timedelta(seconds=9),
    "backoff_cap": timedelta(hours=9),
    "backoff_jitter": 0.9,
    "timeout": timedelta(minutes=9),
    "lease": timedelta(minutes=19),
    "priority": 9,
    "check_payload": True,
}


async def declare(db: Connection, version: str | None = None, **kind: Any) -> int:
    """Declare the kind `a`; how many kinds were written."""
    written: int = await call(
        db, "declare_kinds", kinds={"a": kind}, version=version, worker="w1"
    )
    return written


async def kind(db: Connection, name: str = "a") -> Row:
    row = await db.fetchrow(
        "select *, xmin::text, xmax::text from pgwake.kinds where name = $1", name
    )
    assert row is not None
    return dict(row)


async def attempts(db: Connection, name: str = "a") -> int | None:
    declared: int | None = (await kind(db, name))["declared_max_attempts"]
    return declared


async def test_every_field_is_kept_in_its_own_column(db: Connection) -> None:
    assert await declare(db, "2026.11.2", **WHOLE) == 1

    row = await kind(db)
    assert {column: row[column] for column in DECLARED} == DECLARED
    assert row["declared_version"] == [2026, 11, 2]
    assert row["declared_by"] == "w1"
    assert row["declared_at"] is not None
    assert [row[column] for column in OPERATORS] == [None] * 7 + [False]


async def test_a_worker_without_a_name_is_called_after_its_session(
    db: Connection,
) -> None:
    await db.execute("set application_name = 'shop'")
    await call(db, "declare_kinds", kinds={"a": {}})

    assert (await kind(db))["declared_by"].startswith("shop:")


async def test_what_is_left_out_or_null_is_not_declared_any_more(
    db: Connection,
) -> None:
    await declare(db, **WHOLE)
    changes: Row = {"max_attempts": 3, "priority": None, "schema": None}
    assert await declare(db, **changes) == 1

    row = await kind(db)
    assert [row[column] for column in DECLARED] == [3] + [None] * 7


@pytest.mark.parametrize("version", [None, "", "1", "2026.11.2"])
async def test_an_unchanged_declaration_writes_nothing(
    db: Connection, version: str | None
) -> None:
    await declare(db, version, **WHOLE)
    before = await kind(db)
    async with db.transaction():
        assert await declare(db, version, **WHOLE) == 0
        taken = "select pg_current_xact_id_if_assigned()::text"
        assert await db.fetchval(taken) is None

    assert await kind(db) == before


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        (None, "0"),
        ("", "0.0.1"),
        ("2026.9.30", "2026.11.2"),
        ("2026.11.2", "2026.11.10"),
        ("9", "10"),
        ("1.2", "1.2.0"),
        ("1.99.99", "2"),
        ("999999998", "999999999"),
    ],
)
async def test_the_newest_version_wins_whoever_comes_last(
    db: Connection, version: str | None, newer: str
) -> None:
    await declare(db, version, max_attempts=1)
    assert await declare(db, newer, max_attempts=2) == 1
    before = await kind(db)
    assert before["declared_max_attempts"] == 2

    assert await declare(db, version, max_attempts=1) == 0
    assert await kind(db) == before


async def test_among_equal_versions_the_latest_declaration_wins(db: Connection) -> None:
    for count in (1, 2, 1):
        assert await declare(db, "1.0", max_attempts=count) == 1
        assert await attempts(db) == count


async def test_a_newer_version_that_says_the_same_is_remembered(db: Connection) -> None:
    await declare(db, "1", max_attempts=1)
    assert await declare(db, "3", max_attempts=1) == 1

    assert await declare(db, "2", max_attempts=2) == 0


async def test_an_operators_columns_are_never_touched(db: Connection) -> None:
    names = ", ".join(OPERATORS)
    places = ", ".join(f"${n}" for n in range(1, len(OPERATORS) + 1))
    await db.execute(
        f"insert into pgwake.kinds (name, {names}) values ('a', {places})",
        *OPERATORS.values(),
    )
    for version in (None, "1", "2"):
        assert await declare(db, version, **WHOLE) == 1
        row = await kind(db)
        assert {column: row[column] for column in OPERATORS} == OPERATORS


async def test_kinds_that_are_left_out_stay(db: Connection) -> None:
    declared = {"a": {"max_attempts": 1}, "b": {"max_attempts": 2}}
    assert await call(db, "declare_kinds", kinds=declared) == 2
    declared = {"b": {"max_attempts": 3}, "c": {}}
    assert await call(db, "declare_kinds", kinds=declared) == 2
    assert await call(db, "declare_kinds", kinds={}) == 0

    assert [await attempts(db, name) for name in "abc"] == [1, 3, None]


async def test_any_name_is_data(db: Connection) -> None:
    name = "'; drop table pgwake.jobs; -- \"\n%s{}"
    await call(db, "declare_kinds", kinds={name: {"max_attempts": 1}})

    assert await attempts(db, name) == 1


async def test_two_workers_that_start_at_once_do_not_deadlock(
    connect: Connect, db: Connection
) -> None:
    # The first of each pair holds what it has written until the other waits for it.
    other, observer = await connect(), await connect()
    for version in ("1", "2"):
        ours = {name: {"max_attempts": 1} for name in "abcdef"}
        theirs = {name: {"max_attempts": 2} for name in "fedcba"}
        transaction = db.transaction()
        await transaction.start()
        await call(db, "declare_kinds", kinds=ours, version=version)
        task = asyncio.create_task(
            call(other, "declare_kinds", kinds=theirs, version=version)
        )
        await waits(other, task, observer)
        await call(db, "declare_kinds", kinds=theirs, version=version)
        await transaction.commit()

        # The other has waited, and found that nothing is left to write.
        assert await task == 0
        assert await attempts(db, "f") == 2


async def test_kinds_are_written_in_order_of_their_names(
    connect: Connect, db: Connection
) -> None:
    # As JSON they come by length: b before aa.
    other, observer = await connect(), await connect()
    transaction = db.transaction()
    await transaction.start()
    await db.execute("insert into pgwake.kinds (name) values ('b')")
    task = asyncio.create_task(
        call(other, "declare_kinds", kinds={"cc": {}, "b": {}, "aa": {}})
    )
    await waits(other, task, observer)

    await observer.execute("set lock_timeout = '100 ms'")
    await observer.execute("insert into pgwake.kinds (name) values ('cc')")
    with refused("55P03"):  # it has been written, and is not committed
        await observer.execute("insert into pgwake.kinds (name) values ('aa')")
    await transaction.commit()
    assert await task == 3


async def test_an_older_worker_that_waited_for_a_newer_one_changes_nothing(
    db: Connection, other: Connection
) -> None:
    await declare(db, max_attempts=1)
    async with blocking(db, other, declare(other, "1", max_attempts=3)) as task:
        await declare(db, "2", max_attempts=2)

    assert await task == 0
    assert await attempts(db) == 2


async def test_sixteen_workers_that_start_at_once_write_each_kind_once(
    connect: Connect,
) -> None:
    kinds = {f"kind{n}": {"max_attempts": 3} for n in range(20)}
    workers = [await connect() for _ in range(16)]
    written = await asyncio.gather(
        *(call(worker, "declare_kinds", kinds=kinds, version="1") for worker in workers)
    )

    assert sum(written) == 20


BAD: list[tuple[Any, str, str]] = [
    (None, "kinds is no object", "Pass"),
    ([], "kinds is no object", "Pass"),
    ("a", "kinds is no object", "Pass"),
    ({"": {}}, "name of kind '' is 0 bytes long", "1 to 128"),
    ({"é" * 65: {}}, "is 130 bytes long", "1 to 128"),
    ({"a": None}, "kind a is no object", "{}"),
    ({"a": []}, "kind a is no object", "{}"),
    ({"a": 3}, "kind a is no object", "{}"),
    ({"a": {"max_attemps": 3}}, "kind a: 'max_attemps' is unknown", "max_attempts, "),
    ({"a": {"check_payload": True}}, "kind a: 'check_payload' is unknown", "schema"),
    ({"a": {"max_attempts": 0}}, "kind a: max_attempts is 0", "1 to 10000"),
    ({"a": {"max_attempts": 10001}}, "kind a: max_attempts is 10001", "1 to 10000"),
    ({"a": {"max_attempts": 1.5}}, "kind a: max_attempts is 1.5", "integer"),
    ({"a": {"max_attempts": "3"}}, "kind a: max_attempts is of type string", "integer"),
    ({"a": {"max_attempts": True}}, "max_attempts is of type boolean", "integer"),
    ({"a": {"backoff_base": -0.001}}, "kind a: backoff_base is -0.001", "0 to 86400"),
    ({"a": {"backoff_base": 86400.5}}, "kind a: backoff_base is 86400.5", "0 to 86400"),
    ({"a": {"backoff_base": "1 s"}}, "backoff_base is of type string", "seconds"),
    ({"a": {"backoff_cap": -1}}, "kind a: backoff_cap is -1", "0 to 31104000"),
    ({"a": {"backoff_cap": 31104001}}, "backoff_cap is 31104001", "0 to 31104000"),
    ({"a": {"backoff_cap": []}}, "backoff_cap is of type array", "seconds"),
    ({"a": {"backoff_jitter": -0.1}}, "kind a: backoff_jitter is -0.1", "0 to 1"),
    ({"a": {"backoff_jitter": 1.1}}, "kind a: backoff_jitter is 1.1", "0 to 1"),
    ({"a": {"timeout": 0}}, "kind a: timeout is 0", "0.001 to 86400"),
    ({"a": {"timeout": 86401}}, "kind a: timeout is 86401", "0.001 to 86400"),
    ({"a": {"lease": 0.5}}, "kind a: lease is 0.5", "1 to 86400"),
    ({"a": {"lease": 86401}}, "kind a: lease is 86401", "1 to 86400"),
    ({"a": {"priority": 101}}, "kind a: priority is 101", "-100 to 100"),
    ({"a": {"priority": -101}}, "kind a: priority is -101", "-100 to 100"),
    ({"a": {"priority": 0.5}}, "kind a: priority is 0.5", "integer"),
    ({"a": {"schema": "x"}}, "kind a: schema is of type string", "JSON Schema"),
    ({"a": {"schema": True}}, "kind a: schema is of type boolean", "JSON Schema"),
    ({"a": {"schema": {"x": "y" * 65536}}}, "schema is 65545 bytes long", "65536"),
]


@pytest.mark.parametrize(("kinds", "problem", "advice"), BAD)
async def test_what_can_not_be_meant_is_refused_by_name_and_nothing_written(
    db: Connection, kinds: Any, problem: str, advice: str
) -> None:
    if isinstance(kinds, dict):
        kinds = {"A": {"max_attempts": 1}, **kinds, "z": {"max_attempts": 1}}
    with refused("PW003") as caught:
        await call(db, "declare_kinds", kinds=kinds)

    assert problem in str(caught.value)
    assert advice in (caught.value.hint or "")
    assert await db.fetchval("select count(*) from pgwake.kinds") == 0


@pytest.mark.parametrize("number", ["1e18", "-1", "9223372036854775808", "1e131071"])
@pytest.mark.parametrize(
    "field",
    [
        *("max_attempts", "backoff_base", "backoff_cap", "backoff_jitter"),
        *("timeout", "lease"),
    ],
)
async def test_a_number_that_overflows_is_refused_like_any_other(
    db: Connection, field: str, number: str
) -> None:
    with refused("PW003") as caught:
        await db.execute(
            f"""select pgwake.declare_kinds('{{"a": {{"{field}": {number}}}}}')"""
        )

    assert f"kind a: {field} is" in str(caught.value)


@pytest.mark.parametrize("number", ["1e-16000", "0.0000001"])
async def test_a_base_next_to_nothing_is_nothing(db: Connection, number: str) -> None:
    await db.execute(
        f"""select pgwake.declare_kinds('{{"a": {{"backoff_base": {number}}}}}')"""
    )

    assert (await kind(db))["declared_backoff_base"] == timedelta(0)


@pytest.mark.parametrize(
    "version",
    [
        *("v1", "1.", ".1", "1..2", "1.2rc1", "1.-2", "latest", " 1", "1\n"),
        *("1234567890", ".".join("1" * 17), "\uff11"),
    ],
)
async def test_a_version_that_is_no_dotted_numbers_is_refused(
    db: Connection, version: str
) -> None:
    with refused("PW003") as caught:
        await declare(db, version, max_attempts=1)

    assert "version is" in str(caught.value)
    assert "2026.11.2" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "limits",
    [
        {"max_attempts": 1, "backoff_base": 0, "backoff_cap": 0, "backoff_jitter": 0},
        {"max_attempts": 10000, "backoff_base": 86400, "backoff_cap": 31104000},
        {"backoff_jitter": 1, "timeout": 0.001, "lease": 1, "priority": -100},
        {"timeout": 86400, "lease": 86400, "priority": 100},
        {"max_attempts": 3.0, "priority": 5.0},
    ],
)
async def test_the_limits_themselves_are_taken(
    db: Connection, limits: dict[str, Any]
) -> None:
    assert await declare(db, **limits) == 1


ILLEGAL_KINDS: list[tuple[str, str, str]] = [
    ("name", "''", "name_is_1_to_128_bytes"),
    ("name", "repeat('x', 129)", "name_is_1_to_128_bytes"),
    ("max_attempts", "0", "max_attempts_is_1_to_10000"),
    ("max_attempts", "10001", "max_attempts_is_1_to_10000"),
    ("backoff_base", "'-1 ms'", "backoff_base_is_at_most_1_day"),
    ("backoff_base", "'1 day 1 ms'", "backoff_base_is_at_most_1_day"),
    ("backoff_cap", "'-1 ms'", "backoff_cap_is_at_most_1_year"),
    ("backoff_cap", "'1 year 1 ms'", "backoff_cap_is_at_most_1_year"),
    ("backoff_jitter", "-0.1", "backoff_jitter_is_0_to_1"),
    ("backoff_jitter", "'nan'", "backoff_jitter_is_0_to_1"),
    ("timeout", "'0'", "timeout_is_up_to_1_day"),
    ("timeout", "'1 day 1 ms'", "timeout_is_up_to_1_day"),
    ("lease", "'999 ms'", "lease_is_1_second_to_1_day"),
    ("lease", "'1 day 1 ms'", "lease_is_1_second_to_1_day"),
    ("priority", "101", "priority_is_minus_100_to_100"),
    ("priority", "-101", "priority_is_minus_100_to_100"),
    ("declared_schema", "'[1]'", "declared_schema_is_an_object"),
]
ILLEGAL_KIND_LIMITS: list[tuple[str, str]] = [
    ("max_running = -1", "max_running_is_0_to_100000"),
    ("max_running = 100001", "max_running_is_0_to_100000"),
    ("rate_limit = 0", "rate_limit_is_up_to_1000000_a_second"),
    ("rate_limit = 'nan'", "rate_limit_is_up_to_1000000_a_second"),
    ("rate_limit = 1, rate_burst = 0", "rate_burst_is_1_to_1000000"),
    ("rate_burst = 5", "rate_burst_needs_rate_limit"),
]
ILLEGAL_LIMITS: list[tuple[str, str]] = [
    ("'', 'k', 1", "queue_is_1_to_128_bytes"),
    ("repeat('x', 129), 'k', 1", "queue_is_1_to_128_bytes"),
    ("'q', '', 1", "key_is_1_to_512_bytes"),
    ("'q', repeat('x', 513), 1", "key_is_1_to_512_bytes"),
    ("'q', 'k', -1", "max_running_is_0_to_10000"),
    ("'q', 'k', 10001", "max_running_is_0_to_10000"),
    ("'q', 'k', 1, 0", "rate_limit_is_up_to_1000000_a_second"),
    ("'q', 'k', 1, 'nan'", "rate_limit_is_up_to_1000000_a_second"),
    ("'q', 'k', null", "has_a_limit"),
]


@pytest.mark.parametrize(("column", "value", "check"), ILLEGAL_KINDS)
@pytest.mark.parametrize("prefix", ["", "declared_"])
async def test_a_named_check_refuses_policy_of_a_kind(
    db: Connection, prefix: str, column: str, value: str, check: str
) -> None:
    name = "'a'"
    if column == "name":
        name, column, value = value, "max_attempts", "1"
    column = prefix + column.removeprefix("declared_")
    if check.startswith("declared_schema"):
        column = "declared_schema"

    with refused("23514", by=f"kinds_{check}"):
        await db.execute(
            f"insert into pgwake.kinds (name, {column}) values ({name}, {value})"
        )


@pytest.mark.parametrize(("change", "check"), ILLEGAL_KIND_LIMITS)
async def test_a_named_check_refuses_a_limit_of_a_kind(
    db: Connection, change: str, check: str
) -> None:
    await set_kind(db, "a")
    with refused("23514", by=f"kinds_{check}"):
        await db.execute(f"update pgwake.kinds set {change}")


@pytest.mark.parametrize(("values", "check"), ILLEGAL_LIMITS)
async def test_a_named_check_refuses_a_limit_of_a_key(
    db: Connection, values: str, check: str
) -> None:
    with refused("23514", by=f"concurrency_limits_{check}"):
        await db.execute(f"insert into pgwake.concurrency_limits values ({values})")


async def test_every_check_of_policy_has_a_row_that_it_refuses(db: Connection) -> None:
    tested = {f"kinds_{check}" for _, _, check in ILLEGAL_KINDS}
    tested |= {f"kinds_{check}" for _, check in ILLEGAL_KIND_LIMITS}
    tested |= {f"concurrency_limits_{check}" for _, check in ILLEGAL_LIMITS}

    found = await db.fetch(
        "select conname from pg_constraint where contype = 'c' and conrelid in"
        " ('pgwake.kinds'::regclass, 'pgwake.concurrency_limits'::regclass)"
    )
    assert {name for (name,) in found} == tested
