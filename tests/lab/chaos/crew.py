"""The workers that faults are done to, started as users start them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO

from pgwake.errors import PgwakeError

from .run import Run

CHECKOUT = Path(__file__).resolve().parents[3]

# Short, so that what a fault leaves behind shows within seconds. A process that a busy
# machine holds up for as long loses its jobs: they run again, and the account says why.
LEASE_SECONDS = 8.0
STALL_SECONDS = 6.0
QUERY_TIMEOUT_SECONDS = 3.0
POLL_SECONDS = 1.0
GRACE_SECONDS = 5.0

START_SECONDS = 120.0
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.05
LOG_TAIL_LINES = 20


class Team:
    """A supervisor, `pgwake run`, and its worker processes.

    Args:
        command: What starts it.
        environment: Its environment.
        log_path: Where its log goes: JSON, a line an event.

    Attributes:
        log_path: The same.
    """

    def __init__(
        self, command: list[str], environment: dict[str, str], log_path: Path
    ) -> None:
        self._command = command
        self._environment = environment
        self.log_path = log_path
        log_path.touch()
        self._log: IO[bytes] = log_path.open("rb")
        self._partial = b""
        self._pids: dict[str, int] = {}
        self._working: set[str] = set()
        self._has_begun = False  # a supervisor hears signals before it starts a process
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=CHECKOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is ours to forward
            )

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def is_up(self) -> bool:
        """Whether the supervisor has not ended."""
        return self._process.poll() is None

    def workers(self) -> dict[str, int]:
        """Return its worker processes by name: their process ids.

        Without the quarantine: it comes and goes, and its id may be somebody else's.
        """
        self._read()
        return {name: pid for name, pid in self._pids.items() if _is_there(pid)}

    def working(self) -> int:
        """Return how many of them have begun to work."""
        return len(self._working & self.workers().keys())

    def start_again(self) -> None:
        """Start another in place of one that has ended."""
        self._read()
        self._pids.clear()  # nobody would say when they end
        self._has_begun = False
        self._process = self._start()

    def send(self, number: signal.Signals) -> None:
        """Send the supervisor a signal."""
        self._process.send_signal(number)

    def stop(self) -> int | None:
        """Wait for its end; its exit code, None if it had to be killed.

        0 too for one that was told to stop before it had begun: it ends as any program
        does while it starts.
        """
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            for pid in self.workers().values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return None
        else:
            self._read()
            return 0 if code == -signal.SIGTERM and not self._has_begun else code
        finally:
            self._log.close()

    def log_tail(self) -> list[str]:
        """Return the last lines of its log."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return lines[-LOG_TAIL_LINES:]

    def _read(self) -> None:
        *lines, self._partial = (self._partial + self._log.read()).split(b"\n")
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a traceback's
            match entry:
                case {"event": "process started", "suspects": False}:
                    self._pids[entry["name"]] = entry["pid"]
                    self._has_begun = True
                case {"event": "process died"}:
                    self._pids.pop(entry["name"], None)
                case {"event": "worker started"}:
                    self._working.add(entry["worker"])


class Crew:
    """All of them.

    Args:
        run: What they work for.
        url: The database's URL, as they see it.
        teams: How many supervisors there are.
        processes: Worker processes of each.
        slots: Jobs that a worker process runs at once.
        options: More words for `pgwake run`.

    Attributes:
        teams: Each supervisor with its workers.
        problems: Who did not stop as it should.
    """

    def __init__(
        self,
        run: Run,
        url: str,
        *,
        teams: int,
        processes: int,
        slots: int,
        options: Sequence[str],
    ) -> None:
        self._command = [
            *(sys.executable, "-m", "pgwake", "run"),
            *("--import", "tests.lab.chaos.handlers"),
            *("--import", "tests.lab.chaos.django_handlers"),
            *("--queue", f"{run.queue}:{slots}"),
            *("--processes", str(processes)),
            *options,
        ]
        self._processes = processes
        self._environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("PGWAKE_")
            },
            "PGWAKE_DATABASE_URL": url,
            "PGWAKE_LEASE": str(LEASE_SECONDS),
            "PGWAKE_STALL_TIMEOUT": str(STALL_SECONDS),
            "PGWAKE_QUERY_TIMEOUT": str(QUERY_TIMEOUT_SECONDS),
            "PGWAKE_POLL_INTERVAL": str(POLL_SECONDS),
            "PGWAKE_GRACE": str(GRACE_SECONDS),
            "PGWAKE_HTTP_PORT": "0",
            "PGWAKE_LOG_FORMAT": "json",
            "PGWAKE_LOG_LEVEL": "info",
            "PGWAKE_LOG_JOBS_PER_SECOND": "0",
            "PGWAKE_CHAOS_JOURNAL": str(run.journal),
            "PGWAKE_CHAOS_SCHEMA": run.schema,
        }
        self._folder = run.folder
        self._count = teams
        self.teams: list[Team] = []
        self.problems: list[str] = []

    def start(self) -> None:
        """Start all."""
        for number in range(1, self._count + 1):
            self.teams.append(self.team(f"workers-{number}"))

    def team(self, name: str) -> Team:
        """Start one like those of the crew; its log has the name."""
        log = self._folder / f"{name}.log"
        return Team(self._command, self._environment, log)

    async def until_working(self) -> None:
        """Wait until all work.

        Raises:
            PgwakeError: One has ended, or does not begin; its log's end follows.
        """
        deadline = monotonic() + START_SECONDS
        for team in self.teams:
            while team.working() < self._processes:
                if not team.is_up or monotonic() > deadline:
                    told = ["the workers don't start; their log:", *team.log_tail()]
                    raise PgwakeError("\n".join(told))
                await asyncio.sleep(LOOK_SECONDS)

    def workers(self) -> dict[str, int]:
        """Return all worker processes by name, as in claimed_by: their process ids."""
        return {
            name: pid for team in self.teams for name, pid in team.workers().items()
        }

    def stop(self) -> None:
        """Stop all; note in problems who has not stopped as it should."""
        teams, self.teams = self.teams, []
        for team in teams:
            team.send(signal.SIGCONT)  # whatever has been cut short
            team.send(signal.SIGTERM)  # once: a second one means at once
        for team in teams:
            code = team.stop()
            if code != 0:
                how = "hung" if code is None else f"ended with exit code {code}"
                self.problems.append(f"a supervisor {how} at its stop: {team.log_path}")


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
