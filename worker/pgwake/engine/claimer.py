"""Claims: fills a queue's slots, and sleeps until there is something to claim."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from time import monotonic

import asyncpg
import structlog

from pgwake.database.connection import describe
from pgwake.database.session import Session
from pgwake.database.statements.claim import Claim, claim_rows
from pgwake.engine.finisher import Finisher
from pgwake.engine.held_jobs import HeldJobs
from pgwake.engine.mailbox import MAX_NOTIFICATIONS, Mailbox, Role, Wish
from pgwake.engine.poll import CROWD, Poll
from pgwake.engine.ready_jobs import ReadyJobs
from pgwake.heartbeat import Heartbeat
from pgwake.jobs.attempt import Attempt
from pgwake.observe.metrics import Metrics
from pgwake.sleep import pause

log = structlog.get_logger()

MAX_BATCH = 500
# How far ahead of the slots claims may reach: as many jobs as end, at the rate just
# measured, in so many times as long as the last claim took, within so many seconds. The
# next claim is sent at half of it, so that the other half is run meanwhile. At the rate
# of a slow queue that is nothing.
PREFETCH_CLAIMS = 4
PREFETCH_SECONDS = 0.025, 0.25
MAX_PREFETCH = 2 * MAX_BATCH
# After this long without a free slot, jobs that were claimed ahead are given back.
HOARD_SECONDS = 1.0
# Where jobs come faster than claims are answered, the worker naps: inserts are silent,
# and each look finds several. Below that rate it is woken by each, since inserts that
# notify commit one after the other, and a claim's commit takes no less than theirs. It
# wakes up when so many naps in a row have found less than came at that rate.
NAP_SECONDS = 0.004
MAX_IDLE_NAPS = 3
# A look that takes longer, for whatever reason, leaves waking up to others; with more
# than so many queues longer, since they take turns.
SLOW_LOOK_SECONDS = 2.0
SLOW_LOOK_QUEUES = 100
# That another process has to go on duty, which may know the kind.
UNKNOWN_KIND_SECONDS = 0.1
# Who has had no room for so long leaves waking up to others.
NO_ROOM_SECONDS = 0.005
REFUSED_SECONDS = 1.0  # after a refused claim, however often it is woken
LOCKED_SECONDS = 0.005  # until the next look at due jobs that somebody has locked


class Claimer:
    """The claim loop of one queue.

    Args:
        ready_jobs: Where claimed jobs go.
        mailbox: Where it and the queue's notify lock hear of each other.
        session: A session for claims; queues may share one.
        worker: The name to claim under.
        lease: How long a claim holds; None: the queue's own.
        poll: What wakes it, too, and looks for many claims that wait for their turn.
        held_jobs: The jobs that the process holds.
        metrics: Where to count.
        claim_lock: Held while claiming; whoever holds it keeps all queues from
            claiming.
        finisher: Whose ends a claim may write; see Finisher.write_with.
    """

    def __init__(
        self,
        ready_jobs: ReadyJobs,
        mailbox: Mailbox,
        session: Session,
        *,
        worker: str,
        lease: float | None,
        poll: Poll,
        held_jobs: HeldJobs,
        metrics: Metrics,
        claim_lock: asyncio.Lock,
        finisher: Finisher,
    ) -> None:
        self.ready_jobs = ready_jobs
        self.mailbox = mailbox
        self._session = session
        self._worker = worker
        self._lease = None if lease is None else timedelta(seconds=lease)
        self._poll = poll
        share = max(poll.queue_count / SLOW_LOOK_QUEUES, 1.0)
        self._slow_seconds = SLOW_LOOK_SECONDS * share
        self._held_jobs = held_jobs
        self._metrics = metrics
        self._claim_lock = claim_lock
        self._finisher = finisher
        self.heartbeat = Heartbeat(
            f"the claims of queue {ready_jobs.queue}",
            max(poll.interval, session.timeout),
        )
        self._naps = 0  # that may still find too little before it sleeps
        self._cursor: str | None = None
        self._is_limited = False  # by little room: nothing is claimed ahead
        self._locked_since: float | None = None
        self._left_out_id: int | None = None
        self._claims = deque([(monotonic(), 0)], maxlen=2)  # when, finished by then
        self._claim_seconds = 0.0  # that the last one took, its turn included
        self._usual_seconds = 0.0  # that the last ones took
        self._stopping = False

    def stop(self) -> None:
        """Let run() end, with no claim cut off: what one took would be nobody's."""
        self._stopping = True
        self.mailbox.woken.set()
        self.ready_jobs.room.set()
        self.mailbox.want(Wish.WORK)

    async def run(self) -> None:
        """Claim until stopped."""
        self.heartbeat.start()
        while True:
            count = await self._room()
            if self._stopping:
                return
            self.mailbox.woken.clear()  # before the look: a wake-up during it counts
            claim = await self._look(count)
            if claim is None:
                await self._back_off()
            elif len(claim.jobs) == count:
                self._locked_since = None
                self.mailbox.want(Wish.WORK)
            elif not (claim.jobs and claim.leaves_due):
                await self._rest(claim)

    async def claim_suspect(self) -> Attempt | None:
        """Claim a job that crashed twice or more, if one is due."""
        claimed = await self._claim(1, suspects=True)
        return claimed[1][0] if claimed and claimed[1] else None

    async def _look(self, count: int) -> Claim | None:
        """Claim in turn with the others; who can't is not the one to be woken.

        None: the database has refused it, or it is the stop.
        """
        slow = asyncio.get_running_loop().call_later(
            self._slow_seconds, self.mailbox.want, Wish.WORK
        )
        started = monotonic()
        try:
            self.heartbeat.rest()
            return await self._look_together() or await self._claim_in_turn(count)
        finally:
            self._claim_seconds = seconds = monotonic() - started
            self._usual_seconds += (seconds - self._usual_seconds) / 8
            slow.cancel()
            self.heartbeat.beat()

    async def _look_together(self) -> Claim | None:
        """With many that look now: what a claim would answer that finds nothing.

        None: only a claim can tell.
        """
        if self._poll.waiting <= CROWD:
            return None
        queue = self.ready_jobs.queue
        seconds = await self._poll.seconds_to_next(queue)
        if seconds is not None and seconds <= 0:
            return None
        return Claim(queue, [], seconds, 0.0, self._cursor, self._is_limited)

    async def _claim_in_turn(self, count: int) -> Claim | None:
        self._poll.waiting += 1
        try:
            async with self._claim_lock:
                claimed = None if self._stopping else await self._claim(count)
                return claimed and claimed[0]
        finally:
            self._poll.waiting -= 1

    async def _claim(
        self, count: int, *, suspects: bool = False
    ) -> tuple[Claim, list[Attempt]] | None:
        """Claim, and hand over to the slots; None if the database refuses."""
        started = monotonic()

        def statement(ends: Sequence[object] = ()) -> Awaitable[Claim]:
            return self._session.call(
                lambda connection: claim_rows(
                    connection,
                    self.ready_jobs.queue,
                    count,
                    self._worker,
                    self._lease,
                    None if suspects else self._cursor,
                    suspects=suspects,
                    unknown_kinds=list(self.ready_jobs.unknown_kinds),
                    ends=ends,
                )
            )

        try:
            ended = None
            if not suspects:
                queue = self.ready_jobs.queue
                ended = await self._finisher.write_with(statement, queue)
            claim = ended or await statement()
        except asyncpg.PostgresError as error:
            self.heartbeat.is_refused = True
            log.error(
                "claim refused",
                queue=self.ready_jobs.queue,
                error=describe(error),
                hint=error.hint,
            )
            return None
        self.heartbeat.is_refused = False
        seconds = monotonic() - started
        self._is_limited = claim.is_limited
        if not suspects:
            self._cursor = claim.cursor
        jobs = Attempt.from_claim(claim, started)
        self._held_jobs.take(jobs)
        self.ready_jobs.put(jobs)
        # Once they have begun, where slots wait for them.
        asyncio.get_running_loop().call_soon(self._count, jobs, seconds)
        return claim, jobs

    def _count(self, jobs: Sequence[Attempt], seconds: float) -> None:
        self._metrics.claim_seconds.add((), [seconds])
        self._metrics.claim_succeeded.note((self.ready_jobs.queue,))
        self._metrics.claimed(jobs)

    async def _room(self) -> int:
        """Wait until a claim is worth it; how many jobs to ask for."""
        ready_jobs = self.ready_jobs
        while True:
            ahead = self._prefetch()
            room = ready_jobs.slots + ready_jobs.wanted + ahead - ready_jobs.held
            if self._stopping or (room > 0 and len(ready_jobs.jobs) <= ahead // 2):
                self._claims.append((monotonic(), ready_jobs.finished))
                return min(room, MAX_BATCH)
            ready_jobs.low_water = ahead // 2
            ready_jobs.room.clear()
            off_duty = asyncio.get_running_loop().call_later(
                NO_ROOM_SECONDS, self.mailbox.want, Wish.WORK
            )
            try:
                async with asyncio.timeout(HOARD_SECONDS):
                    await ready_jobs.room.wait()
            except TimeoutError:
                self.heartbeat.beat()
                await self._give_back()
            finally:
                off_duty.cancel()

    def _prefetch(self) -> int:
        if self._is_limited:
            return 0
        # By the last claim alone, a queue that starved while it waited for its answer
        # would look slow, and be let starve again; by the one before, one that slept.
        now, finished = monotonic(), self.ready_jobs.finished
        rate = max((finished - f) / max(now - at, 0.001) for at, f in self._claims)
        least, most = PREFETCH_SECONDS
        seconds = min(max(PREFETCH_CLAIMS * self._claim_seconds, least), most)
        return min(int(rate * seconds), MAX_PREFETCH)

    async def _give_back(self) -> None:
        if monotonic() - self.ready_jobs.finished_at < HOARD_SECONDS:
            return
        if jobs := self.ready_jobs.take_back(open_batches=False):
            outcomes = await self._held_jobs.give_back(self._session, jobs, "unstarted")
            for job, outcome in zip(jobs, outcomes, strict=True):
                self._metrics.given_back(job, outcome, "unstarted")

    async def _rest(self, claim: Claim) -> None:
        """Sleep after a look that has found less than there was room for."""
        await asyncio.sleep(0)  # the slots first, which have waited for these jobs
        is_news = claim.left_out_id not in {None, self._left_out_id}
        if is_news or self.ready_jobs.saw_unknown_kind:
            self._left_out_id = claim.left_out_id
            self.ready_jobs.saw_unknown_kind = False
            self.mailbox.want(Wish.WORK)
            await asyncio.sleep(UNKNOWN_KIND_SECONDS)
        elif self.mailbox.role is not Role.ON_DUTY:
            self.mailbox.want(Wish.NAP)
            is_reserve = self.mailbox.role is Role.RESERVE
            await self._sleep(None if is_reserve else self._seconds_to_next(claim))
        elif self._is_busy(len(claim.jobs)):
            self.mailbox.want(Wish.NAP)
            await pause(self.mailbox.woken, NAP_SECONDS)
        else:
            self.mailbox.want(Wish.SLEEP)
            await self._sleep(self._seconds_to_next(claim))

    async def _back_off(self) -> None:
        """Sleep after a look that was refused."""
        self.mailbox.want(Wish.WORK)
        if not self._stopping:
            await asyncio.sleep(REFUSED_SECONDS)
        await self._sleep(self._poll.interval)

    def _is_busy(self, found: int) -> bool:
        """Whether a nap pays: jobs come so fast, by what the last look has found."""
        mailbox, notified_at = self.mailbox, self.mailbox.notified_at
        claim_seconds = self._usual_seconds
        if mailbox.is_new_on_duty:  # a hand-over is a sign of much to do
            mailbox.is_new_on_duty = False
            self._naps = MAX_IDLE_NAPS
        if self._naps:
            it_paid = found * claim_seconds >= NAP_SECONDS + claim_seconds
            self._naps = MAX_IDLE_NAPS if it_paid else self._naps - 1
        elif (
            len(notified_at) == MAX_NOTIFICATIONS
            and monotonic() - notified_at[0] < MAX_NOTIFICATIONS * claim_seconds
        ):
            notified_at.clear()
            self._naps = MAX_IDLE_NAPS
        return self._naps > 0

    def _seconds_to_next(self, claim: Claim) -> float | None:
        """Until the next job is due; soon if one is, but somebody has it locked."""
        if not claim.leaves_due:
            self._locked_since = None
            return claim.seconds_to_next
        now = monotonic()
        self._locked_since = self._locked_since or now
        return max(LOCKED_SECONDS, (now - self._locked_since) / 10)

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep until woken, or for so long.

        What was claimed ahead and gets no slot meanwhile is given back.
        """
        queue, woken = self.ready_jobs.queue, self.mailbox.woken
        until = None if seconds is None else monotonic() + seconds
        self._poll.asleep[queue] = self.mailbox
        try:
            while not woken.is_set():
                self.heartbeat.rest()  # it has nothing to do: the poll looks for it
                left = None if until is None else until - monotonic()
                can_wait = left is None or left > HOARD_SECONDS
                hoards = can_wait and bool(self.ready_jobs.jobs)
                try:
                    async with asyncio.timeout(HOARD_SECONDS if hoards else left):
                        await woken.wait()
                except TimeoutError:
                    if not hoards:
                        self._metrics.woken(queue, "timer")
                        return
                    await self._give_back()
            self._metrics.woken(queue, self.mailbox.cause)
        finally:
            del self._poll.asleep[queue]
            self.heartbeat.beat()
