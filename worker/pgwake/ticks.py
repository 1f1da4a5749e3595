"""When a schedule ticks: cron in a time zone, intervals, and what was missed.

Times in a zone are cronsim's, which are those of Debian's cron: see next_ticks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count as numbers
from itertools import dropwhile, islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pgwake.errors import InvalidScheduleError

MISFIRE_GRACE = timedelta(minutes=1)  # how late misfire = skip still fires a tick

# A clock that is put back by daylight saving comes by the same local times again.
_FOLD = timedelta(hours=3)
_INSTANT = timedelta(microseconds=1)

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule that is to be looked at, as due_schedules() answers."""

    name: str
    version: str
    cron: str | None
    every: timedelta | None
    timezone: str
    misfire: str
    misfire_limit: int
    since: datetime  # no tick is earlier
    now: datetime  # by the database's clock
    until: datetime  # ticks up to then are to be fired


def next_ticks(
    cron: str,
    timezone: str = "UTC",
    after: datetime | None = None,
    count: int = 5,
) -> list[datetime]:
    """Return the next ticks of a cron expression, in its time zone.

    Where daylight saving begins, a time that is skipped ticks once, as soon as the
    clock is past it; where it ends, a time that comes twice ticks the first time. But
    if the minute or the hour begins with a star, what passes is real time: */15 ticks
    each quarter of an hour in both nights, and an hour that does not come is left out.

    Args:
        cron: Five fields, or @hourly, @daily, @weekly, @monthly, @yearly.
        timezone: A name such as Europe/Berlin.
        after: The ticks are later than this; default now, by this machine's clock.
        count: How many; fewer if they don't come within 50 years.

    Raises:
        InvalidScheduleError: The expression or the time zone can't be read.
        ValueError: `after` has no time zone.
    """
    if after is None:
        after = datetime.now(UTC)
    elif after.tzinfo is None:
        raise ValueError(f"after {after}: give it a time zone")
    zone = _zone(timezone)
    rising = _rising(cron, zone, after.astimezone(UTC))
    return [tick.astimezone(zone) for tick in islice(rising, count)]


def plan(due: DueSchedule) -> tuple[list[datetime], datetime]:
    """Return the ticks to be fired now, in order, and the next one.

    Raises:
        InvalidScheduleError: cron or timezone can't be read, or there is no next tick.
    """
    limit = due.misfire_limit if due.misfire == "all" else 1
    ticks = list(islice(takewhile(lambda t: t >= due.since, _missed(due)), limit))
    if due.misfire == "skip":
        ticks = [tick for tick in ticks if tick >= due.now - MISFIRE_GRACE]
    ticks.reverse()
    for tick in _coming(due):
        if tick > due.until:
            return ticks, tick
        ticks.append(tick)
    raise InvalidScheduleError(f"cron {due.cron!r} does not tick within 50 years")


def _missed(due: DueSchedule) -> Iterator[datetime]:
    """Ticks up to now, the newest first; not all of them are since `since`."""
    if due.every is not None:
        last = (due.now - due.since) // due.every
        return (due.since + n * due.every for n in range(last, -1, -1))
    return _falling(due.cron or "", _zone(due.timezone), due.now)


def _coming(due: DueSchedule) -> Iterator[datetime]:
    """Ticks after now that are since `since`."""
    after = due.now if due.since <= due.now else due.since - _INSTANT
    if due.every is not None:
        first = max((after - due.since) // due.every + 1, 0)
        return (due.since + n * due.every for n in numbers(first))
    return _rising(due.cron or "", _zone(due.timezone), after)


def _rising(cron: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    # In the hour that comes twice cronsim begins with its first coming.
    return dropwhile(lambda tick: tick <= after, _ticks(cron, zone, after))


def _falling(cron: str, zone: tzinfo, now: datetime) -> Iterator[datetime]:
    ticks = _ticks(cron, zone, now + _FOLD, reverse=True)
    return dropwhile(lambda tick: tick > now, ticks)


def _ticks(
    cron: str, zone: tzinfo, start: datetime, *, reverse: bool = False
) -> Iterator[datetime]:
    """Ticks after, or before, about that time: in UTC, where the order is one."""
    expression = _NICKNAMES.get(cron.strip().lower(), cron)
    if len(expression.split()) != 5:  # cronsim takes a sixth for seconds
        raise InvalidScheduleError(f"cron {cron!r} does not have five fields")
    try:
        for tick in CronSim(expression, start.astimezone(zone), reverse):
            yield tick.astimezone(UTC)
    except CronSimError as error:
        raise InvalidScheduleError(f"cron {cron!r}: {error}") from None
    except (OverflowError, ValueError):  # the end of the calendar
        return


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidScheduleError(
            f"time zone {name!r} is not known here: install tzdata, or use another name"
        ) from None
