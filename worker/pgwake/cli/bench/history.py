"""What earlier runs have shown: kept in the user's state folder, a JSON line a run."""

import fcntl
import math
import os
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from pgwake.errors import ConfigurationError, InvalidArgumentError


class Record(BaseModel):
    """What a run has shown, of which database.

    Attributes:
        at: When it ended.
        pgwake: The version.
        server: PostgreSQL's version.
        database: Which one it was, as get_adoption() tells them apart.
        size: How much each round did; other figures can't be compared.
        figures: Each figure's value in each round.
    """

    model_config = ConfigDict(frozen=True)

    record: Literal["pgwake bench"] = "pgwake bench"
    at: datetime
    pgwake: str
    server: str
    database: str
    size: dict[str, int]
    figures: dict[str, tuple[FiniteFloat, ...]] = Field(min_length=1)

    def median(self, name: str) -> float | None:
        """Return a figure's median; None: it has none."""
        values = self.figures.get(name)
        return median(values) if values else None

    def spread(self, name: str) -> float:
        """Return the difference of a figure's largest and smallest value.

        Unknown, and therefore infinite, with fewer than three rounds.
        """
        values = self.figures.get(name, ())
        return max(values) - min(values) if len(values) >= 3 else math.inf


class History(NamedTuple):
    """What a file of runs holds, and how many of its lines are no runs."""

    records: list[Record]
    strange_lines: int

    def last(self, database: str, size: dict[str, int]) -> Record | None:
        """Return the last run of the same size on the same database."""
        same = (r for r in self.records if (r.database, r.size) == (database, size))
        return max(same, key=lambda record: record.at, default=None)


def state_path() -> Path:
    """Return the file of this user's runs."""
    folder = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not folder.is_absolute():  # then it does not count, by the XDG specification
        folder = Path.home() / ".local" / "state"
    return folder / "pgwake" / "bench.jsonl"


def read(path: Path) -> History:
    """Read a file of runs; there are none if there is no file.

    Raises:
        OSError: It can't be read.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return History([], 0)
    records = []
    for line in lines:
        try:
            records.append(Record.model_validate_json(line))
        except ValidationError:
            continue
    return History(records, sum(map(bool, lines)) - len(records))


def append(path: Path, record: Record) -> None:
    """Add a run to a file of runs, whoever else does so at once.

    Raises:
        OSError: It can't be written.
        ConfigurationError: It holds something else.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held = read(path)
        if held.strange_lines and not held.records:
            raise ConfigurationError("it holds something else: move it away")
        size = file.seek(0, os.SEEK_END)
        line = record.model_dump_json().encode() + b"\n"
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            line = b"\n" + line  # somebody's write was cut short
        if file.write(line) < len(line):
            file.truncate(size)
            raise OSError("no space is left for all of it")


def one(path: Path) -> Record:
    """Read a run that was written by --json, or the last one of a file of runs.

    Raises:
        InvalidArgumentError: There is none.
    """
    try:
        records = read(path).records
    except OSError as error:
        raise InvalidArgumentError(f"--against {path}: {error.strerror}") from None
    if not records:
        problem = "no run of pgwake bench" if path.exists() else "no such file"
        raise InvalidArgumentError(
            f"--against {path}: {problem}; --json FILE writes one"
        )
    return records[-1]
