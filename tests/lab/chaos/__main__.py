"""python -m tests.lab.chaos: jobs under faults, and what became of each.

Makes every fault alone, then mixes of up to two at once by seed, while producers insert
and two supervisors with their workers, started as users start them, do the jobs. Of
fifty jobs one has steps, a child, a sleep and two waits, one ends in a transaction of
Django's, and one has a concurrency key. Then the account is drawn up from rows, journal
and strikes (account.py). Exit code 1 if a job is missing in it, if after a fault jobs
are not done at nine tenths of the rate before within a minute, or after a restart of
the server within ten seconds of when it accepted connections (where another fault
lasted longer, of when that was over). Then logs, journal and database are left to be
looked at.
"""

import asyncio
import json
import logging
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import asyncpg
import structlog
import typer

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install

from . import campaign, report
from .campaign import Outcome, Plan
from .crew import LEASE_SECONDS
from .faults import FAULTS, obstacle
from .load import prepare
from .run import Run
from .stage import Stage

CALM_SECONDS = 6.0
BACK_SECONDS = 10.0
# Twice what there may be: some server processes have not heard that their client died,
# and each slot's thread may have a session of Django's.
SETTINGS = {"max_connections": "560"}


def main(
    faults: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Only these.")
    ] = ",".join(FAULTS),
    mix: Annotated[bool, typer.Option("--mix", help="Mixes only.")] = False,
    jobs: Annotated[int, typer.Option(help="Mixes go on until so many.")] = 10**6,
    rate: Annotated[float, typer.Option(min=1, help="Jobs a second.")] = 1000,
    hold: Annotated[float, typer.Option(min=1, help="Seconds that one lasts.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the mixes and of who is hit.")] = 1,
    url: Annotated[
        str | None, typer.Option(help="A scratch database; else one is made.")
    ] = None,
    restart_command: Annotated[
        str | None, typer.Option(help="What restarts its server, with $MODE.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures there.")
    ] = None,
) -> None:
    """Do it, and print a line a fault and the account."""
    structlog.configure(  # that the producers' sessions are lost is what is asked for
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)
    )
    names = faults.split(",")
    if unknown := [name for name in names if name not in FAULTS]:
        raise typer.BadParameter(f"{', '.join(unknown)}: there are {', '.join(FAULTS)}")
    folder = Path(mkdtemp(prefix="pgwake-chaos-"))
    folder.chmod(0o755)  # the server may run as another user
    run = Run(secrets.token_hex(4), folder)
    server = EmbeddedServer(folder / "server", settings=SETTINGS) if not url else None
    for name in list(names):
        if why := obstacle(name, server, restart_command):
            say(f"left out: {name}: {why}")
            names.remove(name)
    plan = Plan(names, rate, hold, jobs, seed, min(hold, CALM_SECONDS), is_mixed=mix)
    say(
        f"run {run.name}: {rate:g} jobs/s, {len(names)} faults, --seed {seed}, "
        f"lease {LEASE_SECONDS:g} s; {folder}"
    )
    with server or nullcontext():
        place = server.url if server else str(url)
        outcome = asyncio.run(perform(place, run, plan, server, restart_command))
    say(*report.told(outcome.account, outcome.recoveries))
    late = [
        f"{fault}: back at nine tenths after {seconds:.1f} s"
        for fault, seconds in restarts(outcome)
        if seconds > BACK_SECONDS
    ]
    problems = [*outcome.problems, *late]
    say(*problems or ["All is as promised."])
    if json_path is not None:
        json_path.write_text(json.dumps(asdict(outcome), default=str))
    if problems:
        say(f"Logs, journal and the server, if it was made: {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(bool(problems))


async def perform(
    url: str,
    run: Run,
    plan: Plan,
    server: EmbeddedServer | None,
    restart_command: str | None,
) -> Outcome:
    """Do it on a database."""
    await install(url)
    connection = await asyncpg.connect(url)
    await prepare(connection, run)
    await connection.close()
    async with Stage.set(
        url,
        run,
        server=server,
        restart_command=restart_command,
        has_disk="disk-full" in plan.faults,
    ) as stage:
        return await campaign.run(stage, plan, say)


def restarts(outcome: Outcome) -> Iterator[tuple[str, float]]:
    """Yield how long each took, from when there was no fault any more."""
    for strike, recovery in zip(outcome.strikes, outcome.recoveries, strict=True):
        if strike.accepting_at is not None and recovery.seconds is not None:
            over_at = max(
                other.ended_at
                for other in outcome.strikes
                if other.began_at <= strike.accepting_at
            )
            waited = max((over_at - strike.accepting_at).total_seconds(), 0.0)
            yield strike.fault, max(recovery.seconds - waited, 0.0)


def say(*lines: str) -> None:
    """Print them."""
    print(*lines, sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    typer.run(main)
