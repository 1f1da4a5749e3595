"""Lines now and then, of what outsiders can make happen as often as they like."""

from time import monotonic

SECONDS = 60.0


class Seldom:
    """Counts what happens, and says when it is time for a line.

    The first time at once, then at most once a minute, with the count since the last.
    """

    def __init__(self) -> None:
        self._count = 0
        self._next = 0.0

    def count(self) -> int:
        """Count one more; how many a line is to tell of now, or 0: no line now."""
        self._count += 1
        now = monotonic()
        if now < self._next:
            return 0
        self._next = now + SECONDS
        told, self._count = self._count, 0
        return told
