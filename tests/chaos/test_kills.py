import pytest

from .kills import run


@pytest.mark.timeout(150)
async def test_no_job_is_lost_while_workers_are_killed(database: str) -> None:
    account = await run(database, jobs=3_000, seconds=10, seed=7)

    assert account.closes, account
    assert account.kills == 10, "or it has shown nothing"
