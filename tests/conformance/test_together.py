"""All languages at once."""

from pathlib import Path

from conformance.together import run


async def test_the_account_of_all_languages_together_closes_though_each_is_killed(
    database: str, binaries: Path
) -> None:
    account = await run(database, binaries, jobs=400)

    assert not account.faults, str(account)
