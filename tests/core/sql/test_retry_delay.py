"""least(cap, base * 2^(attempt - 1)) * (1 - jitter * draw), at least 100 ms"""

from datetime import timedelta

import pytest

from support import Connection
from support.sql.helpers import call

SECOND = timedelta(seconds=1)


async def delay(db: Connection, attempt: int, **arguments: object) -> timedelta:
    result: timedelta = await call(db, "retry_delay", attempt=attempt, **arguments)
    return result


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [(1, 1), (2, 2), (3, 4), (11, 1024), (12, 2048), (13, 3600), (10000, 3600)],
)
async def test_it_doubles_from_a_second_up_to_an_hour(
    db: Connection, attempt: int, seconds: int
) -> None:
    assert await delay(db, attempt, draw=0) == seconds * SECOND


@pytest.mark.parametrize("draw", [0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("jitter", [None, 0, 0.5, 1])
async def test_a_share_of_it_is_drawn(
    db: Connection, jitter: float | None, draw: float
) -> None:
    share = 1 - (1 if jitter is None else jitter) * draw
    arguments = {"base": 8 * SECOND, "cap": 20 * SECOND, "jitter": jitter, "draw": draw}

    assert await delay(db, 1, **arguments) == share * 8 * SECOND
    assert await delay(db, 9, **arguments) == share * 20 * SECOND


@pytest.mark.parametrize("base", [0 * SECOND, SECOND])
async def test_it_is_never_less_than_a_tenth_of_a_second(
    db: Connection, base: timedelta
) -> None:
    assert await delay(db, 9, base=base, draw=1) == SECOND / 10


async def test_a_base_of_nothing_still_waits(db: Connection) -> None:
    delays = {await delay(db, n, base=0 * SECOND) for n in (1, 20, 10000)}

    assert delays == {SECOND / 10}


@pytest.mark.parametrize("attempt", [-2147483648, -1, 0])
async def test_an_attempt_before_the_first_counts_as_the_first(
    db: Connection, attempt: int
) -> None:
    assert await delay(db, attempt, draw=0) == SECOND


@pytest.mark.parametrize(
    "base", [("1 microsecond", 1e-6), ("1 second", 1), ("1 day", 86400)]
)
@pytest.mark.parametrize("cap", [("0", 0), ("24:00:00", 86400), ("365 days", 31536000)])
@pytest.mark.parametrize("attempt", [31, 64, 1000, 10000, 2147483647])
async def test_no_attempt_overflows(
    db: Connection, base: tuple[str, float], cap: tuple[str, float], attempt: int
) -> None:
    result = await db.fetchval(
        "select pgwake.retry_delay("
        "$1, $2::text::interval, $3::text::interval, draw => 0)",
        attempt,
        base[0],
        cap[0],
    )
    expected = max(0.1, min(cap[1], base[1] * 2.0 ** min(attempt - 1, 1000)))
    assert result.total_seconds() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        "10000, base => '178000000 years', cap => '178000000 years', draw => 0",
        "1, cap => '178000000 years', base => '100000 years', draw => 0",
        "1, jitter => '-Infinity', draw => 1",
        "1, jitter => 'NaN'",
        "1, draw => '-1e308'",
        "1, draw => '-1e308', base => '2 seconds'",
        "1, draw => '-1e308', jitter => '1e308', base => '1 hour'",
    ],
)
async def test_it_is_never_more_than_ten_thousand_years(
    db: Connection, arguments: str
) -> None:
    assert await db.fetchval(
        f"select pgwake.retry_delay({arguments}) = interval '1 s' * 315576000000"
    )


@pytest.mark.parametrize("draw", ["1e308", "Infinity"])
async def test_nothing_that_is_drawn_overflows_below(db: Connection, draw: str) -> None:
    assert await db.fetchval(
        f"select pgwake.retry_delay(1, base => '2 seconds', draw => '{draw}')"
        " = interval '100 ms'"
    )


async def test_it_is_spread_over_the_whole_range(db: Connection) -> None:
    rows = await db.fetch(
        "select extract(epoch from pgwake.retry_delay(13))::float8 / 3600"
        " from generate_series(1, 1000)"
    )
    shares = sorted(share for (share,) in rows)
    tenths = [
        sum(n / 10 <= share < (n + 1) / 10 for share in shares) for n in range(10)
    ]

    assert min(tenths) > 40  # of 100 to be expected; less is one in ten billion
