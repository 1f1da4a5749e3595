"""python -m tests.lab.evidence FOLDER: all that EVIDENCE.md shows, made anew.

One campaign after the other, since each wants the machine to itself; those that measure
first. What each prints goes to a file of its own in FOLDER, with the machine, the
versions and the commit beside.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

CHECKOUT = Path(__file__).resolve().parents[2]
PEERS = (
    " --reps 3 --peers pgwake:default,graphile:tuned,pgmq:tuned,pgqueuer:tuned,"
    "pgboss:tuned,bullmq:tuned,ref:tuned,refdel:tuned --out FOLDER/"
)
# The words behind `python -m`; FOLDER is the folder.
CAMPAIGNS = {
    "benchmarks": "tests.lab.benchmarks all --json FOLDER/benchmarks.json",
    "peers": "tests.lab.benchmarks.peers --tests B10,B100,C,D,E --old-n 200000"
    f"{PEERS}peers.json",
    "peers-2kb": "tests.lab.benchmarks.peers --tests B10 --payload-bytes 2000"
    f"{PEERS}peers-2kb.json",
    "upgrade-stalls": "tests.lab.upgrade_stalls",
    "chaos": "tests.lab.chaos --seed 4 --json FOLDER/chaos.json",
    "wakeups": "tests.lab.chaos.wakeups",
    "limits": "tests.lab.chaos.limits",
    "rollout": "tests.lab.chaos.rollout",
    "failover": "tests.lab.chaos.failover --rounds 3 --keep FOLDER/failover",
    "soak": "tests.lab.soak --minutes 20 --json FOLDER/soak.json",
    "hunt": "tests.lab.hunt",
    "hunt-for-jobs": "tests.lab.hunt --for-jobs --jobs 1000",
    "fuzz": "tests.lab.fuzz --inputs 10000",
    "clients": "tests.clients --jobs 20000",
    "model": "tests.lab.model",
    "image": "tests.lab.containers.image",
    "coverage": "tests.lab.line_coverage",
    "matrix": "tests.lab.matrix --keep-going",
}


def main(
    folder: Annotated[Path, typer.Argument(help="Made, if it is not there.")],
    only: Annotated[str, typer.Option(help=f"Of: {', '.join(CAMPAIGNS)}.")] = "",
) -> None:
    """Run all, some six hours, or what is named; exit code 1 if one failed."""
    names = only.split(",") if only else list(CAMPAIGNS)
    for unknown in {*names} - {*CAMPAIGNS}:
        raise typer.BadParameter(f"{unknown}: not one of {', '.join(CAMPAIGNS)}")
    sys.exit(any(run({name: CAMPAIGNS[name] for name in names}, folder).values()))


def run(campaigns: Mapping[str, str], folder: Path) -> Mapping[str, int]:
    """Run each, and print how it ended; their exit codes, by name."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    _note_surroundings(folder / "surroundings.txt")
    codes = {}
    for name, words in campaigns.items():
        began, log = time.monotonic(), folder / f"{name}.txt"
        command = shlex.split(words.replace("FOLDER", shlex.quote(str(folder))))
        codes[name] = _into(log, [sys.executable, "-m", *command])
        minutes = (time.monotonic() - began) / 60
        typer.echo(f"{name:15} exit {codes[name]} {minutes:6.1f} min  {log}")
    return codes


def _note_surroundings(log: Path) -> None:
    for command in ("date", "uname -a", "lscpu", "uptime", "git log -1 --oneline"):
        _into(log, shlex.split(command))
    _into(log, [sys.executable, "-m", "pip", "freeze"])


def _into(log: Path, command: Sequence[str]) -> int:
    with log.open("a") as file:
        file.write(f"$ {shlex.join(command)}\n")
        file.flush()
        return subprocess.run(
            command, check=False, cwd=CHECKOUT, stdout=file, stderr=subprocess.STDOUT
        ).returncode


if __name__ == "__main__":
    typer.run(main)
