"""What a fault did."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that was made, in the server's clock.

    Attributes:
        fault: Its name.
        began_at: When it began.
        ended_at: When it was mended.
        victims: The workers that it hit, by their names in claimed_by, where it hits
            workers.
        accepting_at: When the server accepted connections again, after a restart.
    """

    fault: str
    began_at: datetime
    ended_at: datetime
    victims: tuple[str, ...] = ()
    accepting_at: datetime | None = None

    @property
    def healed_at(self) -> datetime:
        """From when on all could be as before."""
        return self.accepting_at or self.ended_at
