"""The mailbox of a queue: its claimer and its notify lock, in two threads, share it."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from time import monotonic
from typing import Literal

# Why to look: a notification, or what happened to the notify lock, or a writer has
# gone, or the poll has found a job.
Cause = Literal["notify", "lock", "poll"]

MAX_NOTIFICATIONS = 32  # whose times are kept


class Wish(Enum):
    """What a queue's claimer wants of its notify lock."""

    SLEEP = "sleep"  # to be on duty, and woken
    NAP = "nap"  # to be on duty, and left alone: it looks again in a moment
    WORK = "work"  # to leave the duty to others: it can take no more


class Role(Enum):
    """Who a claimer is that has found less than it could take."""

    ALONE = "alone"  # knows of no others: it keeps its own timer
    ON_DUTY = "on duty"  # is woken by inserts, and keeps the timer for all
    RESERVE = "reserve"  # another is on duty; this one hears when it no longer is


class Mailbox:
    """What a claimer wants of its queue's notify lock, and what it is told by that.

    The claimer is on the loop where this is made, the lock on the one where connect()
    is called. Each side uses its attributes on its own loop. What it says changes the
    other side's there, in the order in which it was said.

    Args:
        queue: The queue's name.

    Attributes:
        role: The claimer's: what it is while it sleeps.
        is_new_on_duty: The claimer's: it was put on duty since it has last reset this.
        cause: The claimer's: why it has to look, as it was told last.
        woken: The claimer's: set when it has to look.
        notified_at: The claimer's: when it heard the last notifications, by monotonic.
        wish: The lock's: what the claimer wants.
        was_done: The lock's: the claimer has wished for WORK, and so counts on being
            off duty, since the lock has last reset this.
        is_elsewhere: The lock's: another process is on duty; reset by each wish.
    """

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self._claimers_loop = asyncio.get_running_loop()
        self._locks_loop: asyncio.AbstractEventLoop | None = None
        self._asked_for: Wish | None = None
        self.role = Role.ALONE
        self.is_new_on_duty = False
        self.cause: Cause = "lock"
        self.woken = asyncio.Event()
        self.notified_at: deque[float] = deque(maxlen=MAX_NOTIFICATIONS)
        self.wish = Wish.WORK
        self.was_done = False
        self.is_elsewhere = False

    def connect(self, changed: Callable[[], None]) -> None:
        """Let the running loop be the lock's; changed is called there by each wish."""
        self._changed = changed
        self._locks_loop = asyncio.get_running_loop()

    def want(self, wish: Wish) -> None:
        """Say what the claimer wants, unless that is known; on its loop."""
        if wish is Wish.WORK:
            self.role = Role.ALONE
        if wish is not self._asked_for:
            self._asked_for = wish
            if self._locks_loop is not None:
                _call(self._locks_loop, self._wished, wish)

    def ask_anew(self) -> None:
        """Try for the duty again where another process is on it: that may be gone."""
        if self.role is not Role.ON_DUTY and self._asked_for is Wish.NAP:
            self._asked_for = None
            self.want(Wish.NAP)

    def wake(self, cause: Cause) -> None:
        """Have the claimer look; on its loop."""
        self.cause = cause
        self.woken.set()

    def tell(self, role: Role, cause: Cause | None) -> None:
        """Say what the claimer is, and why to look, if so; on the lock's loop."""
        _call(self._claimers_loop, self._told, role, cause)

    def _wished(self, wish: Wish) -> None:
        self.wish = wish
        self.was_done = self.was_done or wish is Wish.WORK
        self.is_elsewhere = False
        self._changed()

    def _told(self, role: Role, cause: Cause | None) -> None:
        if role is Role.ON_DUTY is not self.role:
            self.is_new_on_duty = True
        self.role = role
        if cause is None:
            return
        if cause == "notify":
            self.notified_at.append(monotonic())
        self.wake(cause)


def _call(
    loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object
) -> None:
    with suppress(RuntimeError):  # it is closed already
        loop.call_soon_threadsafe(function, *arguments)
