"""python -m tests.lab.soak: does anything grow?

Workers as users start them run jobs of every sort at a steady rate, faults strike now
and then, and memory, sessions, tables and more are measured each few seconds. Exit code
1 if a line grows, or a job is lost, doubled or unexplained.

A process that has died and was started again is another one: each is judged by itself,
from an age of a fifth of the run's length on, so that what it takes to begin with is no
finding; the table says how many lived long enough. Two supervisors with their workers
are struck by all faults; a third one is never killed or stopped. Sessions live through
a run with --faults none only. A run of less than ten minutes is not judged.
"""

import asyncio
import json
import logging
import shutil
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any

import structlog
import typer
from rich.console import Console

from lab.chaos.account import Account
from lab.chaos.faults import FAULTS, obstacle
from lab.soak.measures import LINES
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.errors import EXIT_USAGE

from . import report
from .mix import MixAccount
from .run import Outcome, Plan, run

# All but the one that needs a disk of its own, as small as it is.
DEFAULT = ",".join(name for name in FAULTS if name != "disk-full")


def main(
    minutes: Annotated[float, typer.Option(help="How long.", min=0.1)] = 20,
    rate: Annotated[float, typer.Option(help="Jobs a second.", min=1)] = 200,
    faults: Annotated[
        str, typer.Option(help="Separated by commas; none: none.")
    ] = DEFAULT,
    every: Annotated[float, typer.Option(help="Seconds between faults.", min=1)] = 30,
    hold: Annotated[float, typer.Option(help="Seconds that one lasts.", min=0)] = 5,
    seed: Annotated[int, typer.Option(help="For what is drawn.")] = 1,
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
    """Do it and print the table; exit code 1 if a line grows or the account is open."""
    names = [] if faults == "none" else faults.split(",")
    if unknown := [name for name in names if name not in FAULTS]:
        known = ", ".join(FAULTS)
        print(f"no such fault: {', '.join(unknown)}; there are {known}, or none")  # noqa: T201
        sys.exit(EXIT_USAGE)
    structlog.configure(  # that the producers' sessions are lost is what is asked for
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)
    )
    folder = Path(mkdtemp(prefix="pgwake-soak-"))
    with ExitStack() as stack:
        server = None
        if url is None:
            server = stack.enter_context(EmbeddedServer())
            url = server.url
        for name in list(names):
            if why := obstacle(name, server, restart_command):
                print(f"left out: {name}: {why}")  # noqa: T201
                names.remove(name)
        plan = Plan(minutes * 60, rate, names, every, hold, seed)
        asyncio.run(install(url))
        outcome = asyncio.run(run(url, plan, folder, server, restart_command))
    found = report.findings(outcome.samples, plan.seconds)
    problems = [
        *(f"GROWS: {LINES[one.name].name}" for one in found if one.grows),
        *outcome.account.problems,
        *outcome.problems,
    ]
    if not outcome.mix.accounts_for_every_job:
        problems.append("not every job of the mix is accounted for")
    if outcome.mix.past_left and plan.seconds >= report.SHORTEST_SECONDS:
        problems.append("jobs of long ago were not removed from the ring")
    show(outcome, found, problems)
    if json_path is not None:
        json_path.write_text(json.dumps(plain(plan, outcome, found), default=str))
    if problems:
        print(f"logs and journal: {folder}")  # noqa: T201
    else:
        shutil.rmtree(folder)
    sys.exit(bool(problems))


def show(outcome: Outcome, found: list[report.Finding], problems: list[str]) -> None:
    """Print it for people."""
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(report.as_table(found))
    faults = Counter(strike.fault for strike in outcome.strikes)
    told = {
        "faults": ", ".join(f"{n} {name}" for name, n in faults.items()) or "none",
        "samples": f"{len(outcome.samples)}, and {outcome.unanswered} unanswered",
        "account": _told(outcome.account),
        "of the mix": _told(outcome.mix),
    }
    for name, text in told.items():
        console.print(f"{name}: {text}")
    console.print(
        "\n".join(problems) or "nothing grows, and every job is accounted for"
    )


def _told(account: Account | MixAccount) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in asdict(account).items()
        if name != "problems"
    )


def plain(plan: Plan, outcome: Outcome, found: list[report.Finding]) -> dict[str, Any]:
    """Return it for programs."""
    return {
        "plan": asdict(plan),
        "lines": report.plain(found),
        "strikes": [asdict(one) for one in outcome.strikes],
        "unanswered": outcome.unanswered,
        "account": asdict(outcome.account),
        "mix": asdict(outcome.mix),
        "samples": [
            {
                "at": one.at,
                "run": one.run,
                "processes": [
                    {"of": of, "pid": process.pid, **figures}
                    for of, measured in one.processes.items()
                    for process, figures in measured.items()
                ],
            }
            for one in outcome.samples
        ],
    }


if __name__ == "__main__":
    typer.run(main)
