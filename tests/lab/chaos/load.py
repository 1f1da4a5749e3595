"""The load of a run under faults: producers that know exactly what is in."""

import asyncio
from functools import partial
from time import monotonic

from pgwake.database.connection import Connection
from pgwake.database.session import Session
from pgwake.sleep import pause

from .run import KINDS, Run

PRODUCERS = 4
BATCH_SECONDS = 0.1  # of its share of the rate, in a producer's INSERT
MAX_BATCH = 1000
ANSWER_SECONDS = 5.0

_PREPARE = """
create schema {0};
create table {0}.batches (first_serial bigint primary key);
create table {0}.effects (job_id bigint not null, lease_id uuid not null);
"""
# The row in batches makes it safe to repeat: whatever became of the first, and even if
# it arrives after the second, one of them counts.
_INSERT = """
with batch as (
  insert into {0}.batches (first_serial) values ($2) on conflict do nothing
  returning first_serial
)
insert into pgwake.jobs (queue, kind, concurrency_key, payload)
select $1,
  case s.serial % 100
    when 5 then $5 when 55 then $5 when 8 then $6 when 58 then $7 else $4 end,
  case when s.serial % 50 = 9 then 'tenant ' || s.serial / 50 % 10 end,
  jsonb_strip_nulls(jsonb_build_object(
  'serial', s.serial,
  'seconds', round((
    random() * case when s.serial % 50 in (0, 5) then 0.6 else 0.01 end)::numeric, 4),
  'patience', case s.serial % 100 when 5 then 0.3 when 55 then 60 end,
  'fails', case
    when s.serial % 50 = 1 or s.serial % 100 = 59 then 1 when s.serial % 50 = 2 then 2
  end,
  'is_doomed', case when s.serial % 100 in (3, 4) then true end,
  'has_effect', case when s.serial % 25 = 4 or s.serial % 50 = 8 then true end))
from batch cross join generate_series($2, $3) as s(serial)
"""


async def prepare(connection: Connection, run: Run) -> None:
    """Make the schema of a run, for what its load and its handlers note."""
    await connection.execute(_PREPARE.format(run.schema))


class Load:
    """Producers that insert jobs with serial numbers from 1 on, whatever happens.

    Args:
        url: The database's URL as the producers see it.
        run: The run.
        rate: Jobs a second; what a fault has held up is made up for.
        jobs: How many; None: until stopped.

    Attributes:
        enqueued: How many jobs are known to be in: they have the serials up to it, once
            run() has returned.
        settled: INSERTs whose answer was lost, and which had been committed.
    """

    def __init__(
        self, url: str, run: Run, *, rate: float, jobs: int | None = None
    ) -> None:
        self._url = url
        self._run = run
        self._rate = rate
        self._jobs = jobs
        self._batch = max(1, min(MAX_BATCH, round(rate * BATCH_SECONDS / PRODUCERS)))
        self._insert = _INSERT.format(run.schema)
        self._given_out = 0
        self._stopping = asyncio.Event()
        self.enqueued = 0
        self.settled = 0

    def stop(self) -> None:
        """Let run() end, with what has been begun settled."""
        self._stopping.set()

    async def run(self) -> None:
        """Insert until stopped, or until all are in.

        Raises:
            asyncpg.PostgresError: The database refuses, and would again.
        """
        began = monotonic()
        async with asyncio.TaskGroup() as producers:
            for _ in range(PRODUCERS):
                producers.create_task(self._produce(began))

    async def _produce(self, began: float) -> None:
        session = Session(self._url, self._run.queue, "producer", ANSWER_SECONDS)
        try:
            while batch := await self._next(began):
                done = await session.call(partial(self._put, batch))
                self.enqueued += len(batch)
                self.settled += done == "INSERT 0 0"
        finally:
            session.close()

    async def _put(self, batch: range, connection: Connection) -> str:
        return await connection.execute(
            self._insert, self._run.queue, batch[0], batch[-1], *KINDS
        )

    async def _next(self, began: float) -> range | None:
        """Wait until the next batch is due; its serials, or None at the end."""
        while not self._stopping.is_set():
            first = self._given_out + 1
            left = self._batch
            if self._jobs is not None:
                left = min(left, self._jobs - self._given_out)
            wait = began + self._given_out / self._rate - monotonic()
            if left <= 0:
                break
            if wait <= 0:
                self._given_out += left
                return range(first, first + left)
            await pause(self._stopping, wait)
        return None
