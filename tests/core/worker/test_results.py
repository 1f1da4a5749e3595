"""What handlers return: stored if it has a JSON form, else a failed attempt."""

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from structlog.testing import capture_logs

from pgwake import Registry
from support import Connection
from support.sql.helpers import insert
from support.worker.helpers import Row, embedded, ended, reasons, run


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
    "over one mebibyte": "x" * 2**20,
}


async def results(
    connection: Connection, database: str, values: dict[str, Any]
) -> dict[str, Row]:
    """Run a job for each value that returns it, all in one batch; their rows."""
    registry = Registry()

    @registry.job("return", max_attempts=1)
    async def return_it(name: str) -> Any:
        return values[name]

    async with connection.transaction():
        ids = {
            name: await insert(connection, "return", payload={"name": name})
            for name in values
        }
    async with embedded(database, registry, queues="default:50"):
        return {name: await ended(connection, ids[name]) for name in values}


async def test_a_result_is_stored(connection: Connection, database: str) -> None:
    just_fits = "x" * (2**20 - 100)
    values = {**VALUES, "just under one mebibyte": (just_fits, just_fits)}
    given = {name: value for name, (value, _) in values.items()}
    rows = await results(connection, database, given)

    assert {row["status"] for row in rows.values()} == {"completed"}
    for name, (_, stored) in values.items():
        assert rows[name]["result"] == stored, name


async def test_a_result_that_is_no_json_fails_its_own_attempt_only(
    connection: Connection, database: str
) -> None:
    good = {"good": "fine", "good too": 1}
    with capture_logs() as logs:
        rows = await results(connection, database, {**UNSTORABLE, **good})
    # None was sent, so that no other end had to wait for its refusal.
    assert not [line for line in logs if line["event"] == "end refused"]

    for name, row in rows.items():
        if name in good:
            assert (row["status"], row["attempt"]) == ("completed", 1)
        else:
            assert (row["status"], row["result"]) == ("failed", None), name
            assert reasons(row) == ["invalid"], name
    (error,) = rows["over one mebibyte"]["errors"]
    assert "jobs_result_is_at_most_1_mib" in error["message"]


async def test_a_result_that_can_not_be_stored_is_tried_again(
    connection: Connection, database: str
) -> None:
    results = iter([float("nan"), 1.5])

    async def make() -> float:
        return next(results)

    row = await run(connection, database, make)

    assert (row["status"], row["result"], row["attempt"]) == ("completed", 1.5, 2)
    assert reasons(row) == ["invalid"]


async def test_whatever_an_exception_says_its_attempt_fails(
    connection: Connection, database: str
) -> None:
    class Sphinx(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise ValueError("no answer")

    errors = [ValueError(text) for text in ("a\0b", "\ud800", "x" * 100_000, "")]
    left = iter([*errors, Sphinx()])

    async def fail() -> None:
        raise next(left)

    row = await run(
        connection, database, fail, max_attempts=5, backoff_base=0, backoff_jitter=0
    )

    assert (row["status"], reasons(row)) == ("failed", ["failed"] * 5)
    *said, last = [error["message"] for error in row["errors"]]
    assert all(text.startswith("ValueError") and len(text) <= 2000 for text in said)
    assert "Sphinx (its str() raises ValueError)" in last
