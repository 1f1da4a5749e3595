"""The report: a line for each thing that was measured, and whether it grows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.table import Table

from lab.soak.measures import LINES, MB, Measure, Unit

from .sample import Process, Sample
from .verdict import Point, grows, slope

WARM_UP = 0.2  # of the run, or of a run's length of a process's life: not judged
SHORTEST_SECONDS = 600.0  # of a run that is judged: plans and caches fill for minutes
WINDOW = 0.05  # of the run, to both sides of the moments that are shown
MOMENTS = (0.1, 0.5, 1.0)
BARS = "▁▂▃▄▅▆▇█"
BUCKETS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a line.

    Attributes:
        name: Its key among LINES.
        moments: The medians about a tenth, the half and the end of the run; None:
            there was nothing to be measured then.
        per_hour: Its slope after the warm-up; of processes, the median of theirs.
        trend: The run in twenty bars.
        judged: How many series were long enough to be judged.
        of: How many there were: processes, or the one of the run.
        grows: Whether one of the judged grows; None: none was long enough.
    """

    name: str
    moments: tuple[float | None, ...]
    per_hour: float
    trend: str
    judged: int
    of: int
    grows: bool | None


def findings(samples: Sequence[Sample], seconds: float) -> list[Finding]:
    """Judge every line that was measured in a run of so many seconds."""
    return [
        finding
        for name, line in LINES.items()
        if (finding := _find(name, line, samples, seconds)) is not None
    ]


def _find(
    name: str, line: Measure, samples: Sequence[Sample], seconds: float
) -> Finding | None:
    warm_up = WARM_UP * seconds
    series: list[list[Point]]
    if line.of == "run":
        points = [(one.at, one.run[name]) for one in samples if name in one.run]
        shown = points
        series = [[point for point in points if point[0] >= warm_up]]
    else:
        # A process that takes another's place begins anew: each is compared with itself
        # alone, and is shown from a certain age on.
        of_each: dict[Process, list[Point]] = defaultdict(list)
        for one in samples:
            for process, figures in one.processes[line.of].items():
                if name in figures:
                    of_each[process].append((one.at, figures[name]))
        series = [
            [point for point in life if point[0] >= life[0][0] + warm_up]
            for life in of_each.values()
        ]
        shown = sorted(
            point
            for life in of_each.values()
            for point in life
            if point[0] >= life[0][0] + min(60, warm_up / 4)
        )
    if not shown:
        return None
    verdicts: list[bool | None] = []
    if seconds >= SHORTEST_SECONDS:
        verdicts = [grows(one, line.tolerance) for one in series]
    if line.has_ceiling and any(verdicts):
        verdicts = [any(_is_above(name, one.run) for one in samples)]
    judged = [one for one in verdicts if one is not None]
    slopes = [slope(one) for one in series if len(one) > 1]
    return Finding(
        name,
        tuple(_about(shown, moment * seconds, seconds) for moment in MOMENTS),
        median(slopes) * 3600 if slopes else 0.0,
        _bars(shown, seconds),
        len(judged),
        len(series),
        any(judged) if judged else None,
    )


def _is_above(name: str, figures: Mapping[str, float]) -> bool:
    ceiling = figures.get(f"{name}_ceiling", 0.0)
    return figures.get(name, 0.0) > ceiling


def _about(points: Iterable[Point], at: float, seconds: float) -> float | None:
    near = [value for when, value in points if abs(when - at) <= WINDOW * seconds]
    return median(near) if near else None


def _bars(points: Iterable[Point], seconds: float) -> str:
    """Draw medians from 0 up to the highest; a blank is a time without any."""
    buckets: dict[int, list[float]] = defaultdict(list)
    for at, value in points:
        buckets[min(int(at / seconds * BUCKETS), BUCKETS - 1)].append(value)
    medians = {bucket: median(values) for bucket, values in buckets.items()}
    highest = max(medians.values()) or 1
    return "".join(
        BARS[round(medians[bucket] / highest * (len(BARS) - 1))]
        if bucket in medians
        else " "
        for bucket in range(BUCKETS)
    )


def as_table(found: Iterable[Finding]) -> Table:
    """For people."""
    table = Table("", box=None, header_style="bold", pad_edge=False)
    for title in (*(f"{moment:.0%}" for moment in MOMENTS), "an hour"):
        table.add_column(title, justify="right")
    table.add_column("from start to end")
    table.add_column("verdict")
    for one in found:
        line = LINES[one.name]
        table.add_row(
            line.name,
            *("-" if at is None else _shown(at, line.unit) for at in one.moments),
            f"{'+' if one.per_hour > 0 else ''}{_shown(one.per_hour, line.unit)}",
            one.trend,
            _verdict(one, line),
        )
    return table


def _verdict(one: Finding, line: Measure) -> str:
    fine = "below its ceiling" if line.has_ceiling else "flat"
    said = {True: "GROWS", False: fine, None: "too short"}[one.grows]
    return said if line.of == "run" else f"{said} ({one.judged} of {one.of})"


def _shown(value: float, unit: Unit) -> str:
    match unit:
        case "MB":
            return f"{value / MB:,.1f} MB"
        case "%":
            return f"{value:.3f}%"
        case _:
            return f"{value:,.0f}{' B' if unit == 'B' else ''}"


def plain(found: Iterable[Finding]) -> list[dict[str, Any]]:
    """For programs; sizes in bytes."""
    return [
        {**asdict(one), "line": LINES[one.name].name, "unit": LINES[one.name].unit}
        for one in found
    ]
