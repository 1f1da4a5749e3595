import pytest

from support import Connection, wait_for
from support.worker.helpers import embedded
from support.worker.registries import quick

POLICY = """
insert into pgwake.queues (name, retention_completed) values ('default', '1 minute')
"""
ENDED = """
insert into pgwake.jobs (kind, status, finished_at, finished_slot)
select 'quick', 'completed', now() - interval '1 hour',
  pgwake.finished_slot(now() - interval '1 hour')
from generate_series(1, 12000)
"""


async def test_more_than_a_step_of_retention_removes_is_not_left_for_a_minute(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.STEPS", {"retention": 60.0})
    monkeypatch.setattr(
        "pgwake.engine.upkeep.random.uniform", lambda low, _: low
    )  # at once
    await connection.execute(POLICY)
    await connection.execute(ENDED)

    async def are_gone() -> bool:
        return not await connection.fetchval(
            "select exists (select from pgwake.jobs_finished)"
        )

    async with embedded(database, quick()):
        await wait_for(are_gone)
