"""Tables for people, JSON for programs."""

import os
import platform
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
from rich.console import Console
from rich.table import Table

from pgwake.cli.bench.measure import Figures, number

from .measure import CHECKOUT, Run

SETTINGS = """
select name, current_setting(name) as value from pg_settings
where name in (
  'server_version', 'shared_buffers', 'max_connections', 'fsync', 'synchronous_commit',
  'full_page_writes', 'wal_level', 'wal_compression', 'jit', 'autovacuum')
"""


def medians(runs: Sequence[Run]) -> dict[str, Figures]:
    """Each condition's median figures."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for name, value in run.figures.items():
            values[run.condition][name].append(value)
    return {
        condition: {name: median(of_name) for name, of_name in figures.items()}
        for condition, figures in values.items()
    }


def as_table(title: str, runs: Sequence[Run]) -> Table:
    """A row a condition: medians, with the range of the first figure."""
    conditions = medians(runs)
    names = list(dict.fromkeys(name for one in conditions.values() for name in one))
    table = Table("", "runs", title=title, box=None, title_justify="left")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for condition, figures in conditions.items():
        of_condition = [run.figures for run in runs if run.condition == condition]
        cells = [number(figures[name]) if name in figures else "" for name in names]
        firsts = [one[names[0]] for one in of_condition if names[0] in one]
        if len(firsts) > 1:
            cells[0] += f" ({number(min(firsts))} to {number(max(firsts))})"
        table.add_row(condition, str(len(of_condition)), *cells)
    return table


def show_table(title: str, runs: Sequence[Run]) -> None:
    """Print it, as wide as it is where nobody's terminal limits it."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(as_table(title, runs))


async def surroundings(url: str) -> dict[str, Any]:
    """Where and what was measured."""
    connection = await asyncpg.connect(url)
    settings = {row["name"]: row["value"] for row in await connection.fetch(SETTINGS)}
    await connection.close()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "processors": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": os.getloadavg()[0],
        },
        "server": settings,
    }


def _commit() -> str:
    """The checkout's commit, marked where files differ from it; "" outside of git."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )
    return described.stdout.strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
