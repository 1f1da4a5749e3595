"""The SQL of jobs that are pushed by HTTP."""

from collections.abc import Sequence

from pgwake.database.statements import Connection

# What is a job's own, payload and metadata, is taken from the text that the client has
# sent, to the last digit; the rest as it has been checked.
_PUSH = """
select pgwake.enqueue_many(coalesce(jsonb_agg(
  o.options
    || jsonb_build_object(
      'payload', s.job -> 'payload',
      'metadata', case
        when $6::text is null or s.job -> 'metadata' ? 'traceparent'
          or octet_length(s.job ->> 'metadata') > 32768 then s.job -> 'metadata'
        else coalesce(nullif(s.job -> 'metadata', 'null'), '{}') || $6::text::jsonb
      end)
  order by o.place), '[]'))
from jsonb_array_elements($2::text::jsonb) with ordinality as o(options, place)
join jsonb_array_elements(
  case
    when $3 then $1::text::jsonb -> 'jobs' else jsonb_build_array($1::text::jsonb)
  end
) with ordinality as s(job, place) using (place)
where o.place > $4 and o.place <= $5
"""
# A row that can be seen while its writer's transaction goes on is its own. One that it
# has replaced is older, and one that is named twice was new the first time. The writer
# may be a part of the transaction, which has an id of its own: see enqueue_many.
_PUSHED = """
select json_build_object(
  'ids', $1::bigint[],
  'jobs', json_agg(
    json_build_object('id', u.id, 'is_new', j.id is not null and u.nth = 1)
    order by u.place)
)::text
from (
  select u.id, u.place, row_number() over (partition by u.id order by u.place) as nth
  from unnest($1::bigint[]) with ordinality as u(id, place)
) as u
cross join pg_current_xact_id() as x(id)
left join pgwake.jobs_live as j
  on j.id = u.id and j.created_at = pgwake.now() and pg_xact_status(
    (x.id::text::bigint + age(x.id::xid) - age(j.xmin))::text::xid8) = 'in progress'
"""
_SAVE = "savepoint pgwake_push"
_UNDO = "rollback to savepoint pgwake_push"


async def save(connection: Connection) -> None:
    """Say what undo() goes back to."""
    await connection.execute(_SAVE)


async def undo(connection: Connection) -> None:
    """Take back what was done since save(), errors too."""
    await connection.execute(_UNDO)


async def push(
    connection: Connection,
    text: str,
    options: str,
    trace: str | None,
    *,
    is_batch: bool,
    places: tuple[int, int],
) -> Sequence[int]:
    """Add the jobs after one place, up to another; their ids.

    Args:
        connection: Where, in a transaction.
        text: The jobs as they were sent: one, or an object with jobs.
        options: Their other fields, as they were checked: a JSON array.
        trace: traceparent and tracestate for the metadata of those that have none: a
            JSON object.
        is_batch: Whether it is an object with jobs.
        places: The places, from 0.
    """
    ids: Sequence[int] = await connection.fetchval(
        _PUSH, text, options, is_batch, *places, trace
    )
    return ids


async def pushed(connection: Connection, ids: Sequence[int]) -> str:
    """Return which of the jobs that were just pushed are new: not there before."""
    return str(await connection.fetchval(_PUSHED, ids))
