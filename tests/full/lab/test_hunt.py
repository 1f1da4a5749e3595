"""No wake-up is lost, however close the wait and the answer are; small."""

import pytest

from lab.hunt import WITHOUT_LOCKS, Hunt
from support import PATIENCE, Connect


@pytest.mark.parametrize("for_jobs", [False, True], ids=["events", "jobs"])
async def test_who_waits_goes_on(database: str, *, for_jobs: bool) -> None:
    hunt = Hunt(database, 200, for_jobs=for_jobs, patience=PATIENCE)
    await hunt.run()
    assert (hunt.done, hunt.lost) == (200, 0)


@pytest.mark.own_database
async def test_without_the_locks_some_do_not(database: str, connect: Connect) -> None:
    await (await connect(database)).execute(WITHOUT_LOCKS)
    hunt = Hunt(database, 200, patience=3)
    await hunt.run()
    assert hunt.lost > 0
