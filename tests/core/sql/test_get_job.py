import pytest

from support import Connection
from support.sql.helpers import ABSENT, call, job_in, refused

STATES = ["waiting", "pending", "running", "completed", "failed", "cancelled"]


@pytest.mark.parametrize("state", STATES)
async def test_a_job_is_found_in_every_leaf_with_all_its_columns(
    db: Connection, state: str
) -> None:
    job_id = await job_in(db, state, payload={"a": 1}, metadata={"m": 1})

    found = await call(db, "get_job", job_id=job_id)
    assert found["status"] == state
    assert found == await db.fetchval(
        "select to_jsonb(j) from pgwake.jobs as j where j.id = $1", job_id
    )


WITH_A_REASON = ["force_complete_job", "force_fail_job"]
OF_ONE_JOB = ["cancel_job", "explain_job", "get_job", "retry_job", *WITH_A_REASON]


@pytest.mark.parametrize("function", OF_ONE_JOB)
@pytest.mark.parametrize("job_id", [ABSENT, None])
async def test_one_that_is_not_there_is_no_such_job(
    db: Connection, function: str, job_id: int | None
) -> None:
    reason = {"reason": "x"} if function in WITH_A_REASON else {}
    with refused("PW001"):
        await call(db, function, job_id=job_id, **reason)
