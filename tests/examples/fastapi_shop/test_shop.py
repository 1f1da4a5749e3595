"""The shop's own tests: pytest."""

import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncSession

from database import Order, sessions
from pgwake.testing import Jobs

pytestmark = pytest.mark.anyio


async def test_an_order_gets_its_receipt(
    client: AsyncClient, pgwake_jobs: Jobs
) -> None:
    response = await client.post("/orders", params={"email": "ada@example.org"})
    sold = response.json()

    (run,) = await pgwake_jobs.run_due()
    assert (run.id, run.status) == (sold["job"], "completed")
    assert run.result == {"sent_to": "ada@example.org"}
    async with sessions() as session:
        assert (await session.get_one(Order, sold["order"])).receipts == 1


async def test_an_order_that_is_refused_gets_none(
    client: AsyncClient, pgwake_jobs: Jobs
) -> None:
    response = await client.post("/orders", params={"email": "nowhere"})

    assert response.status_code == 422
    await pgwake_jobs.assert_not_enqueued("send_receipt")


async def test_a_job_can_be_seen_before_the_commit(
    client: AsyncClient, session: AsyncSession, pgwake_jobs: Jobs
) -> None:
    response = await client.post("/orders", params={"email": "bo@example.org"})

    order = {"order": response.json()["order"]}
    await pgwake_jobs.on(session).assert_enqueued("send_receipt", order)
    await pgwake_jobs.assert_not_enqueued("send_receipt")
