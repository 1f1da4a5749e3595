"""What a run leaves in a database that is not its own, and how it goes."""

from pgwake.chaos import KIND
from pgwake.chaos.identity import Run
from pgwake.connection import Connection, connect

CLEAN_SECONDS = 600.0

_MAY = """
select pg_catalog.has_database_privilege(current_database(), 'create')
  and pg_catalog.pg_has_role(n.nspowner, 'usage')
from pg_catalog.pg_namespace as n
where n.nspname = 'pgwake'
"""
# As its owner, who may: purge and cancel would leave what a dead worker still has, and
# the counts of a queue that nobody will use again. Folds of these wait: lock 2.
_CLEAN = (
    "select pg_catalog.pg_advisory_xact_lock(1885828971, 2)",
    "delete from pgwake.jobs where queue = $1",
    "delete from pgwake.looks where queue = $1",
    "delete from pgwake.workers where $1 = any (queues)",
    "delete from pgwake.tallies where queue = $1",
    "delete from pgwake.tally_sums where queue = $1",
    "delete from pgwake.tally_leaves where queue = $1",
)
_DROP = "drop schema if exists {0} cascade"
_FORGET_KIND = "delete from pgwake.kinds where name = $1"


async def may_clean(connection: Connection) -> bool:
    """Whether this session may make a run's schema, and remove all of a run."""
    answer: bool = await connection.fetchval(_MAY)
    return answer


async def clean(url: str, run: Run) -> None:
    """Remove all of a run.

    Raises:
        asyncpg.PostgresError: The database refuses it.
    """
    connection = await connect(url, run.queue, CLEAN_SECONDS)
    try:
        async with connection.transaction():
            for statement in _CLEAN:
                arguments = [run.queue] if "$1" in statement else []
                await connection.execute(statement, *arguments)
            await connection.execute(_FORGET_KIND, KIND)
            await connection.execute(_DROP.format(run.schema))
    finally:
        connection.terminate()
