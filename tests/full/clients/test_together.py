"""All languages at once."""

from pathlib import Path

import pytest

from clients.together import run


@pytest.mark.timeout(120)  # thirty processes start: 10 s where nothing else runs
async def test_the_account_of_all_languages_together_closes_though_each_is_killed(
    database: str, binaries: Path
) -> None:
    account = await run(database, binaries, jobs=300)

    assert not account.faults, str(account)
