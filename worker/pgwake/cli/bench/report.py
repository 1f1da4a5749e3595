"""The benchmark's table: now, the run before, and what differs beyond the noise."""

from typing import NamedTuple

from rich.table import Table

from pgwake.cli.bench.history import Record
from pgwake.cli.bench.measure import number


class Figure(NamedTuple):
    """What a figure is called, and whether more of it is better."""

    title: str
    more_is_better: bool = False


FIGURES = {
    "round_trip_ms": Figure("round trip of a statement, ms"),
    "commit_ms": Figure("commit that is flushed, ms"),
    "enqueue_single_per_second": Figure(
        "enqueue one by one, 10 connections, jobs/s", more_is_better=True
    ),
    "enqueue_many_per_second": Figure(
        "enqueue many a statement, jobs/s", more_is_better=True
    ),
    "enqueue_wal_bytes": Figure("  WAL of one put in alone, bytes"),
    "drain_per_second": Figure("drain, 1 worker process, jobs/s", more_is_better=True),
    "drain_worker_us": Figure("  CPU of the worker a job, us"),
    "drain_server_us": Figure("  CPU of the server a job, us"),
    "drain_wal_bytes": Figure("  WAL a job, bytes"),
    "wake_up_p50_ms": Figure("wake-up, INSERT to handler, p50, ms"),
    "wake_up_p95_ms": Figure("  p95, ms"),
    "wake_up_p99_ms": Figure("  p99, ms"),
    "wake_up_max_ms": Figure("  max, ms"),
    "steady_per_second": Figure("steady stream, jobs/s put in", more_is_better=True),
    "steady_p50_ms": Figure("  INSERT to handler, p50, ms"),
    "steady_p95_ms": Figure("  p95, ms"),
    "steady_p99_ms": Figure("  p99, ms"),
    "steady_max_ms": Figure("  max, ms"),
}


def table(now: Record, last: Record | None) -> Table:
    """Return a row a figure: its median now, the range, and how it was."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("")
    for name in ("now", "range", *(("last", "ratio") if last else ())):
        shown.add_column(name, justify="right")
    if last:
        shown.add_column("")
    for name, figure in FIGURES.items():
        values = now.figures.get(name)
        if values is None:
            continue
        row = [figure.title, number(now.median(name) or 0.0), _range(values)]
        if last:
            row += _compared(name, now, last)
        shown.add_row(*row)
    return shown


def _range(values: tuple[float, ...]) -> str:
    return f"{number(min(values))} to {number(max(values))}"


def _compared(name: str, now: Record, last: Record) -> list[str]:
    before, value = last.median(name), now.median(name)
    if before is None or value is None:
        return ["-", "-", ""]
    ratio = f"{value / before:.2f}" if before else "-"
    return [number(before), ratio, verdict(name, now, last)]


def verdict(name: str, now: Record, last: Record) -> str:
    """Say what a change is that is greater than the spread of either run; else ""."""
    before, value = last.median(name), now.median(name)
    if before is None or value is None:
        return ""
    if abs(value - before) <= max(now.spread(name), last.spread(name)):
        return ""
    is_better = (value > before) == FIGURES[name].more_is_better
    return "better" if is_better else "worse"
