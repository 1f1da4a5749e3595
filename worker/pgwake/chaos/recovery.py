"""How long it took until jobs were done as fast as before a fault."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pgwake.chaos.identity import Run
from pgwake.chaos.strike import Strike
from pgwake.connection import Connection

BEFORE = timedelta(seconds=5)  # over which the throughput before is measured
SHARE = 0.9
WINDOW_SECONDS = 2  # in which so many must be done that it counts as back

# By tenths of a second since the database could be had again. Rides the brin index of
# finished_at.
_BACK = """
with tenths as (
  select floor(extract(epoch from j.finished_at - $2) * 10)::int as tenth,
    count(*) as done
  from pgwake.jobs_finished as j
  where j.queue = $1 and j.finished_at >= $2
  group by tenth
)
select min(w.tenth) / 10.0
from (
  select t.tenth,
    sum(t.done) over (
      order by t.tenth range between current row and $3 following) as done
  from (
    select s.tenth, coalesce(tenths.done, 0) as done
    from generate_series(0, (select max(tenths.tenth) from tenths)) as s(tenth)
    left join tenths using (tenth)
  ) as t
) as w
where w.done >= $4
"""
_DONE = """
select count(*)::float8
from pgwake.jobs_finished as j
where j.queue = $1 and j.finished_at >= $2 and j.finished_at < $3
"""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How it went after a fault.

    Attributes:
        fault: Its name.
        before: Jobs completed a second, in the five seconds before it; no more than the
            load has, or what an earlier fault had held up would be asked for again.
        during: The same while it lasted.
        seconds: From when the server accepted connections again (else from the fault's
            end) until jobs were completed at nine tenths of the rate before, for two
            seconds; None: not yet.
    """

    fault: str
    before: float
    during: float
    seconds: float | None


async def recovery(
    connection: Connection, run: Run, strike: Strike, rate: float
) -> Recovery:
    """Measure it by the jobs' own times; ask again while its seconds are None.

    Args:
        connection: A session.
        run: The run.
        strike: What was done to it.
        rate: The load's, in jobs a second.
    """

    async def completed(since: datetime, until: datetime) -> float:
        done: float = await connection.fetchval(_DONE, run.queue, since, until)
        return done / max((until - since).total_seconds(), 0.001)

    before = min(await completed(strike.began_at - BEFORE, strike.began_at), rate)
    seconds = await connection.fetchval(
        _BACK,
        run.queue,
        strike.healed_at,
        WINDOW_SECONDS * 10 - 1,
        SHARE * before * WINDOW_SECONDS,
    )
    return Recovery(
        strike.fault,
        before,
        await completed(strike.began_at, strike.healed_at),
        None if seconds is None else float(seconds),
    )
