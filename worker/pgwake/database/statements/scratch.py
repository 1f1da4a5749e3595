"""The SQL of a queue that a tool makes on somebody's database, and removes."""

from typing import NamedTuple

from pgwake.database.statements import Connection

_MAY = """
select bool_and(has_function_privilege(p.oid, 'execute'))
  and has_table_privilege('pgwake.queues', 'delete')
from pg_catalog.pg_proc as p
where p.pronamespace = 'pgwake'::regnamespace and p.proname in ('cancel_jobs', 'purge')
"""
_TAKE = "select pg_try_advisory_lock(1885828976, hashtext($1))"
_PATIENCE = "set statement_timeout = '10min'"  # a purge reads all that is kept
_HOLDERS = """
select distinct j.claimed_by
from pgwake.jobs_live as j
where j.queue = $1 and j.status = 'running'
"""
_LEFT = """
select
  coalesce(sum(s.pending_count + s.scheduled_count + s.waiting_count
               + s.running_count), 0)::bigint,
  coalesce(sum(s.failed_count), 0)::bigint,
  coalesce(sum(s.completed_count), 0)::bigint,
  coalesce(sum(s.cancelled_count), 0)::bigint
from pgwake.get_queue_stats($1) as s
"""
_FORGET_POLICY = "delete from pgwake.queues where name = $1"
_FORGET_KINDS = "delete from pgwake.kinds where name = any ($1::text[])"
_COUNTS = ("counts", "count_sums", "count_leaves")
_MAY_FORGET_COUNTS = """
select bool_and(has_table_privilege('pgwake.' || t.name, 'delete'))
from unnest($1::text[]) as t(name)
"""
_HOLD_FOLDS = "select pg_advisory_xact_lock(1885828971, 2)"  # as fold_counts()


class QueueLeftovers(NamedTuple):
    """How many jobs of a queue there are, by what they are."""

    live: int
    failed: int
    completed: int
    cancelled: int


async def may(connection: Connection) -> bool:
    """Whether the role may make a queue of its own, and remove it."""
    is_allowed: bool = await connection.fetchval(_MAY)
    return is_allowed


async def take(connection: Connection, queue: str) -> bool:
    """Have the queue for as long as the session lasts; whether nobody else has it."""
    is_taken: bool = await connection.fetchval(_TAKE, queue)
    return is_taken


async def wait_longer(connection: Connection) -> None:
    """Let the session's statements take up to ten minutes."""
    await connection.execute(_PATIENCE)


async def holders(connection: Connection, queue: str) -> list[str]:
    """Return which workers hold jobs of the queue."""
    return [row[0] for row in await connection.fetch(_HOLDERS, queue)]


async def left(connection: Connection, queue: str) -> QueueLeftovers:
    """Count the queue's jobs."""
    row = await connection.fetchrow(_LEFT, queue)
    assert row is not None  # noqa: S101, an aggregate has one row
    return QueueLeftovers(*row)


async def forget(connection: Connection, queue: str, kinds: list[str]) -> None:
    """Delete the queue's policy, what workers declared of the kinds, and the counts.

    The counts only where the role may, which is the schema's owner: else the queue
    stays in the statistics, with no jobs.
    """
    async with connection.transaction():
        await connection.execute(_FORGET_POLICY, queue)
        await connection.execute(_FORGET_KINDS, kinds)
        if await connection.fetchval(_MAY_FORGET_COUNTS, _COUNTS):
            await connection.execute(_HOLD_FOLDS)
            for table in _COUNTS:
                await connection.execute(
                    f"delete from pgwake.{table} where queue = $1",  # noqa: S608
                    queue,
                )
