"""The poll: one look for all queues of a process, in which of them jobs are due."""

import asyncio
import random
from collections.abc import Sequence
from time import monotonic

import asyncpg

from pgwake.database.session import Session
from pgwake.database.statements.wake import due_queues

# A look that takes longer, as under an old snapshot, is left to the claims for a while:
# they know where they have looked before.
SLOW_SECONDS = 0.1
SLOW_PAUSE = 60.0


class Poll:
    """Asks for all queues at once, so that idle ones make no claims.

    Args:
        session: The session of the claims.
        queues: The queues of the process.
        interval: Seconds between the looks at a queue, give or take a tenth.

    Attributes:
        interval: That.
        queue_count: How many queues there are.
    """

    def __init__(
        self, session: Session, queues: Sequence[str], interval: float
    ) -> None:
        self.interval = interval
        self.queue_count = len(queues)
        self._session = session
        self._queues = queues
        self._turn = asyncio.Lock()
        self._asked_at = float("-inf")
        self._next_at = 0.0
        self._due = frozenset(queues)
        self._slow_until = 0.0

    async def next_at(self, queue: str, since: float) -> float | None:
        """Look, unless that was done for any queue since; when to look again.

        Times are of the monotonic clock. None: the queue may have jobs to claim.
        """
        async with self._turn:
            if self._asked_at <= since:
                await self._ask()
        return None if queue in self._due else self._next_at

    async def _ask(self) -> None:
        self._asked_at = asked_at = monotonic()
        # One moment for all queues: what they want of their notify locks then, too, is
        # asked for together.
        self._next_at = asked_at + self.interval * random.uniform(0.9, 1.1)  # noqa: S311
        self._due = frozenset(self._queues)
        if asked_at < self._slow_until:
            return
        try:
            due = await self._session.call(lambda c: due_queues(c, self._queues))
        except asyncpg.PostgresError:
            return  # the claims are refused, too, and say so
        if monotonic() - asked_at > SLOW_SECONDS:
            self._slow_until = monotonic() + SLOW_PAUSE
        self._due = due
