"""What a run has shown: in a file, and beside another run."""

import math
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from pgwake.errors import InvalidArgumentError, PgwakeError


class BenchRun(BaseModel):
    """What a run has shown, of which database.

    Attributes:
        at: When it ended.
        pgwake: The version.
        server: PostgreSQL's version.
        database: Which one it was, as get_adoption() tells them apart.
        jobs: How many each round has drained; other figures can't be compared.
        figures: Each figure's value in each round.
    """

    model_config = ConfigDict(frozen=True)

    at: datetime
    pgwake: str
    server: str
    database: str
    jobs: int
    figures: dict[str, tuple[FiniteFloat, ...]] = Field(min_length=1)

    @property
    def path(self) -> Path:
        """The file of the last run of its size on its database, of this user's."""
        folder = Path(os.environ.get("XDG_STATE_HOME", ""))
        if not folder.is_absolute():  # then it does not count, by XDG's specification
            folder = Path.home() / ".local" / "state"
        return folder / "pgwake" / "bench" / f"{self.database}-{self.jobs}.json"


def read(path: Path) -> BenchRun:
    """Read a run.

    Raises:
        InvalidArgumentError: There is none.
    """
    try:
        return BenchRun.model_validate_json(path.read_bytes())
    except OSError as error:
        problem = error.strerror
    except ValidationError:
        problem = "no run of pgwake bench; --json FILE writes one"
    raise InvalidArgumentError(f"{path}: {problem}")


def write(path: Path, record: BenchRun) -> None:
    """Write a run, in place of what is there.

    Raises:
        PgwakeError: It can't be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(record.model_dump_json() + "\n")
    except OSError as error:
        raise PgwakeError(f"{path}: {error.strerror}") from None


def rows(now: BenchRun, last: BenchRun | None) -> Iterator[dict[str, Any]]:
    """Return a row a figure: its median now, the range, and how it was."""
    for name, values in now.figures.items():
        row = {
            "figure": name.replace("_", " "),
            "now": number(median(values)),
            "range": f"{number(min(values))} to {number(max(values))}",
            **dict.fromkeys(("last", "ratio", "change")),
        }
        if last and (before := median(last.figures.get(name, (0,)))):
            row["last"], row["ratio"] = number(before), f"{median(values) / before:.2f}"
            row["change"] = verdict(name, now, last)
        yield row


def verdict(name: str, now: BenchRun, last: BenchRun) -> str:
    """Say what a change is that is greater than the range of either run; else "".

    With fewer than three rounds nobody knows the range.
    """
    both = now.figures[name], last.figures[name]
    ranges = [max(one) - min(one) if len(one) >= 3 else math.inf for one in both]
    change = median(both[0]) - median(both[1])
    if abs(change) <= max(ranges):
        return ""
    return "better" if (change > 0) == name.endswith("per_second") else "worse"


def number(value: float) -> str:
    """The value with three or more digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
