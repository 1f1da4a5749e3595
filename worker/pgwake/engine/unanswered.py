"""Unanswered claims: they have taken jobs, though their answer never came."""

import asyncio
from time import monotonic

import asyncpg
import structlog

from pgwake import worker_names
from pgwake.database.connection import describe
from pgwake.database.session import Session
from pgwake.database.statements.claim import leases_of
from pgwake.database.statements.finish import release_jobs
from pgwake.database.statements.upkeep import end_session
from pgwake.engine.held_jobs import HeldJobs

log = structlog.get_logger()

LOOK_SECONDS = 0.5
SETTLE_SECONDS = 2.0  # that it may take at the stop


class UnansweredClaims:
    """Gives back what the database counts as ours, and we do not hold.

    A session that is lost in a claim's commit (a failover, a standby that does not
    confirm) leaves jobs that nobody runs. They would wait for the end of their lease,
    and that would count as a crash of theirs. So after a fault of the claims' session
    this looks for them: when it has recovered, and again when whatever the lost session
    was still doing is over.

    Args:
        claims: The session of the claims.
        worker: The name that they claim under, never used twice.
        held_jobs: The jobs that the process holds.
        claim_lock: Held while claiming: then no answer is on its way.
    """

    def __init__(
        self,
        claims: Session,
        worker: str,
        held_jobs: HeldJobs,
        claim_lock: asyncio.Lock,
    ) -> None:
        self._claims = claims
        self._worker = worker
        self._application = worker_names.application_name(worker)
        self._held_jobs = held_jobs
        self._claim_lock = claim_lock

    async def run(self) -> None:
        """Look after each fault, for ever."""
        seen: float | None = None  # the fault that was last looked into
        again_at: float | None = None
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            failed_at = self._claims.failed_at
            if failed_at is None or self._claims.fault is not None:
                continue
            now = monotonic()
            if failed_at != seen:
                seen, again_at = failed_at, now + self._claims.timeout
            elif again_at is not None and now >= again_at:
                again_at = None
            else:
                continue
            try:
                async with self._claim_lock:
                    await self._give_back()
            except asyncpg.PostgresError as error:
                log.error("unanswered claims not given back", error=describe(error))

    async def settle(self) -> None:
        """End a claim that was cut off at the stop, and give back what it has taken."""
        if (pid := self._claims.cut_pid) is None:
            return
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while await self._claims.call(
                    lambda connection: end_session(connection, pid, self._application)
                ):
                    await asyncio.sleep(0.02)
                await self._give_back()
        except (TimeoutError, asyncpg.PostgresError) as error:
            log.error("unanswered claims not given back", error=describe(error))

    async def _give_back(self) -> None:
        # Before the look: what ends meanwhile is not to be taken for one.
        held = {(job.id, job.lease_id) for job in self._held_jobs}
        leases = await self._claims.call(
            lambda connection: leases_of(connection, self._worker)
        )
        unheld = [lease for lease in leases if lease not in held]
        if unheld:
            job_ids, lease_ids = zip(*unheld, strict=True)
            await self._claims.call(
                lambda connection: release_jobs(
                    connection, job_ids, lease_ids, "unstarted"
                )
            )
            log.warning("unanswered claims given back", jobs=len(unheld))
