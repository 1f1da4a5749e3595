"""Whether a series of measurements grows.

The rule is Cox and Stuart's third test (Some quick sign tests for trend in location and
dispersion, Biometrika 42, 1955): the first third of the series is held against the
last one, pair by pair, and the signs of the differences are counted. A series grows if

- rises are so many that a fair coin would show them less than once in a thousand tries,
- the median difference is more than what the line tolerates, and
- a part of the rise lies before the middle third's median, and a part after it.

So neither noise, nor a rise that does not matter, nor a single peak or step (a session
that does something for the first time keeps its plan from then on) is a finding.

The slope is Theil's and Sen's: the median of the slopes between points (Sen, Estimates
of the regression coefficient based on Kendall's tau, JASA 63, 1968).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from statistics import median, median_low

CHANCE = 0.001
PART = 1 / 4  # of what is tolerated, that each half of a rise has to be
POINTS_AT_LEAST = 30  # ten pairs, all of which have to rise
SLOPE_POINTS = 200  # beyond that many a series is thinned out: pairs are many

Point = tuple[float, float]  # seconds, value


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much a line may rise from the first third to the last.

    Attributes:
        part: Of the first third's median.
        more: On top of it, in the line's unit.
    """

    part: float
    more: float


def grows(series: Sequence[Point], tolerance: Tolerance) -> bool | None:
    """Say whether a series grows; None if it is too short to tell."""
    if len(series) < POINTS_AT_LEAST:
        return None
    values = [value for _, value in series]
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    tolerated = tolerance.part * abs(median(first)) + tolerance.more
    rises = [after - before for before, after in zip(first, last, strict=True)]
    middle = median_low(values[third:-third])
    halves = (middle - median(first), median(last) - middle)
    return (
        median(rises) > tolerated
        and min(halves) > PART * tolerated
        and _chance(sum(one > 0 for one in rises), sum(one != 0 for one in rises))
        < CHANCE
    )


def _chance(heads: int, tosses: int) -> float:
    """How likely so many heads or more are."""
    cases = sum(comb(tosses, count) for count in range(heads, tosses + 1))
    return float(cases / 2**tosses)


def slope(series: Sequence[Point]) -> float:
    """The series' rise a second; 0 of less than two points."""
    thinned = series[:: max(len(series) // SLOPE_POINTS, 1)]
    slopes = [
        (value - before) / (at - since)
        for (since, before), (at, value) in combinations(thinned, 2)
        if at > since
    ]
    return median(slopes) if slopes else 0.0
