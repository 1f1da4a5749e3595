from typing import Any

import pytest

from sql.helpers import ABSENT, Row, call, insert, job, pair, refused, running
from support import Connection

ENDS: dict[str, Any] = {
    "completed": lambda c, held: call(c, "complete_job", **pair(held), result={"r": 1}),
    "failed": lambda c, held: call(c, "fail_job", **pair(held), retryable=False),
    "cancelled": lambda c, held: call(c, "cancel_job", job_id=held["id"]),
}


async def get(connection: Connection, job_id: int | None) -> Row:
    found: Row = await call(connection, "get_job", job_id=job_id)
    return found


@pytest.mark.parametrize("state", ["waiting", "pending", "running", *ENDS])
async def test_a_job_is_found_in_every_leaf_with_all_its_columns(
    connection: Connection, state: str
) -> None:
    if state in ("waiting", "pending"):
        job_id = await insert(connection, status=state)
    else:
        held = await running(connection)
        job_id = held["id"]
    if state in ENDS:
        await ENDS[state](connection, held)
    if state == "cancelled":
        await call(connection, "fail_job", **pair(held))

    found = await get(connection, job_id)
    row = await job(connection, job_id)
    assert found["status"] == state
    assert list(found) == list(row)
    assert {column: found[column] for column in ("id", "payload", "result")} == {
        column: row[column] for column in ("id", "payload", "result")
    }


@pytest.mark.parametrize("job_id", [ABSENT, None])
async def test_one_that_is_not_there_is_no_such_job(
    connection: Connection, job_id: int | None
) -> None:
    with refused("PW001"):
        await get(connection, job_id)
