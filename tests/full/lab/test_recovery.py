"""Recovery, from jobs that have finished at chosen times."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lab.chaos.recovery import recovery
from lab.chaos.run import Run, Strike
from support import Connection

BEGAN_AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run("0123abcd", Path())
FINISHED = """
insert into pgwake.jobs_finished (queue, kind, status, finished_at, finished_slot)
select $1, 'chaos', 'completed', $2::timestamptz + s.number * $3::interval, 1
from generate_series(0, $4::int) as s(number)
"""


def at(seconds: float) -> datetime:
    return BEGAN_AT + timedelta(seconds=seconds)


@pytest.fixture
async def finished(connection: Connection) -> Connection:
    """100 jobs a second for ten; 10 a second for six; none for one; 100 for eight."""
    for first, a_second, seconds in ((-10, 100, 10), (0, 10, 6), (7, 100, 8)):
        pause = timedelta(seconds=1) / a_second
        count = a_second * seconds - 1
        await connection.execute(FINISHED, RUN.queue, at(first), pause, count)
    return connection


async def test_it_lasts_until_two_seconds_have_nine_tenths_of_the_jobs_of_before(
    finished: Connection,
) -> None:
    found = await recovery(finished, RUN, Strike("cut", at(0), at(4)), rate=150)

    assert (found.before, found.during) == (100, 10)
    assert found.seconds == 2.8, "180 of the 200 that follow upon 6.8 s"


async def test_it_counts_from_when_the_server_takes_connections(
    finished: Connection,
) -> None:
    restart = Strike("restart-fast", at(0), at(7.5), accepting_at=at(7))

    assert (await recovery(finished, RUN, restart, rate=150)).seconds == 0


async def test_no_more_is_asked_for_than_the_load_has(finished: Connection) -> None:
    found = await recovery(finished, RUN, Strike("cut", at(0), at(4)), rate=5)

    assert (found.before, found.seconds) == (5, 0)


async def test_where_there_is_less_to_the_end_it_has_not_come(
    finished: Connection,
) -> None:
    found = await recovery(finished, RUN, Strike("cut", at(14), at(20)), rate=150)

    assert (found.before, found.seconds) == (100, None)
