"""What `pgwake chaos` says: a line a fault as it happens, and the account."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.status import Status

from pgwake.chaos.crew import LEASE_SECONDS
from pgwake.chaos.faults import FAULTS
from pgwake.chaos.identity import Run
from pgwake.chaos.recovery import Recovery
from pgwake.chaos.run import Outcome, Plan
from pgwake.chaos.stage import TEAMS
from pgwake.chaos.strike import Strike
from pgwake.cli.demo.display import Display
from pgwake.database.embedded import EmbeddedServer

NAME_WIDTH = 26


class Report:
    """Writes it; the audience of a run.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self.display = Display(console)
        self._status = Status("", console=console)  # seen on a terminal only
        self._last: Strike | None = None

    def opening(
        self,
        run: Run,
        place: str,
        plan: Plan,
        processes: int,
        left_out: Mapping[str, str],
    ) -> None:
        """Write what is going to be done, and what is not."""
        fact = self.display.fact
        self.display.title(f"pgwake chaos, run {run.name}")
        fact("database", place)
        fact(
            "workers",
            f"{TEAMS} x pgwake run --processes {processes}, through a relay; lease "
            f"{LEASE_SECONDS:g} s, so that what a fault leaves shows soon",
        )
        fact("load", f"{plan.rate:g} jobs/s into the queue {run.queue}")
        order = "mixed" if plan.is_mixed else "in turn"
        fact("faults", f"{len(plan.faults)}, {order}, --seed {plan.seed}")
        for name, why in left_out.items():
            fact("left out", f"{name}: {why}")

    def doing(self, what: str) -> None:
        """Show what is being done, while it lasts."""
        self._status.update(what)
        self._status.start()

    def done(self, strike: Strike, recovery: Recovery) -> None:
        """Write the line of a fault."""
        if self._last is None:
            self.display.title(
                f"{'fault':<18} {'lasted':>8} {'jobs/s':>8} {'before':>8}  at 90% again"
            )
        seconds = recovery.seconds
        back = "not yet" if seconds is None else f"after {seconds:.1f} s"
        if strike.accepting_at is not None:
            back += ", from when the server took connections"
        if strike.victims:
            back += f"; {len(strike.victims)} workers hit"
        is_joined = self._last is not None and strike.began_at < self._last.ended_at
        name = f"+ {strike.fault}" if is_joined else strike.fault
        self._last = strike
        lasted = (strike.ended_at - strike.began_at).total_seconds()
        self.display.line(
            f"{name:<18} {lasted:>6.1f} s {recovery.during:>8,.0f} "
            f"{recovery.before:>8,.0f}  {back}"
        )

    def over(self) -> None:
        """Show nothing any more."""
        self._status.stop()

    def account(self, outcome: Outcome) -> None:
        """Write the account, and whether it closes."""
        drawn_up = outcome.account
        self.display.title("The account, from the database's own rows")
        settled = f"{drawn_up.settled:,} INSERTs' answer was lost, and they were in"
        self._row("enqueued", drawn_up.enqueued, settled)
        self._row("completed", drawn_up.completed)
        self._row("failed", drawn_up.failed_on_purpose, "on purpose")
        if drawn_up.crashed_out:
            self._row("", drawn_up.crashed_out, "crashed too often, by faults alone")
        self._row("executions", drawn_up.executions)
        self._row("executed more than once", drawn_up.ran_again, "jobs; because of")
        for why, count in sorted(drawn_up.repeats.items()):
            self._row("", count, why)
        if drawn_up.blamed:
            told = ", ".join(f"{n} {name}" for name, n in drawn_up.blamed.items())
            self._row("blamed on faults", sum(drawn_up.blamed.values()), told)
        self._row("effects in transactions", drawn_up.effects)
        self._row("lost", drawn_up.lost)
        self._row("doubled effects", drawn_up.doubled_effects)
        back = [r.seconds for r in outcome.recoveries if r.seconds is not None]
        if back:
            self._row("as before again", f"{max(back):.1f}", "s at the latest")
        if drawn_up.closes:
            but = " But:" if outcome.problems else ""
            self.display.title(f"The account closes.{but}")
        else:
            self.display.title("THE ACCOUNT DOES NOT CLOSE. Look at:")
        for problem in outcome.problems:
            self.display.line((problem, "red"))

    def kept(self, run: Run, plan: Plan, server: EmbeddedServer | None) -> None:
        """Write what is left, how to look at it, and how it goes."""
        self.display.title(f"Kept: the workers' logs, in {run.folder}")
        if server is not None:
            self._server(server, run, plan)
            return
        self.display.line(
            f"and the jobs of {run.queue}. To remove them when you have looked:"
        )
        self.display.code(
            *(
                f"pgwake {words} --queue {run.queue} --yes"
                for words in ("cancel", "purge --status failed", "purge")
            ),
            f'psql "$PGWAKE_DATABASE_URL" -c "drop schema {run.schema} cascade"',
        )

    def _server(self, server: EmbeddedServer, run: Run, plan: Plan) -> None:
        if run.folder not in server.directory.parents:
            self.display.line(
                "The database is gone; the same again, and kept:"
                f" --keep FOLDER --seed {plan.seed}"
            )
            return
        self.display.line("and the database; its server starts again by:")
        self.display.code(
            'python -c "from pathlib import Path; '
            "from pgwake.database.embedded import EmbeddedServer; "
            f"server = EmbeddedServer(Path({str(server.directory)!r}), keep=True); "
            'server.start(); print(server.url)"'
        )

    def warning(self, run: Run, plan: Plan, sessions: int) -> None:
        """Write what will be done in somebody's database, and to others there."""
        self.display.title("In the database")
        self.display.line(
            f"{plan.rate:g} jobs/s go into the queue {run.queue}, by up to {sessions} "
            f"sessions; tables are made in the schema {run.schema}."
        )
        self.display.line("All of it is removed at the end. To others there:")
        for name in plan.faults:
            self.display.line(f"{name:<18} {FAULTS[name].for_others}")

    def _row(self, name: str, figure: int | str, told: str = "") -> None:
        shown = figure if isinstance(figure, str) else f"{figure:,}"
        self.display.line(f"{name:<{NAME_WIDTH}}{shown:>10}  {told}".rstrip())


def as_json(
    outcome: Outcome, plan: Plan, run: Run, left_out: Mapping[str, str]
) -> dict[str, Any]:
    """Return all of it as JSON values."""
    return {
        "run": run.name,
        "seed": plan.seed,
        "rate": plan.rate,
        "closes": outcome.account.closes,
        "problems": list(outcome.problems),
        "account": {
            name: value
            for name, value in asdict(outcome.account).items()
            if name != "problems"
        },
        "faults": [
            {
                "fault": strike.fault,
                "began_at": strike.began_at.isoformat(),
                "ended_at": strike.ended_at.isoformat(),
                "accepting_at": strike.accepting_at and strike.accepting_at.isoformat(),
                "victims": list(strike.victims),
                "jobs_per_second": recovery.during,
                "jobs_per_second_before": recovery.before,
                "recovery_seconds": recovery.seconds,
            }
            for strike, recovery in zip(
                outcome.strikes, outcome.recoveries, strict=True
            )
        ],
        "left_out": dict(left_out),
    }
