"""What a tool leaves behind in a database."""

from support import Connection

_TABLES = """
select c.oid::regclass::text
from pg_catalog.pg_class as c
where c.relnamespace = 'pgwake'::regnamespace and c.relkind = 'r'
  -- A fold writes its mark and all sums anew; one row says when the last upkeep was.
  and c.relname not in ('count_folds', 'counts', 'count_sums', 'upkeep_turns')
order by 1
"""
_COUNTS = """
select r.queue, sum(r.enqueued), coalesce(sum(r.completed), 0),
  coalesce(sum(r.failed), 0), coalesce(sum(r.cancelled), 0),
  sum(r.live_rows), coalesce(sum(r.running_rows), 0)
from pgwake.count_rows as r
group by r.queue
order by r.queue
"""


async def census(connection: Connection) -> list[object]:
    """Count the rows of each of pgwake's tables, and sum up what is counted."""
    counts = [
        (row[0], await connection.fetchval(f"select count(*) from {row[0]}"))
        for row in await connection.fetch(_TABLES)
    ]
    return [*counts, *map(tuple, await connection.fetch(_COUNTS))]
