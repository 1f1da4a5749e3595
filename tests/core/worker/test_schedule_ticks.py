"""When schedules tick: by cron in a time zone, by intervals, and after a pause."""

import contextlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pgwake import InvalidScheduleError, next_ticks
from pgwake.ticks import DueSchedule, _falling, _rising, plan

DAY = timedelta(days=1)
QUARTER = timedelta(minutes=15)
SPRING = datetime.fromisoformat("2027-03-27T12:00Z")  # Berlin's clock goes on at 01:00Z
AUTUMN = datetime.fromisoformat("2027-10-30T12:00Z")  # and back at 01:00Z
NOW = datetime.fromisoformat("2027-06-01T12:00:30Z")


def ticks(cron: str, zone: str, start: datetime, span: timedelta) -> list[str]:
    """The ticks from then on for so long, as the zone's clock shows them."""
    found = takewhile(
        lambda tick: tick < start + span,
        next_ticks(cron, zone, start, 500),
    )
    return [f"{tick:%m-%d %H:%M %z}" for tick in found]


def due(**changes: object) -> DueSchedule:
    fields = {
        "name": "s",
        "version": "1",
        "cron": None,
        "every": None,
        "timezone": "UTC",
        "misfire": "once",
        "misfire_limit": 100,
        "since": NOW,
        "now": NOW,
        "until": NOW + timedelta(seconds=2),
        **changes,
    }
    return DueSchedule(**fields)  # type: ignore[arg-type]


def test_a_time_that_is_skipped_ticks_once_as_soon_as_the_clock_is_past_it() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", SPRING, 2 * DAY) == [
        "03-28 03:00 +0200",
        "03-29 02:30 +0200",
    ]


def test_a_time_that_comes_twice_ticks_the_first_time() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", AUTUMN, 2 * DAY) == [
        "10-31 02:30 +0200",
        "11-01 02:30 +0100",
    ]
    between = datetime.fromisoformat("2027-10-31T01:15Z")  # 02:15 for the second time
    assert ticks("30 2 * * *", "Europe/Berlin", between, 2 * DAY)[:1] == [
        "11-01 02:30 +0100"
    ]


@pytest.mark.parametrize("night", [SPRING, AUTUMN])
def test_each_quarter_of_an_hour_is_one_of_real_time_in_both_nights(
    night: datetime,
) -> None:
    found = [
        t.astimezone(UTC)
        for t in next_ticks("*/15 * * * *", "Europe/Berlin", night, 200)
    ]
    assert found == [night + n * QUARTER for n in range(1, 201)]


def test_a_midnight_that_is_skipped_ticks_at_one() -> None:
    night = datetime.fromisoformat("2027-09-04T12:00Z")
    assert ticks("0 0 * * *", "America/Santiago", night, 2 * DAY) == [
        "09-05 01:00 -0300",
        "09-06 00:00 -0300",
    ]


@pytest.mark.parametrize(
    "zone",
    ["Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Cairo"],
)
@pytest.mark.parametrize("cron", ["30 2 * * *", "0 0 * * *", "15 1 * * *"])
def test_a_daily_schedule_ticks_once_on_each_day_of_the_year(
    zone: str, cron: str
) -> None:
    start = datetime(2027, 1, 1, tzinfo=ZoneInfo(zone)) - timedelta(seconds=1)
    days = Counter(tick.date() for tick in next_ticks(cron, zone, start, 365))
    assert len(days) == 365
    assert max(days).year == 2027


def test_an_hour_with_a_star_follows_real_time() -> None:
    assert ticks("30 * * * *", "Europe/Berlin", AUTUMN, DAY)[10:14] == [
        "10-31 00:30 +0200",
        "10-31 01:30 +0200",
        "10-31 02:30 +0200",
        "10-31 02:30 +0100",
    ]
    assert len(ticks("*/20 2 * * *", "Europe/Berlin", SPRING, DAY)) == 0
    assert len(ticks("*/20 2 * * *", "Europe/Berlin", AUTUMN, DAY)) == 6


FIELDS = [
    st.sampled_from(["*", "0", "30", "*/15", "0,30", "7-50/9"]),
    st.sampled_from(["*", "0", "1", "2", "3", "0-4/2", "*/6", "1-4"]),
    st.sampled_from(["*", "1", "28-31", "L", "*/2"]),
    st.sampled_from(["*", "3,10", "4,9", "2"]),
    st.sampled_from(["*", "SUN", "1-5", "0#1", "6L"]),
]


@settings(deadline=None)
@given(
    cron=st.tuples(*FIELDS).map(" ".join),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Santiago", "Africa/Cairo"]),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1)),  # noqa: DTZ001
)
def test_what_was_missed_is_what_was_to_come(
    cron: str, zone: str, start: datetime
) -> None:
    # Where midnight is skipped, cronsim has a tick of its day forwards alone.
    skips_midnight = zone in ("America/Santiago", "Africa/Cairo")
    minute, hour, *_ = cron.split()
    assume(not (skips_midnight and "*" in minute[0] + hour[0]))
    start = start.replace(tzinfo=UTC)
    rising = list(islice(_rising(cron, ZoneInfo(zone), start), 50))
    falling = takewhile(
        lambda tick: tick > start, _falling(cron, ZoneInfo(zone), rising[-1])
    )
    assert list(falling) == rising[::-1]


@pytest.mark.parametrize(
    ("nickname", "second"),
    [
        ("@hourly", "2027-01-01T01:00"),
        ("@daily", "2027-01-02T00:00"),
        ("@Midnight", "2027-01-02T00:00"),
        (" @weekly", "2027-01-10T00:00"),
        ("@monthly", "2027-02-01T00:00"),
        ("@yearly", "2028-01-01T00:00"),
        ("@annually", "2028-01-01T00:00"),
    ],
)
def test_nicknames_stand_for_five_fields(nickname: str, second: str) -> None:
    start = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    wanted = datetime.fromisoformat(second).replace(tzinfo=UTC)
    assert next_ticks(nickname, after=start, count=2)[1] == wanted


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("", "UTC"),
        ("* * * *", "UTC"),
        ("* * * * * *", "UTC"),
        ("61 * * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("@reboot", "UTC"),
        ("* * * * *", "Europe/Nowhere"),
        ("* * * * *", "Europe"),
        ("* * * * *", "../etc/passwd"),
        ("* * * * *", ""),
        ("* * * * *", "x\0"),
    ],
)
def test_what_can_not_be_read_is_refused(cron: str, zone: str) -> None:
    with pytest.raises(InvalidScheduleError):
        next_ticks(cron, zone)
    with pytest.raises(InvalidScheduleError):
        plan(due(cron=cron, timezone=zone))


@settings(deadline=None, max_examples=50)
@given(
    cron=st.lists(st.text("0123456*/-,#LWSUNJA@ ", max_size=6), max_size=6).map(
        " ".join
    ),
    zone=st.one_of(st.just("UTC"), st.text(max_size=20)),
)
def test_any_text_is_read_or_refused(cron: str, zone: str) -> None:
    with contextlib.suppress(InvalidScheduleError):
        plan(due(cron=cron, timezone=zone))


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="give it a time zone"):
        next_ticks("* * * * *", after=datetime(2027, 1, 1))  # noqa: DTZ001


def test_ticks_end_with_the_calendar() -> None:
    last = datetime(9999, 12, 31, 23, 58, 30, tzinfo=UTC)
    assert len(next_ticks("* * * * *", "Asia/Tokyo", last)) < 5
    with pytest.raises(InvalidScheduleError, match="does not tick"):
        plan(due(cron="0 0 1 1 *", since=last))


def test_without_after_ticks_are_those_to_come() -> None:
    assert next_ticks("* * * * *")[0] > datetime.now(UTC)


def test_the_ticks_of_the_next_two_seconds_are_fired_ahead() -> None:
    second = timedelta(seconds=1)
    start = NOW + second
    assert plan(due(every=second, since=start)) == (
        [start, start + second],
        start + 2 * second,
    )
    minute = NOW.replace(second=59)
    found = due(cron="* * * * *", now=minute, since=NOW, until=minute + 2 * second)
    assert plan(found) == (
        [NOW.replace(minute=1, second=0)],
        NOW.replace(minute=2, second=0),
    )


def test_nothing_is_fired_before_its_time() -> None:
    start = NOW + timedelta(hours=1)
    assert plan(due(cron="* * * * *", since=start)) == (
        [],
        datetime.fromisoformat("2027-06-01T13:01Z"),
    )
    assert plan(due(every=DAY, since=start)) == ([], start)


@pytest.mark.parametrize(
    "beat", [{"cron": "* * * * *"}, {"every": timedelta(minutes=1)}]
)
@pytest.mark.parametrize(
    ("misfire", "limit", "fired"),
    [
        ("once", 100, 1),
        ("skip", 100, 1),
        ("all", 100, 100),
        ("all", 10_000, 1441),
        ("all", 1, 1),
    ],
)
def test_a_day_of_missed_minutes_is_made_up_as_far_as_the_schedule_says(
    beat: dict[str, object], misfire: str, limit: int, fired: int
) -> None:
    newest = NOW.replace(second=0)
    found = due(since=newest - DAY, misfire=misfire, misfire_limit=limit, **beat)
    made, following = plan(found)
    assert len(made) == fired
    assert made == [newest - n * timedelta(minutes=1) for n in range(fired)][::-1]
    assert following == newest + timedelta(minutes=1)


def test_a_tick_over_a_minute_late_is_skipped_if_the_schedule_says_so() -> None:
    since = datetime.fromisoformat("2027-06-01T11:30Z")
    following = datetime.fromisoformat("2027-06-01T12:30Z")
    for misfire, fired in (("skip", []), ("once", [since]), ("all", [since])):
        found = due(cron="30 * * * *", since=since, misfire=misfire)
        assert plan(found) == (fired, following)


def test_years_of_missed_ticks_cost_no_more_than_what_is_fired() -> None:
    since = datetime.fromisoformat("1970-01-01T00:00Z")
    for beat in ({"cron": "* * * * *"}, {"every": timedelta(seconds=1)}):
        made, _ = plan(due(since=since, misfire="all", misfire_limit=10, **beat))
        assert len(made) <= 13
