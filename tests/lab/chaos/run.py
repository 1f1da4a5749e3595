"""A run: all that it makes in a database or a folder carries its name."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

KIND = "chaos"  # of its jobs
STEPS_KIND = "chaos.steps"  # of those with steps; a child of each is of the first kind
DJANGO_KIND = "chaos.django"  # of those that end in Django's transaction, in a thread
ASYNC_DJANGO_KIND = "chaos.django.async"  # of those that do so in an async handler
DJANGO_KINDS = (DJANGO_KIND, ASYNC_DJANGO_KIND)
KINDS = (KIND, STEPS_KIND, *DJANGO_KINDS)
ON_PURPOSE = "on purpose"  # what a handler says that fails because it should


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        name: Told from all others: eight hexadecimal digits.
        folder: Where its workers' logs and their handlers' journal go.
    """

    name: str
    folder: Path

    @property
    def queue(self) -> str:
        """Its queue."""
        return f"chaos-{self.name}"

    @property
    def schema(self) -> str:
        """The schema of the tables that are its own."""
        return f"pgwake_chaos_{self.name}"

    @property
    def journal(self) -> Path:
        """The folder in which each worker process notes what it executes."""
        return self.folder / "journal"

    @property
    def calls(self) -> Path:
        """The folder in which it notes the calls of steps' functions."""
        return self.folder / "calls"


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that was made, in the server's clock.

    Attributes:
        fault: Its name.
        began_at: When it began.
        ended_at: When it was mended.
        victims: The workers that it hit, by their names in claimed_by, where it hits
            workers.
        accepting_at: When the server accepted connections again, after a restart.
    """

    fault: str
    began_at: datetime
    ended_at: datetime
    victims: tuple[str, ...] = ()
    accepting_at: datetime | None = None

    @property
    def healed_at(self) -> datetime:
        """From when on all could be as before."""
        return self.accepting_at or self.ended_at


def django_application_name(schema: str, pid: int) -> str:
    """Return the application_name that a process's Django sessions have in a run."""
    return f"{schema}:django:{pid}"


class Execution(NamedTuple):
    """One that the journal knows."""

    job_id: int
    began_at: float  # seconds since 1970
    serial: int


def executions(journal: Path) -> Iterator[Execution]:
    """Yield those of all processes; a line torn by a kill had begun nothing."""
    for path in journal.glob("*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                job_id, _, _, _, began_at, serial = line.split("\t")
                yield Execution(int(job_id), float(began_at), int(serial))
