"""python -m tests.lab.chaos: every fault alone, then mixes by seed.

Runs `pgwake chaos` as a user does, on a server of its own, and holds it to what the
README promises: both accounts close, and after each restart of the server, fast or
immediate, jobs are done at nine tenths of the rate before within ten seconds of when it
accepted connections; where another fault lasted longer, of when that was over. Exit
code 1 if not.
"""

import json
import subprocess
import sys
from datetime import datetime
from typing import Any

import typer

BACK_SECONDS = 10.0


def main(
    jobs: int = 1_000_000, rate: float = 1_000, seed: int = 1, hold: float = 8
) -> None:
    """Run both and judge; jobs are those of both together."""
    common = ["--rate", str(rate), "--hold", str(hold)]
    alone = _chaos(*common, "--seed", str(seed))
    left = max(jobs - alone["account"]["enqueued"], 1)
    mixed = _chaos(*common, "--seed", str(seed + 1), "--mix", "--jobs", str(left))

    enqueued = sum(done["account"]["enqueued"] for done in (alone, mixed))
    problems = [text for done in (alone, mixed) for text in done["problems"]]
    restarts = [*_restarts(alone["faults"]), *_restarts(mixed["faults"])]
    problems += [
        f"{fault}: back at nine tenths after {seconds} s"
        for fault, seconds in restarts
        if seconds is None or seconds > BACK_SECONDS
    ]
    told = ", ".join(f"{fault} {seconds} s" for fault, seconds in restarts)
    print(f"\n{enqueued:,} jobs; back at nine tenths after restarts: {told}")  # noqa: T201
    print("\n".join(problems) or "All is as promised.")  # noqa: T201
    sys.exit(bool(problems))


def _chaos(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "pgwake", "chaos", "--json", *options]
    run = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if not run.stdout:
        sys.exit(run.returncode or 1)
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


def _restarts(faults: list[dict[str, Any]]) -> list[tuple[str, float | None]]:
    """Return how long each took, from when there was no fault any more."""
    found: list[tuple[str, float | None]] = []
    for fault in faults:
        if fault["accepting_at"] is None:
            continue
        accepting_at = datetime.fromisoformat(fault["accepting_at"])
        over_at = max(
            datetime.fromisoformat(other["ended_at"])
            for other in faults
            if other["began_at"] <= fault["accepting_at"]
        )
        waited = max((over_at - accepting_at).total_seconds(), 0.0)
        seconds = fault["recovery_seconds"]
        found.append(
            (
                fault["fault"],
                None if seconds is None else round(max(seconds - waited, 0.0), 1),
            )
        )
    return found


if __name__ == "__main__":
    typer.run(main)
