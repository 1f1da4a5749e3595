"""The LISTEN session: its own, never in a transaction, never from a pool."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from math import inf
from time import monotonic
from typing import NoReturn

import structlog

from pgwake.database.connection import (
    FAULTS,
    Connection,
    backoff,
    check_writable,
    connect,
    describe,
)
from pgwake.database.pooler import PooledError, check_listening
from pgwake.database.session import tell_found, wait_out
from pgwake.database.statements.wake import (
    CANCEL_CHANNEL,
    CHANNEL,
    DUTY_CHANNEL,
    end_session,
    open_writers,
    session_id,
)
from pgwake.engine.lifeline.notify_lock import FEW_QUEUES, NotifyLock, settle
from pgwake.engine.mailbox import Mailbox
from pgwake.observe.metrics import Metrics
from pgwake.sleep import pause

log = structlog.get_logger()

# Longer than the usual poll, since each poll of a queue that another process is on duty
# for is a statement here, too.
PING_SECONDS = 6.0
POOLED_SECONDS = 300.0  # until it tries again whether LISTEN works meanwhile
_POOLED = {
    "cause": "a transaction pooler stands before the database, so only the poll finds"
    " new jobs",
    "remedy": "set PGWAKE_LISTEN_URL to a direct connection",
}


class Listener:
    """Listens, has the notify locks, and comes back when its session is lost.

    It hears of wake-ups, of duty that is passed, and of cancellations.

    Args:
        dsn: A direct connection; LISTEN does not work through a transaction pooler.
        name: The application_name.
        mailboxes: Those of the queues to listen for.
        timeout: Deadline of a connect and of a statement, in seconds.
        metrics: Where listener_up and notify_lock_held are shown.
        tell_cancelled: Called with what is heard on the channel of cancellations.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        mailboxes: Iterable[Mailbox],
        *,
        timeout: float,
        metrics: Metrics,
        tell_cancelled: Callable[[str], None],
    ) -> None:
        self._dsn = dsn
        self._name = name
        self._timeout = timeout
        self._metrics = metrics
        self._tell_cancelled = tell_cancelled
        self._notify_locks = {box.queue: NotifyLock(box) for box in mailboxes}
        self._changed = asyncio.Event()
        # A process may have 10,000 queues, of which a moment concerns one or two.
        self._to_settle: set[NotifyLock] = set()
        self._looking: set[NotifyLock] = set()  # those that ask who writes
        self._is_settled = False
        self._lacks_room = False  # for the locks of all queues, as has been said
        self._before: tuple[int, datetime] | None = None  # the session before this one
        self.is_up = False
        for lock in self._notify_locks.values():
            metrics.notify_lock_held.set(partial(getattr, lock, "is_held"), lock.name)

    def connect(self) -> None:
        """Let the running loop be the one where the claimers' wishes arrive."""
        for lock in self._notify_locks.values():
            lock.mailbox.connect(partial(self._have_settled, lock))

    def set_away(self, is_away: bool) -> None:
        """Hear that the claimers can't look, or can again."""
        for lock in self._notify_locks.values():
            lock.is_away = is_away
        self._have_settled(*self._notify_locks.values())

    @property
    def has_left(self) -> bool:
        """Whether, after set_away, no duty is kept and the others have been told."""
        is_away = all(lock.is_away for lock in self._notify_locks.values())
        is_settled = self._is_settled and not self._changed.is_set()
        return not self.is_up or (is_away and is_settled)

    async def run(self) -> None:
        """Listen for ever."""
        failures = 0
        was_told = False
        while True:
            started = monotonic()
            try:
                await self._listen()
            except PooledError:
                report = log.debug if was_told else log.warning
                was_told = True
                report("listening is impossible", **_POOLED)
                await asyncio.sleep(POOLED_SECONDS)
                continue
            except FAULTS as error:
                problem = describe(error)
            finally:
                self._show(is_up=False)
                for lock in self._notify_locks.values():
                    lock.lost()
            failures = 1 if monotonic() - started > 60 else failures + 1
            report = log.warning if failures == 1 else log.debug
            report("listener failed", error=problem)
            await wait_out(self._dsn, backoff(failures))

    async def _listen(self) -> NoReturn:
        connection = await connect(self._dsn, self._name, self._timeout)
        try:
            await check_listening(connection, self._dsn, self._name, self._timeout)
            connection.add_termination_listener(lambda _: self._changed.set())
            async with asyncio.timeout(self._timeout):
                await self._begin(connection)
            while True:
                await self._serve(connection)
        finally:
            connection.terminate()

    async def _begin(self, connection: Connection) -> None:
        await check_writable(connection)  # else nothing would ever be heard
        await connection.add_listener(CHANNEL, self._notified)
        await connection.add_listener(DUTY_CHANNEL, self._passed)
        await connection.add_listener(CANCEL_CHANNEL, self._cancelled)
        if self._before is not None:
            # If only its socket is dead, it would keep the notify locks, and hear
            # nothing.
            await end_session(connection, self._before)
        self._before = await session_id(connection)
        self._show(is_up=True)
        tell_found(self._dsn)
        for lock in self._notify_locks.values():
            lock.begun()
        self._have_settled(*self._notify_locks.values())

    async def _serve(self, connection: Connection) -> None:
        """Do what there is to do, and wait for more, no longer than until a ping."""
        if connection.is_closed():
            raise ConnectionResetError("the session has ended")
        self._is_settled = False  # before the event is cleared: has_left looks at both
        self._changed.clear()
        locks, self._to_settle = self._to_settle, set()
        async with asyncio.timeout(self._timeout):
            if locks:
                is_limited = len(self._notify_locks) > FEW_QUEUES
                await settle(connection, locks, is_limited=is_limited)
                self._say_room()
            self._is_settled = True
            self._looking = {
                lock for lock in self._looking | locks if lock.seconds_to_look() < inf
            }
            if due := [lock for lock in self._looking if lock.seconds_to_look() <= 0]:
                writers = await open_writers(connection)
                for lock in due:
                    lock.look(writers)
        wait = min((lock.seconds_to_look() for lock in self._looking), default=inf)
        if await pause(self._changed, min(max(wait, 0), PING_SECONDS)):
            return
        if wait > PING_SECONDS:
            # A half-open socket raises nothing by itself, for hours.
            async with asyncio.timeout(self._timeout):
                await check_writable(connection)

    def _have_settled(self, *locks: NotifyLock) -> None:
        self._to_settle.update(locks)
        self._changed.set()

    def _notified(self, _: object, _pid: int, _channel: str, name: object) -> None:
        if (lock := self._notify_locks.get(str(name))) is not None:
            lock.notified()

    def _passed(self, _: object, _pid: int, _channel: str, name: object) -> None:
        if (lock := self._notify_locks.get(str(name))) is not None:
            lock.passed()
            self._have_settled(lock)

    def _cancelled(self, _: object, _pid: int, _channel: str, news: object) -> None:
        self._tell_cancelled(str(news))

    def _say_room(self) -> None:
        lacks_room = any(lock.lacks_room for lock in self._notify_locks.values())
        if lacks_room and not self._lacks_room:
            log.warning(
                "no room in the server for the locks of all queues",
                queues=len(self._notify_locks),
                effect="those without a lock are polled",
                remedy="raise max_locks_per_transaction: a queue that is woken takes 2"
                " locks, and all of them up to half of the server's, which are"
                " max_locks_per_transaction * max_connections",
            )
        self._lacks_room = lacks_room

    def _show(self, *, is_up: bool) -> None:
        self.is_up = is_up
        self._metrics.listener_up.set(is_up)
