import asyncio
import random
from itertools import count
from pathlib import Path

import pytest

from lab.soak import report
from lab.soak.measures import LINES, MB, Of
from lab.soak.run import Plan, run
from lab.soak.sample import Process, Sample
from lab.soak.verdict import Tolerance, grows, slope
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install

SECONDS = 1200.0
EVERY = 5.0
TOLERANCE = Tolerance(0.1, 2 * MB)


def noisy(rise_per_hour: float, noise: float, points: int = 200) -> list[float]:
    dice = random.Random(1)  # noqa: S311
    return [
        90 * MB + rise_per_hour * number * EVERY / 3600 + dice.gauss(0, noise)
        for number in range(points)
    ]


def over_time(values: list[float]) -> list[tuple[float, float]]:
    return list(zip(count(0, EVERY), values, strict=False))


def test_a_growing_series_is_found_under_noise() -> None:
    values = noisy(rise_per_hour=100 * MB, noise=5 * MB)

    assert grows(over_time(values), TOLERANCE)
    assert slope(over_time(values)) * 3600 == pytest.approx(100 * MB, rel=0.1)


@pytest.mark.parametrize("noise", [0, 1 * MB, 30 * MB])
def test_a_flat_series_is_flat_however_noisy(noise: float) -> None:
    assert grows(over_time(noisy(0, noise)), TOLERANCE) is False


def test_a_peak_and_a_rise_within_the_tolerance_are_no_growth() -> None:
    peak = noisy(0, MB)
    peak[150:160] = [900.0 * MB] * 10

    assert grows(over_time(peak), TOLERANCE) is False
    assert grows(over_time(noisy(5 * MB, 0)), TOLERANCE) is False


def test_one_step_is_no_growth_and_a_second_one_is() -> None:
    step = [90.0 * MB] * 100 + [120.0 * MB] * 100
    steps = [90.0 * MB] * 70 + [120.0 * MB] * 65 + [150.0 * MB] * 65

    assert grows(over_time(step), TOLERANCE) is False
    assert grows(over_time(steps), TOLERANCE)


def test_a_series_of_a_few_points_is_not_judged() -> None:
    assert grows(over_time(noisy(1000 * MB, 0, points=29)), TOLERANCE) is None


def soaked(memory: dict[Process, dict[float, float]]) -> list[Sample]:
    """Samples of workers: what each has at which times."""
    of: Of = "worker"
    return [
        Sample(
            at,
            {},
            {
                of: {
                    process: {"worker_rss": life[at]}
                    for process, life in memory.items()
                    if at in life
                },
                "supervisor": {},
                "session": {},
            },
        )
        for at in [number * EVERY for number in range(int(SECONDS / EVERY))]
    ]


def life(begin: float, end: float, rise_per_hour: float) -> dict[float, float]:
    """A process's memory: it takes a minute to reach 90 MB, and rises from there."""
    times = [begin + number * EVERY for number in range(int((end - begin) / EVERY))]
    return {
        at: min((at - begin) / 60, 1) * 90 * MB + rise_per_hour * (at - begin) / 3600
        for at in times
    }


def judged(memory: dict[Process, dict[float, float]]) -> report.Finding:
    (finding,) = report.findings(soaked(memory), SECONDS)
    assert finding.name == "worker_rss"
    return finding


def test_a_process_that_takes_anothers_place_does_not_look_like_growth() -> None:
    # The first is killed, so that the second, which begins anew, ends higher than the
    # first began; the third has the first one's number.
    finding = judged(
        {
            Process(1, 1): life(0, 100, 0),
            Process(2, 2): life(100, 1200, 0),
            Process(1, 3): life(300, 1200, 0),
        }
    )

    assert finding.grows is False
    assert (finding.judged, finding.of) == (2, 3)


def test_one_process_that_leaks_is_found_among_others_that_are_killed() -> None:
    finding = judged(
        {
            Process(1, 1): life(0, 1200, 200 * MB),
            **{
                Process(number, number): life(60 * number, 60 * number + 60, 0)
                for number in range(2, 18)
            },
        }
    )

    assert finding.grows
    assert (finding.judged, finding.of) == (1, 17)


def test_where_no_process_lives_long_nothing_is_said_of_them() -> None:
    finding = judged({Process(1, 1): life(0, 300, 1000 * MB)})

    assert finding.grows is None


def test_a_short_soak_has_every_line_and_accounts_for_every_job(
    own_server: EmbeddedServer, tmp_path: Path
) -> None:
    plan = Plan(
        seconds=8,
        rate=60,
        faults=["terminate", "cut"],
        every=2,
        hold=1,
        seed=1,
        processes=1,
    )
    asyncio.run(install(own_server.url))

    outcome = asyncio.run(run(own_server.url, plan, tmp_path, own_server))

    assert outcome.account.accounts_for_every_job, outcome.account
    assert outcome.mix.accounts_for_every_job, outcome.mix
    assert outcome.strikes
    found = report.findings(outcome.samples, plan.seconds)
    assert [one.name for one in found] == list(LINES)
    assert all(one.grows is None for one in found), "too short to be judged"
