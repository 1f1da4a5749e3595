"""Signs of life of the process's loops, for whoever looks from another thread."""

from contextvars import ContextVar
from time import monotonic

SILENT_SECONDS = 60.0

_current: "ContextVar[Heartbeat | None]" = ContextVar("heartbeat", default=None)


class Heartbeat:
    """When a loop was last seen to go round; at first it rests.

    A loop that waits for the database goes round as long as its session tries again:
    no restart would help it.

    Args:
        loop: What goes round, in words.
        seconds: The longest that it sleeps, or that its session waits for an answer.

    Attributes:
        is_refused: Whether the database has refused what it asked for the last time.
    """

    def __init__(self, loop: str, seconds: float) -> None:
        self.loop = loop
        self.is_refused = False
        self._seconds = seconds
        self._beat_at: float | None = None

    @classmethod
    def current(cls) -> "Heartbeat | None":
        """Return that of the loop which the running task is."""
        return _current.get()

    def start(self) -> None:
        """Let the running task be the loop, whose sessions beat for it."""
        _current.set(self)
        self.beat()

    def beat(self) -> None:
        """Note that it goes round."""
        self._beat_at = monotonic()

    def rest(self) -> None:
        """Note that it has nothing to do, or not its turn, until the next beat."""
        self._beat_at = None

    @property
    def stalled_seconds(self) -> float | None:
        """Seconds since it was last seen, where that is too long; else None."""
        beat_at = self._beat_at
        if beat_at is None:
            return None
        silent = monotonic() - beat_at
        return silent if silent > max(SILENT_SECONDS, 3 * self._seconds) else None
