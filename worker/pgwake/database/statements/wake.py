"""The SQL of who sleeps on a queue and who wakes them."""

from collections.abc import Sequence
from datetime import datetime

from pgwake.database.statements import Connection

CHANNEL = "pgwake"
DUTY_CHANNEL = "pgwake_duty"
CANCEL_CHANNEL = "pgwake_cancel"
# Of the server's locks half are for queues, two each: their duty locks' keys are odd.
# Once all are taken, every session of the server is refused, whatever it does.
_PARK_ALL = """
with room as materialized (
  select case when $2 then (
    current_setting('max_locks_per_transaction')::int
      * (current_setting('max_connections')::int
        + current_setting('max_prepared_transactions')::int) / 4
      - (
        select count(*) from pg_locks
        where locktype = 'advisory' and objsubid = 1 and objid::bigint % 2 = 1)
  ) end as queues
)
select q.name, case when q.n > r.queues then null else pgwake.park(q.name, true) end
from unnest($1::text[]) with ordinality as q(name, n)
cross join room as r
"""
_NEXT_RUN_ATS = """
select n.queue, date_part('epoch', n.run_at) - date_part('epoch', pgwake.now()),
  n.seconds
from pgwake.next_run_ats($1) as n
"""
_MUTE = "select pgwake.mute($1)"
_UNMUTE_ALL = "select pgwake.unmute(q.name) from unnest($1::text[]) as q(name)"
_UNPARK = "select pgwake.unpark($1, $2)"
_TELL_DUTY = "select pgwake.pass_duty($1)"
_OPEN_WRITERS = "select pgwake.open_writers()"
_SESSION_ID = """
select a.pid, a.backend_start from pg_stat_activity as a where a.pid = pg_backend_pid()
"""
_END_SESSION = """
select pg_terminate_backend(a.pid, 1000)
from pg_stat_activity as a
where a.pid = $1 and a.backend_start = $2 and a.datname = current_database()
"""


async def park_all(
    connection: Connection, queues: Sequence[str], *, is_limited: bool
) -> dict[str, bool | None]:
    """Go on duty for queues, muted; for each whether it is, or another session.

    None: it was not tried, since the server has no room for so many locks. Who has few
    queues need not ask for that, which takes a millisecond.
    """
    rows = await connection.fetch(_PARK_ALL, queues, is_limited)
    return {row[0]: row[1] for row in rows}


async def next_run_ats(
    connection: Connection, queues: Sequence[str]
) -> list[tuple[str, float | None, float | None]]:
    """Return seconds until the next job of each queue is due, and that the look took.

    Empty queues are left out. No seconds of a look: there was no time left for one.
    """
    rows = await connection.fetch(_NEXT_RUN_ATS, queues)
    return [(row[0], row[1], row[2]) for row in rows]


async def mute(connection: Connection, queue: str) -> None:
    """Have a queue's inserts not notify."""
    await connection.fetchval(_MUTE, queue)


async def unmute_all(connection: Connection, queues: Sequence[str]) -> None:
    """Have the inserts of queues notify."""
    await connection.fetch(_UNMUTE_ALL, queues)


async def unpark(connection: Connection, queue: str, *, muted: bool) -> None:
    """Go off duty for a queue, and tell the others."""
    await connection.fetchval(_UNPARK, queue, muted)


async def pass_duty(connection: Connection, queue: str) -> None:
    """Tell who sleeps on a queue that nobody may be on duty."""
    await connection.fetchval(_TELL_DUTY, queue)


async def open_writers(connection: Connection) -> frozenset[str]:
    """Return the transactions that may be about to commit jobs."""
    return frozenset(await connection.fetchval(_OPEN_WRITERS))


async def session_id(connection: Connection) -> tuple[int, datetime]:
    """Return what tells a session from all others of its server."""
    row = await connection.fetchrow(_SESSION_ID)
    assert row is not None  # noqa: S101, it is this very session
    return row[0], row[1]


async def end_session(connection: Connection, session: tuple[int, datetime]) -> None:
    """End another session, if it is still there, and wait for that for a second."""
    await connection.fetchval(_END_SESSION, *session)
