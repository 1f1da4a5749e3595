"""How long it took until jobs were done as fast as before a fault."""

from dataclasses import dataclass
from datetime import timedelta

from pgwake.database.connection import Connection

from .run import Run, Strike

BEFORE = timedelta(seconds=5)  # over which the throughput before is measured
SHARE = 0.9
WINDOW_SECONDS = 2  # in which so many must be done that it counts as back

# In one look, by tenths of a second from when the database could be had again.
_LOOK = """
with tenths as (
  select floor(extract(epoch from j.finished_at - $3) * 10)::int as tenth,
    count(*) filter (where j.finished_at < $2) as before,
    count(*) filter (where j.finished_at >= $2 and j.finished_at < $3) as during,
    count(*) filter (where j.finished_at >= $3) as since
  from pgwake.jobs_finished as j
  where j.queue = $1 and j.finished_at >= $2::timestamptz - $4::interval
  group by tenth
), rates as (
  select coalesce(sum(t.before), 0) / extract(epoch from $4::interval) as before,
    coalesce(sum(t.during), 0)
      / greatest(extract(epoch from $3::timestamptz - $2), 0.001) as during
  from tenths as t
), windows as (
  select every.tenth, sum(t.since) over (
    order by every.tenth range between current row and $5 following) as done
  from generate_series(0, (select max(t.tenth) from tenths as t)) as every(tenth)
  left join tenths as t using (tenth)
)
select least(r.before, $6::float8)::float8, r.during::float8, (
  select min(w.tenth) / 10.0 from windows as w
  where w.done >= $7::float8 * ($5 + 1) / 10 * least(r.before, $6)
)::float8
from rates as r
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
    row = await connection.fetchrow(
        _LOOK,
        run.queue,
        strike.began_at,
        strike.healed_at,
        BEFORE,
        WINDOW_SECONDS * 10 - 1,
        rate,
        SHARE,
    )
    assert row is not None, "sums are one row"
    return Recovery(strike.fault, *row)
