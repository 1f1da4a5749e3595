"""The notify lock: which of the processes that sleep on a queue its inserts wake."""

from collections.abc import Collection
from math import inf
from time import monotonic

from pgwake.database.statements import Connection
from pgwake.database.statements.wake import (
    mute,
    park_all,
    pass_duty,
    unmute_all,
    unpark,
)
from pgwake.engine.mailbox import Mailbox, Role, Wish

# With more queues it is looked whether the server has room for their locks.
FEW_QUEUES = 100
# After the notify lock was taken, and at the least between looks.
FIRST_LOOK_SECONDS = 0.005


class NotifyLock:
    """One queue's notify lock, as this process sees it; see tests/lab/model/README.md.

    Everything here happens on the loop of the session that listens. An error of the
    session is raised, and lost() has to be called then.

    Args:
        mailbox: Where it and the queue's claimer hear of each other.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self.name = mailbox.queue
        self.mailbox = mailbox
        self.is_on_duty = False
        self.is_held = False
        self.is_away = False
        self.lacks_room = False  # the server has none for its locks: it is polled
        self._owes = False  # went off duty, and the others may not have been told
        self._is_passed = False
        self._writers: frozenset[str] | None = None  # None: not yet asked for
        self._since = 0.0
        self._next_look = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether the lock is held, and nobody writes who might have missed it."""
        return self.is_held and self._writers == frozenset()

    def begun(self) -> None:
        """Hear that a session has begun: anything may have been missed before."""
        self.mailbox.tell(Role.ALONE, "lock")

    def notified(self) -> None:
        """Hear that jobs have come."""
        if not self.mailbox.is_elsewhere:
            self.mailbox.tell(Role.ON_DUTY if self.is_on_duty else Role.ALONE, "notify")

    def passed(self) -> None:
        """Hear that nobody may be on duty; settle() has to follow."""
        self._is_passed = True
        self.mailbox.is_elsewhere = False

    def lost(self) -> None:
        """The session has ended, and with it the duty."""
        self._owes = self._owes or self.is_on_duty
        self.is_on_duty = self.is_held = self.mailbox.is_elsewhere = False
        self.mailbox.tell(Role.ALONE, "lock")

    async def settle(self, connection: Connection) -> None:
        """Go off duty, take the lock or give it up, as the claimer wants."""
        while self.mailbox.wish is not Wish.WORK and not self.is_away:
            if not self.is_on_duty or self.wants_lock:
                return
            if self.is_held is (self.mailbox.wish is Wish.SLEEP):
                if self.mailbox.was_done:  # and is not, having changed its mind at once
                    self.mailbox.was_done = False
                    self.mailbox.tell(Role.ON_DUTY, "lock")
                return
            await mute(connection, self.name)
            self.is_held = False
        if self.is_on_duty:
            self._owes = True
            await unpark(connection, self.name, muted=not self.is_held)
            self.is_on_duty = self.is_held = False
        elif self._owes:
            await pass_duty(connection, self.name)
        self._owes = self.mailbox.was_done = False

    def begin_try(self) -> bool:
        """Whether to try to go on duty now: tried() has to follow then."""
        self._is_passed = False
        if self.is_on_duty or self.is_away or self.mailbox.is_elsewhere:
            return False
        return self.mailbox.wish is not Wish.WORK

    def tried(self, *, is_on_duty: bool | None) -> None:
        """Hear whether it is on duty now, or another session is; None: no room for it.

        Then the claimer is left alone with the poll, and asks anew with that.
        """
        self.lacks_room = is_on_duty is None
        if is_on_duty:
            self.is_on_duty = True
            self.mailbox.tell(Role.ON_DUTY, "lock")
        elif is_on_duty is None:
            self.mailbox.is_elsewhere = True
            self.mailbox.tell(Role.ALONE, None)
            return
        elif self._is_passed:  # passed meanwhile
            return
        else:
            self.mailbox.is_elsewhere = True
            self.mailbox.tell(Role.RESERVE, None)
        self._owes = False

    @property
    def wants_lock(self) -> bool:
        """Whether it is on duty and should have the lock, which it has not."""
        if self.is_held or self.is_away or not self.is_on_duty:
            return False
        return self.mailbox.wish is Wish.SLEEP

    def took(self) -> None:
        """Hear that the lock has been taken."""
        self.is_held = True
        self._writers = None
        self._next_look = monotonic() + FIRST_LOOK_SECONDS
        self.mailbox.tell(Role.ON_DUTY, "lock")

    def seconds_to_look(self) -> float:
        """How long until it has to be asked who writes; infinite if it need not be."""
        if self.is_quiet or not self.is_held:
            return inf
        return self._next_look - monotonic()

    def look(self, writers: frozenset[str]) -> None:
        """Have the claimer look if one who might have missed the notify lock has gone.

        A job whose transaction began before the notify lock was taken is so found
        within a tenth of the time that it was open since.

        Args:
            writers: The transactions that write now, just asked for.
        """
        now = monotonic()
        if self._writers is None:
            # Always look after having asked: who is not among them either has
            # committed by then, or will find the notify lock held.
            self._since, gone = now, True
        else:
            gone = not self._writers <= writers
            writers &= self._writers
        self._writers = writers
        self._next_look = now + max(FIRST_LOOK_SECONDS, (now - self._since) / 10)
        if gone:
            self.mailbox.tell(Role.ON_DUTY, "lock")


async def settle(
    connection: Connection, locks: Collection[NotifyLock], *, is_limited: bool
) -> None:
    """Go on duty or off, take locks or give them up, as their claimers want.

    Many queues go on duty, and are locked, by one statement: a process may have a
    thousand, each of which asks anew with each poll.

    Args:
        connection: The session that listens.
        locks: Those that may have something to do.
        is_limited: Look whether the server has room; see FEW_QUEUES.
    """
    while trying := [lock for lock in locks if lock.begin_try()]:
        names = [lock.name for lock in trying]
        parked = await park_all(connection, names, is_limited=is_limited)
        for lock in trying:
            lock.tried(is_on_duty=parked[lock.name])
    if taking := [lock for lock in locks if lock.wants_lock]:
        await unmute_all(connection, [lock.name for lock in taking])
        for lock in taking:
            lock.took()
    for lock in locks:
        await lock.settle(connection)
