"""A second load beside the chaos engine's: jobs of every other sort, soon forgotten.

Its queue keeps what has ended for a minute, so retention is at work all the time. So
rows can't be counted at the end; its account is that of the queue's own statistics,
which count since the installation.
"""

import asyncio
import functools
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from pgwake.database.connection import Connection
from pgwake.database.session import Session
from pgwake.sleep import pause

RETENTION = timedelta(minutes=1)
TICK = timedelta(seconds=5)
ROUND_SECONDS = 1.0
ANSWER_SECONDS = 5.0
PAST_DAYS = range(9, 17)  # beyond the seven that the ring keeps at least
PAST_JOBS = 1000  # of each

_KEEP = "insert into pgwake.queues (name, retention_completed) values ($1, $2)"
_SCHEDULE = "select pgwake.schedule($1, kind => 'soak', queue => $1, every => $2)"
_UNSCHEDULE = "select pgwake.unschedule($1)"
_TICKS = "select fired_count from pgwake.schedules where name = $1"
_LIVE = "select exists (select from pgwake.jobs_live where queue = $1)"
_STATS = "select * from pgwake.get_queue_stats($1)"
# Of eight: two with keys, two of 2 kB, one delayed, one that is retried, one in a
# thread, one that takes up to two seconds.
_INSERT = """
insert into pgwake.jobs (queue, kind, concurrency_key, run_at, payload)
select $1, case n % 8 when 6 then 'soak.thread' else 'soak' end,
  case when n % 8 < 2 then 'key-' || n % 10 end,
  pgwake.now() + case n % 8 when 4 then interval '3 seconds' else '0' end,
  jsonb_strip_nulls(jsonb_build_object(
    'text', case when n % 8 in (2, 3) then repeat(md5(n::text), 64) end,
    'fails', case n % 8 when 5 then true end,
    'seconds', case n % 8 when 7 then 2 * random() end))
from generate_series($2::int, $3::int) as n
"""
# A child, which waits for its parent.
_FAMILY = """
select pgwake.enqueue('soak', queue => $1,
  depends_on => array[pgwake.enqueue('soak', queue => $1)])
"""
_PAST_INSERT = """
insert into pgwake.jobs (queue, kind)
select $1, 'soak' from generate_series(1, $2::int)
"""
_PAST_END = """
select count(pgwake.complete_job(j.id, j.lease_id))
from pgwake.claim_jobs($1, 1000) as j
"""
_PAST_LEFT = "select count(*) from pgwake.jobs_finished where queue = $1"


@dataclass(frozen=True, slots=True)
class MixAccount:
    """What became of the mix.

    Attributes:
        acknowledged: Jobs whose INSERT was answered, and ticks of the schedule.
        sent: Jobs of all INSERTs: those repeated after a lost answer too.
        enqueued: Jobs that the database has counted.
        completed: Of these.
        past: Jobs of long ago, at the beginning.
        past_left: Of these, at the end.
    """

    acknowledged: int
    sent: int
    enqueued: int
    completed: int
    past: int
    past_left: int

    @property
    def accounts_for_every_job(self) -> bool:
        """Whether none was lost or has failed."""
        return (
            self.acknowledged <= self.enqueued <= self.sent
            and self.completed == self.enqueued
        )


class Mix:
    """The load.

    Args:
        queue: Its queue, and its schedule.
        rate: Jobs a second; what a fault has held up is made up for.
    """

    def __init__(self, queue: str, *, rate: float) -> None:
        self.queue = queue
        self._rate = rate
        self._stopping = asyncio.Event()
        self._acknowledged = 0
        self._sent = 0
        self._ticks = 0

    @property
    def _past(self) -> str:
        return f"{self.queue}-past"

    async def prepare(self, connection: Connection) -> None:
        """Set its queue's policy, and complete jobs long ago."""
        await connection.execute(_KEEP, self.queue, RETENTION)
        for day in PAST_DAYS:
            await connection.execute(f"set pgwake.clock_offset = '-{day} days'")
            await connection.execute(_PAST_INSERT, self._past, PAST_JOBS)
            while await connection.fetchval(_PAST_END, self._past):
                pass
        await connection.execute("reset pgwake.clock_offset")
        await connection.execute(_SCHEDULE, self.queue, TICK)

    def stop(self) -> None:
        """Let run() end."""
        self._stopping.set()

    async def run(self, url: str) -> None:
        """Insert by this URL until stopped."""
        session = Session(url, self.queue, "producer", ANSWER_SECONDS)
        began = monotonic()
        number = 0
        try:
            while not self._stopping.is_set():
                last = int((monotonic() - began) * self._rate)
                if last > number:
                    insert = functools.partial(
                        self._insert, first=number + 1, last=last
                    )
                    await session.call(insert)
                    self._acknowledged += last - number + 2
                    number = last
                await pause(self._stopping, ROUND_SECONDS)
        finally:
            session.close()

    async def _insert(self, connection: Connection, first: int, last: int) -> None:
        self._sent += last - first + 1 + 2
        async with connection.transaction():
            await connection.execute(_INSERT, self.queue, first, last)
            await connection.execute(_FAMILY, self.queue)

    async def end(self, connection: Connection, seconds: float) -> None:
        """Have it make no more ticks, and wait for the end of all, for so long."""
        self._ticks = await connection.fetchval(_TICKS, self.queue)
        await connection.execute(_UNSCHEDULE, self.queue)
        deadline = monotonic() + seconds
        while await connection.fetchval(_LIVE, self.queue) and monotonic() < deadline:
            await asyncio.sleep(0.1)

    async def account(self, connection: Connection) -> MixAccount:
        """Count, when nothing of it goes on any more."""
        stats = await connection.fetchrow(_STATS, self.queue)
        assert stats is not None
        return MixAccount(
            acknowledged=self._acknowledged + self._ticks,
            sent=self._sent + self._ticks,
            enqueued=stats["enqueued_total"],
            completed=stats["completed_total"],
            past=len(PAST_DAYS) * PAST_JOBS,
            past_left=await connection.fetchval(_PAST_LEFT, self._past),
        )
