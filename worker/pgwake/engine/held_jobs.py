"""The jobs that a process holds: it has claimed them, and not yet written their end."""

from collections.abc import Iterable, Iterator, Sequence

from pgwake.database.session import Session
from pgwake.database.statements.finish import release_jobs
from pgwake.jobs.attempt import Attempt


class HeldJobs:
    """What is held, whose leases are kept up; from any thread.

    The main loop takes and settles jobs while the lifeline's thread looks at them or
    gives them back. That needs no lock: each method changes or copies the set in one
    call into C, in which no other thread runs, since jobs are hashed by identity.
    """

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: set[Attempt] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: Attempt) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[Attempt]:
        """Iterate over a copy: what is held may change meanwhile."""
        return iter(list(self._jobs))

    def take(self, jobs: Iterable[Attempt]) -> None:
        """Hold jobs that were claimed."""
        self._jobs.update(jobs)

    def settle(self, jobs: Iterable[Attempt]) -> None:
        """Hold jobs no longer: their ends are written, or can't be."""
        self._jobs.difference_update(jobs)

    async def give_back(
        self, session: Session, jobs: Sequence[Attempt], reason: str
    ) -> list[str]:
        """Give jobs back to the database unburnt, and hold them no longer.

        Args:
            session: Where to do it; of the running loop.
            jobs: Which. They are held until it is written.
            reason: See release_jobs.

        Returns:
            What has become of each, as release_jobs says it.

        Raises:
            asyncpg.PostgresError: The database refused; they are still held.
        """
        outcomes = await session.call(
            lambda connection: release_jobs(
                connection,
                [job.id for job in jobs],
                [job.lease_id for job in jobs],
                reason,
            )
        )
        self.settle(jobs)
        return outcomes
