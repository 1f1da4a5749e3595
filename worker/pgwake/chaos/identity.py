"""Which run it is: all that it makes in a database or a folder carries its name."""

from dataclasses import dataclass
from pathlib import Path


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
