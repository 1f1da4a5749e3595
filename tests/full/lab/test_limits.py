from lab.chaos.limits import run


async def test_no_limit_is_exceeded_under_sixteen_claimers(database: str) -> None:
    account = await run(database, jobs=600, keys=20)

    assert account.holds, account
    # Or it has shown nothing.
    assert account.most_of_a_key[0] == account.most_of_a_key[1]
    assert account.most_of_the_big_key[0] == account.most_of_the_big_key[1]
    assert account.most_running[0] == account.most_running[1]
    assert account.most_of_a_kind[0] == account.most_of_a_kind[1]
    assert account.fair[1] < account.unfair[1] / 4
