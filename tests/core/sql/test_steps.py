"""What jobs record while they run, how they sleep, and how they wait for events."""

from datetime import timedelta
from typing import Any

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    pair,
    pairs,
    rows,
    running,
)

SECOND = timedelta(seconds=1)


async def record(db: Connection, held: Row, name: str, result: Any = None) -> Any:
    return await call(db, "record_step", **pair(held), name=name, result=result)


async def ask(db: Connection, held: Row, event: str, **arguments: Any) -> Any:
    (row,) = await rows(db, "await_event", **pair(held), event=event, **arguments)
    return row["outcome"], row["result"]


async def ask_job(db: Connection, held: Row, other: int, **arguments: Any) -> Any:
    (row,) = await rows(db, "await_job", **pair(held), other_id=other, **arguments)
    return row["outcome"], row["result"]


async def emit(db: Connection, name: str, payload: Any = None) -> bool:
    is_first: bool = await call(db, "emit_event", name=name, payload=payload)
    return is_first


async def names(db: Connection, job_id: int) -> list[str]:
    return [step["name"] for step in await rows(db, "get_steps", job_id=job_id)]


async def left_over(db: Connection) -> int:
    """Rows of steps and waits, and of rechecks of single jobs."""
    count: int = await db.fetchval(
        "select (select count(*) from pgwake.steps) + (select count(*) from"
        " pgwake.waits) + (select count(*) from pgwake.rechecks where child_id is not"
        " null)"
    )
    return count


async def test_a_step_is_recorded_once_and_comes_with_the_next_claim(
    db: Connection,
) -> None:
    held = await running(db)
    assert held["options"] is None
    assert await record(db, held, "a", {"x": None}) == {"x": None}
    assert await record(db, held, "a", 2) == {"x": None}
    assert await record(db, held, "b") is None
    await call(db, "release_jobs", **pairs(held))

    (held,) = await claim(db)
    for step in held["options"]["steps"]:
        assert (step.pop("attempt"), step.pop("at")[:2]) == (1, "20")
    assert held["options"]["steps"] == [
        {"place": 1, "name": "a", "kind": "step", "result": {"x": None}},
        {"place": 2, "name": "b", "kind": "step"},
    ]
    await record(db, held, "large", "x" * 70_000)
    await call(db, "release_jobs", **pairs(held))
    (held,) = await claim(db)
    assert held["options"]["steps"] is True
    assert await names(db, held["id"]) == ["a", "b", "large"]
