"""Signs of life of the process's loops, for whoever looks from another thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from pgwake.connection import Session

SILENT_SECONDS = 60.0


class Pulse:
    """When a loop was last seen to go round.

    One that waits for the database goes round as long as its session tries: no restart
    would help it. Until the first beat it rests.

    Args:
        loop: What goes round, in words.
        session: By which it asks the database.
        seconds: The longest that it sleeps by itself.

    Attributes:
        is_refused: Whether the database has refused what it asked for the last time.
    """

    def __init__(self, loop: str, session: Session, seconds: float = 0.0) -> None:
        self.loop = loop
        self.is_refused = False
        self._session = session
        self._seconds = seconds
        self._is_asking = False
        self._beat_at: float | None = None

    def beat(self) -> None:
        """Note that it goes round."""
        self._beat_at = monotonic()

    def rest(self) -> None:
        """Note that it has nothing to do, until the next beat."""
        self._beat_at = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Note that it waits for the database, or for its turn to ask it."""
        self.beat()
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False
            self.beat()

    @property
    def stalled_seconds(self) -> float | None:
        """Seconds since it was last seen, where that is too long; else None."""
        seen_at = self._beat_at
        if seen_at is None:
            return None
        if self._is_asking:
            seen_at = max(seen_at, self._session.tried_at)
        silent = monotonic() - seen_at
        is_late = silent > max(SILENT_SECONDS, 3 * self._seconds)
        return silent if is_late else None
