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
_DELETE = "delete from pgwake."
# A fold in progress would write the counts anew.
_NO_FOLD = "select pg_catalog.pg_advisory_xact_lock(1885828971, 2)"


async def may_clean(connection: Connection) -> bool:
    """Whether this session may make a run's schema, and remove all of a run."""
    answer: bool = await connection.fetchval(_MAY)
    return answer


def traces_of(run: Run) -> list[str]:
    """Return the statements that remove all of a run, for the owner of schema pgwake.

    By the rows: cancel_jobs and purge would leave what a dead worker still has, and the
    counts of a queue that nobody will use again.
    """
    tables = ("jobs", "looks", "tallies", "tally_sums", "tally_leaves")
    return [
        *(f"{_DELETE}{name} where queue = '{run.queue}'" for name in tables),
        f"{_DELETE}workers where '{run.queue}' = any (queues)",
        f"{_DELETE}kinds where name = '{KIND}'",
        f"drop schema if exists {run.schema} cascade",
    ]


async def clean(url: str, run: Run) -> None:
    """Remove all of a run.

    Raises:
        asyncpg.PostgresError: The database refuses it.
    """
    connection = await connect(url, run.queue, CLEAN_SECONDS)
    try:
        async with connection.transaction():
            await connection.execute(_NO_FOLD)
            for statement in traces_of(run):
                await connection.execute(statement)
    finally:
        connection.terminate()
