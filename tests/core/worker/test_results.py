"""What handlers return: stored if it has a JSON form, else a failed attempt."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from pgwake import Registry
from support import Connection
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended, reasons


@dataclass
class Point:
    x: int
    at: datetime


class Address(BaseModel):
    host: str


class Colour(enum.Enum):
    RED = "red"


AT = datetime(2027, 1, 31, 8, 0, 0, 500, tzinfo=UTC)

VALUES: dict[str, tuple[Any, Any]] = {
    "nothing": (None, None),
    "text": ("\N{PILE OF POO} \\u0000 é", "\N{PILE OF POO} \\u0000 é"),
    "an empty text": ("", ""),
    "false": (False, False),
    "zero": (0, 0),
    "a float": (-0.5, -0.5),
    "a large number": (2**200, 2**200),
    "a datetime": (AT, "2027-01-31T08:00:00.000500Z"),
    "a date": (date(2027, 1, 31), "2027-01-31"),
    "a duration": (timedelta(minutes=1), "PT1M"),
    "a decimal": (Decimal("1.10"), "1.10"),
    "a UUID": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "bytes": (b"plain", "plain"),
    "a set": ({1}, [1]),
    "a tuple": ((1, "a"), [1, "a"]),
    "a path": (Path("/tmp/x"), "/tmp/x"),  # noqa: S108
    "an enum": (Colour.RED, "red"),
    "a dataclass": (Point(1, AT), {"x": 1, "at": "2027-01-31T08:00:00.000500Z"}),
    "a model": (Address(host="a"), {"host": "a"}),
    "all of them nested": (
        {"points": [Point(1, AT)], "sets": {"a": {2}}},
        {"points": [{"x": 1, "at": "2027-01-31T08:00:00.000500Z"}], "sets": {"a": [2]}},
    ),
}

loop: list[Any] = []
loop.append(loop)
deep: list[Any] = []
for _ in range(100_000):
    deep = [deep]

UNSTORABLE: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": {"a": [float("inf")]},
    "NaN in a dataclass": Point(float("nan"), AT),  # type: ignore[arg-type]
    "a lone surrogate": "\ud800",
    "a lone surrogate in a key": {"\ud800": 1},
    "a lone surrogate in a model": Address.model_construct(host="\ud800"),
    "NUL": "a\0b",
    "NUL in a key": {"\0": 1},
    "NUL after a backslash": "\\\0",
    "an object": object(),
    "a function": len,
    "a key that is no text": {(1, 2): 3},
    "bytes that are no text": b"\xff",
    "a list that holds itself": loop,
    "a list nested too deep": deep,
}


async def finish(
    connection: Connection, database: str, make: Callable[[], Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a job that returns a value among others, in one batch; its row, theirs."""
    registry = Registry()

    @registry.job("good")
    async def good() -> str:
        return "fine"

    @registry.job("make", max_attempts=1)
    async def make_it() -> Any:
        return make()

    kinds = ["good", "good", "make", "good", "good"]
    ids = [await insert(connection, kind) for kind in kinds]
    async with embedded(database, registry):
        rows = [await ended(connection, job_id) for job_id in ids]
    return rows.pop(2), rows


@pytest.mark.parametrize("name", VALUES)
async def test_a_result_is_stored(
    connection: Connection, database: str, name: str
) -> None:
    value, stored = VALUES[name]
    row, _ = await finish(connection, database, lambda: value)

    assert (row["status"], row["result"]) == ("completed", stored)


@pytest.mark.parametrize("name", UNSTORABLE)
async def test_a_result_that_is_no_json_fails_its_own_attempt_only(
    connection: Connection, database: str, name: str
) -> None:
    row, others = await finish(connection, database, lambda: UNSTORABLE[name])

    assert (row["status"], row["result"]) == ("failed", None)
    assert reasons(row) == ["invalid"]
    assert {other["status"] for other in others} == {"completed"}


async def test_a_result_over_one_mebibyte_fails_its_own_attempt_only(
    connection: Connection, database: str
) -> None:
    row, others = await finish(connection, database, lambda: "x" * 2**20)

    assert (row["status"], reasons(row)) == ("failed", ["invalid"])
    assert "jobs_result_is_at_most_1_mib" in row["errors"][0]["message"]
    assert {other["status"] for other in others} == {"completed"}
    assert {other["attempt"] for other in others} == {1}


async def test_a_result_just_under_one_mebibyte_is_stored(
    connection: Connection, database: str
) -> None:
    row, _ = await finish(connection, database, lambda: "x" * (2**20 - 100))

    assert len(row["result"]) == 2**20 - 100


async def test_a_result_that_can_not_be_stored_is_tried_again(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    results = iter([float("nan"), 1.5])

    @registry.job("make")
    async def make() -> float:
        return next(results)

    job_id = await insert(connection, "make")
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert (row["status"], row["result"], row["attempt"]) == ("completed", 1.5, 2)
    assert reasons(row) == ["invalid"]


@pytest.mark.parametrize("message", ["a\0b", "\ud800", "x" * 100_000, ""])
async def test_whatever_an_exception_says_its_attempt_fails(
    connection: Connection, database: str, message: str
) -> None:
    registry = Registry()

    @registry.job("fail", max_attempts=1)
    async def fail() -> None:
        raise ValueError(message)

    job_id = await insert(connection, "fail")
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert (row["status"], reasons(row)) == ("failed", ["failed"])
    assert row["errors"][0]["message"].startswith("ValueError")
    assert len(row["errors"][0]["message"]) <= 2000


async def test_an_exception_that_can_not_be_shown_fails_its_attempt(
    connection: Connection, database: str
) -> None:
    class Sphinx(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise ValueError("no answer")

    registry = Registry()

    @registry.job("fail", max_attempts=1)
    async def fail() -> None:
        raise Sphinx

    job_id = await insert(connection, "fail")
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert "Sphinx (its str() raises ValueError)" in row["errors"][0]["message"]
