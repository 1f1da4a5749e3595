from pathlib import Path

from clients.together import run


async def test_the_account_of_two_languages_closes_though_each_is_killed(
    database: str, binaries: Path
) -> None:
    account = await run(database, binaries, jobs=30, languages=["bash"])

    assert not account.faults, str(account)
