"""The chaos engine itself, shortly: `python -m tests.lab.chaos` is the long form."""

from pathlib import Path

from lab.chaos.campaign import Plan, run
from lab.chaos.load import prepare
from lab.chaos.run import Run
from lab.chaos.stage import Stage
from pgwake.database.embedded import EmbeddedServer
from support import Connect


async def test_whatever_workers_network_and_server_suffer_every_job_is_accounted_for(
    own_server: EmbeddedServer, own_database: str, connect: Connect, tmp_path: Path
) -> None:
    here = Run("0123abcd", tmp_path)
    await prepare(await connect(own_database), here)
    plan = Plan(
        faults=["kill", "terminate", "cut", "restart-immediate"],
        rate=300,
        hold_seconds=3,
        jobs=2000,
        calm_seconds=1,
        is_mixed=True,
        seed=7,
    )

    async with Stage.set(own_database, here, server=own_server, processes=1) as stage:
        outcome = await run(stage, plan, print)

    found = outcome.account
    assert not outcome.problems, outcome
    assert {strike.fault for strike in outcome.strikes} == set(plan.faults)
    # Or it has shown nothing.
    assert found.blamed
    assert found.effects
    assert found.failed_on_purpose
    assert found.in_django
    assert found.keyed
