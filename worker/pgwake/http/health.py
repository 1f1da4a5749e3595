"""What the health endpoints answer from; they never ask the database themselves."""

from time import monotonic

MAIN_LAG_SECONDS = 10.0
DATABASE_SECONDS = 15.0


class Health:
    """The health of one process.

    Attributes:
        main_lag: How late the main loop answered the lifeline, in seconds.
        is_draining: Whether the worker has been told to stop.
        database_seen_at: When the database last answered, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.main_lag = 0.0
        self.is_draining = False
        self.database_seen_at: float | None = None

    @property
    def problems(self) -> list[str]:
        """What makes the process unfit to live."""
        if self.main_lag > MAIN_LAG_SECONDS:
            return [f"the main loop has not answered for {self.main_lag:.0f} s"]
        return []

    @property
    def obstacles(self) -> list[str]:
        """What keeps the process from working now."""
        found = self.problems
        if self.is_draining:
            found.append("draining")
        seen = self.database_seen_at
        if seen is None or monotonic() - seen > DATABASE_SECONDS:
            found.append("the database does not answer")
        return found
