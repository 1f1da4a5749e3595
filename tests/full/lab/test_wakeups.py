from lab.chaos.wakeups import run


async def test_no_worker_sleeps_over_a_job(database: str) -> None:
    account = await run(database, jobs=700, seed=7)

    assert account.completed == account.jobs >= 700
    assert account.rolled_back > 20, "or it has shown little"
