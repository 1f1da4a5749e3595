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

from pgwake.cli.bench.measure import Figures
from pgwake.cli.bench.results import number
from pgwake.cli.shared.output import say, show

from .measure import Run

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


def show_table(title: str, runs: Sequence[Run]) -> None:
    """Print a row a condition: medians, with the range of the first figure.

    Conditions that have other figures are a table of their own.
    """
    tables: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for condition, figures in medians(runs).items():
        first, *others = figures
        values = [one.figures[first] for one in runs if one.condition == condition]
        tables[tuple(figures)].append(
            {
                "condition": condition,
                "runs": len(values),
                first: number(figures[first]),
                "range": f"{number(min(values))} to {number(max(values))}",
                **{name: number(figures[name]) for name in others},
            }
        )
    for rows in tables.values():
        say(title)
        show(rows, as_json=False)


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
        cwd=Path(__file__).parent,
        check=False,
        capture_output=True,
        text=True,
    )
    return described.stdout.strip()
