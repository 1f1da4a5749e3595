"""Ends of jobs, gathered and written a batch a statement."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from time import monotonic
from typing import TypeAlias
from uuid import UUID

import asyncpg
import structlog

from pgwake.database.connection import Connection, describe
from pgwake.database.session import Session
from pgwake.database.statements.claim import Claim
from pgwake.database.statements.finish import (
    Failure,
    complete_jobs,
    fail_jobs,
    lease_outcomes,
    release_jobs,
)
from pgwake.engine.ends import End, EndReporter, Release
from pgwake.engine.held_jobs import HeldJobs
from pgwake.engine.progress import ProgressReports
from pgwake.heartbeat import Heartbeat
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.error_reports import describe as describe_problem
from pgwake.jobs.job import LOST_CODES
from pgwake.jobs.steps import Suspension
from pgwake.jsontext import storable
from pgwake.sleep import pause

log = structlog.get_logger()

MAX_BATCH = 500  # completions of a statement
MAX_BATCH_CHARACTERS = 4 * 2**20  # of their results
MAX_OTHERS = 100  # failures, or jobs given back: what a completion may wait for
FLUSH_SECONDS = 0.005  # how long an end may wait for company while others are written
MAX_WAITING = 5_000  # beyond it, slots wait for the database
LOOPS_TO_CLAIM = 3  # turns of the event loop until a claimer that is woken claims

# Ids, leases and results, as complete_jobs takes them.
Completions: TypeAlias = tuple[list[int], list[UUID], list[str | None] | None]
Statement: TypeAlias = Callable[[Connection, Sequence[End]], Awaitable[list[str]]]


class Finisher:
    """Buffers what became of jobs, and tells the database in order of arrival.

    A job stays in held_jobs, its lease kept up, until its end is written. A
    statement that fails for a passing reason is repeated under the fence, which changes
    no outcome.

    Args:
        session: A session of its own.
        held_jobs: The jobs that the process holds.
        reporter: Who else is told.
        reports: What is to be written of a job's progress before its end.
        look_again: Called with the queues in which ends may have let jobs in.
    """

    def __init__(
        self,
        session: Session,
        held_jobs: HeldJobs,
        reporter: EndReporter,
        reports: ProgressReports,
        look_again: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        self._session = session
        self._held_jobs = held_jobs
        self._reporter = reporter
        self._reports = reports
        self._look_again = look_again
        self.heartbeat = Heartbeat("the writing of ends", session.timeout)
        self._ends: list[End] = []
        self._more = asyncio.Event()
        self._enough = asyncio.Event()
        self._written = asyncio.Event()
        self._writing = asyncio.Lock()
        self._written.set()

    def complete(self, job: Attempt, result: str | None) -> None:
        """End a job as completed, its result as JSON text."""
        self._put(End(job, result))

    def fail(
        self,
        job: Attempt,
        error: BaseException | str,
        *,
        reason: str = "failed",
        retryable: bool = True,
        retry_in: timedelta | None = None,
    ) -> None:
        """End an attempt as failed; see fail_jobs."""
        message, trace = describe_problem(error)
        failure = Failure(
            job.id, job.lease_id, message, reason, retryable, trace, retry_in
        )
        self._put(End(job, failure), error)

    def release(
        self,
        job: Attempt,
        reason: str,
        delay: timedelta | None = None,
        error: str | None = None,
    ) -> None:
        """Give a job back unburnt; delay: until it is due, where the reason has one."""
        self._put(End(job, Release(reason, delay, error)))

    def suspend(self, job: Attempt, suspension: Suspension) -> None:
        """Let a job sleep or wait: its handler has been left, to its last finally."""
        self._put(End(job, suspension))

    def drop(self, job: Attempt) -> None:
        """Forget a job whose lease is lost: nothing of it may be written."""
        self._ended([End(job, None)], ["lease_lost"])

    def completed(self, job: Attempt) -> None:
        """Note that a job's handler has completed it, this moment."""
        job.take_time()
        self._ended([End(job, None)], ["completed"])

    def _put(self, end: End, error: BaseException | str | None = None) -> None:
        self._reporter.arrived(end, error)
        self._ends.append(end)
        count = len(self._ends)
        if count == 1:
            self._more.set()
            self._written.clear()
        if count == MAX_BATCH // 2 or self._is_all():
            self._enough.set()

    def _is_all(self) -> bool:
        """Whether no company can come: all that is held has ended, and admits."""
        has_all = 0 < len(self._ends) >= len(self._held_jobs)
        return has_all and self._ends[-1].job.admits

    @property
    def is_full(self) -> bool:
        """Whether slots should wait for the database."""
        return len(self._ends) > MAX_WAITING

    async def drained(self) -> None:
        """Wait until everything that has arrived is written."""
        await self._written.wait()

    def copy_for_exit(self, session: Session) -> "Finisher":
        """Return another with what is unwritten, for a thread that the loop can't stop.

        Both may write it: the fence lets each end count once.
        """
        copy = Finisher(session, self._held_jobs, self._reporter, self._reports)
        copy._ends = list(self._ends)
        return copy

    async def write_all(self) -> None:
        """Write until nothing is left."""
        while self._ends:
            async with self._writing:
                await self._flush()

    async def run(self) -> None:
        """Write for ever: at once after a pause, in batches while busy."""
        self.heartbeat.start()
        while True:
            self.heartbeat.rest()
            await self._more.wait()
            started = monotonic()
            if self._is_all():  # for a claimer that sleeps: see write_with
                self._look_again({end.job.queue for end in self._ends})
                for _ in range(LOOPS_TO_CLAIM):
                    await asyncio.sleep(0)
            async with self._writing:
                self.heartbeat.beat()
                await self._flush()
            if not self._ends:
                self._more.clear()
                self._written.set()
            self._enough.clear()
            if len(self._ends) < MAX_BATCH // 2 and not self._is_all():
                left = FLUSH_SECONDS - (monotonic() - started)
                await pause(self._enough, max(left, 0))

    async def write_with(
        self, claim: Callable[[Completions], Awaitable[Claim]], queue: str
    ) -> Claim | None:
        """Have a claim write what has ended, where that is all that the process holds.

        The commit that ends a key's job, or a parent, so starts the next one. None if
        there is no such end, or the database refuses one: run() writes them, then.

        Args:
            claim: Writes completions and claims, in one transaction.
            queue: The queue that it claims from.
        """
        ends = list(self._ends)
        results = [e.what for e in ends if e.what is None or isinstance(e.what, str)]
        if (
            not self._is_all()
            or self._writing.locked()
            or self._reports
            or len(ends) > MAX_BATCH
            or len(results) < len(ends)
            or sum(len(result or "") for result in results) > MAX_BATCH_CHARACTERS
            or any(end.job.queue != queue for end in ends)
        ):
            return None
        async with self._writing:
            started = monotonic()
            try:
                answer = await claim(_completions(ends))
            except asyncpg.PostgresError:
                return None
            self._reporter.written(monotonic() - started)
            del self._ends[: len(ends)]
            self._ended(ends, answer.outcomes)
            return answer

    async def _flush(self) -> None:
        """Write a batch of each sort: what is more waits for the next round."""
        completed: list[End] = []
        failed: list[End] = []
        left: list[End] = []
        suspended: list[End] = []
        released: dict[str, list[End]] = {}
        seen, release_count, size = len(self._ends), 0, 0
        for end in self._ends:
            what = end.what
            if what is None or isinstance(what, str):
                batch = completed
                size += len(what or "")
                has_room = len(completed) < MAX_BATCH and (
                    size <= MAX_BATCH_CHARACTERS or not completed
                )
            elif isinstance(what, Release):
                has_room = release_count < MAX_OTHERS
                batch = released.setdefault(what.reason, []) if has_room else left
                release_count += 1
            elif isinstance(what, Suspension):
                batch = suspended
                has_room = len(suspended) < MAX_OTHERS
            else:
                batch = failed
                has_room = len(failed) < MAX_OTHERS
            (batch if has_room else left).append(end)
        if self._reports:
            ends = itertools.chain(completed, failed, suspended, *released.values())
            await self._reports.write(self._session, [end.job for end in ends])
        if completed:
            await self._write(completed, _complete)
        if failed:
            await self._write(failed, _fail)
        for batch in released.values():
            await self._write(batch, _release)
        for end in suspended:
            await self._write([end], _suspend)
        admitting = {end.job.queue for end in self._ends[:seen] if end.job.admits}
        self._ends[:seen] = left
        if admitting:
            self._look_again(admitting)

    async def _write(self, ends: Sequence[End], statement: Statement) -> None:
        started = monotonic()
        try:
            outcomes = await self._session.call(lambda c: statement(c, ends))
        except asyncpg.PostgresError as error:
            if len(ends) > 1:  # one of them is refused; the others must not suffer
                half = len(ends) // 2
                await self._write(ends[:half], statement)
                await self._write(ends[half:], statement)
            else:
                self._refused(ends[0], error)
            return
        self._reporter.written(monotonic() - started)
        self._ended(ends, outcomes)

    def _refused(self, end: End, error: asyncpg.PostgresError) -> None:
        """Answer a statement that the database refuses for this job alone.

        A result that can't be stored, or a hook of the user's: of jobs_finished for the
        first, of jobs_failed for the second case, where no attempt is left.
        """
        job, what = end
        told = describe(error)
        log.error("end refused", job=job.id, kind=job.kind, error=told)
        if isinstance(what, Release):
            # Its lease runs out and it is swept: late, but not lost.
            self._ended([end], ["refused"])
        elif isinstance(what, Failure):
            self.release(job, "refused", error=storable(told))
        elif isinstance(what, str) and _is_unstorable(error):
            result = f"the result can't be stored: {told}"
            self.fail(job, result, reason="invalid")
        else:
            self.fail(job, f"its end is refused: {told}", reason="refused")

    def _ended(self, ends: Sequence[End], outcomes: Sequence[str]) -> None:
        self._held_jobs.settle([end.job for end in ends])
        self._reporter.ended(ends, outcomes)


async def _complete(connection: Connection, ends: Sequence[End]) -> list[str]:
    return await complete_jobs(connection, *_completions(ends))


def _completions(ends: Sequence[End]) -> Completions:
    results = [end.what for end in ends]
    return (
        [end.job.id for end in ends],
        [end.job.lease_id for end in ends],
        results if any(results) else None,  # type: ignore[return-value]
    )


async def _fail(connection: Connection, ends: Sequence[End]) -> list[str]:
    outcomes = await fail_jobs(connection, [end.what for end in ends])  # type: ignore[misc]
    return await _or_completed(connection, ends, outcomes)


async def _release(connection: Connection, ends: Sequence[End]) -> list[str]:
    outcomes = await release_jobs(
        connection,
        [end.job.id for end in ends],
        [end.job.lease_id for end in ends],
        ends[0].what.reason,  # type: ignore[union-attr]
        [end.what.delay for end in ends],  # type: ignore[union-attr]
        [end.what.error for end in ends],  # type: ignore[union-attr]
    )
    return await _or_completed(connection, ends, outcomes)


async def _suspend(connection: Connection, ends: Sequence[End]) -> list[str]:
    """Let a job sleep or wait; one for which there is no more need runs again."""
    ((job, what),) = ends
    try:
        answer = await what.write(connection, job.id, job.lease_id)  # type: ignore[union-attr]
    except asyncpg.PostgresError as error:
        if error.sqlstate not in LOST_CODES:
            raise
        outcomes = ["lease_lost"]
    else:
        outcome = answer if isinstance(answer, str) else answer[0]
        if outcome in ("sleeps", "waits", "cancelled"):
            return ["cancelled" if outcome == "cancelled" else "released"]
        ids, lease_ids = [job.id], [job.lease_id]
        outcomes = await release_jobs(connection, ids, lease_ids, "unstarted")
    return await _or_completed(connection, ends, outcomes)


async def _or_completed(
    connection: Connection, ends: Sequence[End], outcomes: list[str]
) -> list[str]:
    """Tell a lost lease from a job that its handler has completed by itself."""
    if "lease_lost" not in outcomes:
        return outcomes
    seen = await lease_outcomes(
        connection, [end.job.id for end in ends], [end.job.lease_id for end in ends]
    )
    pairs = zip(outcomes, seen, strict=True)
    return [late if late == "completed" else told for told, late in pairs]


def _is_unstorable(error: asyncpg.PostgresError) -> bool:
    """Whether a result is no JSON that the database takes, or too long."""
    of_ours = getattr(error, "schema_name", None) == "pgwake"
    return isinstance(error, asyncpg.DataError) or (
        of_ours and isinstance(error, asyncpg.CheckViolationError)
    )
