"""The poll: one look for many queues of a process, when the next job of each is due."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic

import asyncpg

from pgwake.database.session import Session
from pgwake.database.statements.wake import next_run_ats
from pgwake.engine.mailbox import Mailbox
from pgwake.heartbeat import Heartbeat

# A queue whose look takes longer, as under an old snapshot, is left to its claims for a
# while: they know where they have looked before.
SLOW_SECONDS = 0.05
SLOW_PAUSE = 60.0
# Queues a statement; claims have their turn between two of them.
MAX_BATCH = 1000
# With more claims than that in a queue for their turn, the next ones look together.
CROWD = 8


class Poll:
    """Looks for all queues at once, so that idle ones make no claims.

    Args:
        session: The session of the claims.
        queue_count: How many queues there are.
        interval: Seconds between the looks at queues that sleep, give or take a tenth.

    Attributes:
        interval: That.
        queue_count: That.
        asleep: The mailboxes of the queues that sleep, which their claimers put here.
        waiting: How many claims wait for their turn.
    """

    def __init__(self, session: Session, queue_count: int, interval: float) -> None:
        self.interval = interval
        self.queue_count = queue_count
        self.heartbeat = Heartbeat("the poll", max(interval, session.timeout))
        self.asleep: dict[str, Mailbox] = {}
        self.waiting = 0
        self._session = session
        self._turn = asyncio.Lock()
        self._open_look = _Look()
        self._slow_until: dict[str, float] = {}

    async def run(self) -> None:
        """Wake the queues that sleep and have jobs, for ever."""
        self.heartbeat.start()
        while True:
            self.heartbeat.beat()
            await asyncio.sleep(self.interval * random.uniform(0.9, 1.1))  # noqa: S311
            for mailbox in self.asleep.values():
                mailbox.ask_anew()
            for queue, seconds in (await self._ask(list(self.asleep))).items():
                if seconds is not None and seconds <= 0 and queue in self.asleep:
                    self.asleep[queue].wake("poll")

    async def seconds_to_next(self, queue: str) -> float | None:
        """Look together with all others that ask now.

        Seconds until the next job is due; None if there is none, 0 if only a claim can
        tell.
        """
        look = self._open_look
        look.queues.append(queue)
        async with self._turn:
            if look is self._open_look:
                self._open_look = _Look()
                look.answer = await self._ask(look.queues)
        return look.answer.get(queue, 0.0)

    async def _ask(self, queues: Sequence[str]) -> Mapping[str, float | None]:
        now = monotonic()
        asked = [queue for queue in queues if self._slow_until.get(queue, 0) <= now]
        answer: dict[str, float | None] = dict.fromkeys(queues, 0.0)
        for start in range(0, len(asked), MAX_BATCH):
            batch = asked[start : start + MAX_BATCH]
            try:
                rows = await self._session.call(partial(next_run_ats, queues=batch))
            except asyncpg.PostgresError:
                return answer  # the claims are refused, too, and say so
            answer |= dict.fromkeys(batch)
            for queue, seconds_to_next, seconds in rows:
                is_slow = seconds is not None and seconds > SLOW_SECONDS
                if is_slow:
                    self._slow_until[queue] = monotonic() + SLOW_PAUSE
                is_known = seconds is not None and not is_slow
                answer[queue] = seconds_to_next if is_known else 0.0
        return answer


class _Look:
    """One look: who asks for it, and seconds until each one's next job is due."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.answer: Mapping[str, float | None] = {}
