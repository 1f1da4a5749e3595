"""The policy that a handler declares for its kind of job."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pgwake.errors import ConfigurationError

_DAY = 86_400.0
_YEAR = 360 * _DAY  # as PostgreSQL compares intervals
_RANGES: Mapping[str, tuple[float, float, str]] = {
    "max_attempts": (1, 10_000, ""),
    "timeout": (0.001, _DAY, " seconds"),
    "lease": (1, _DAY, " seconds"),
    "priority": (-100, 100, ""),
    "backoff_base": (0, _DAY, " seconds"),
    "backoff_cap": (0, _YEAR, " seconds"),
    "backoff_jitter": (0, 1, ""),
}
_WHOLE = {"max_attempts", "priority"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a kind's attempts go by; None: by the queue's policy, or the default.

    What an operator sets for the kind comes before it, a job's own before both. Times
    are in seconds; see sql/functions/policy/retry_delay.sql for the backoff.

    Raises:
        ConfigurationError: A value is out of range; the message names it.
    """

    max_attempts: int | None = None
    timeout: float | None = None
    lease: float | None = None
    priority: int | None = None
    backoff_base: float | None = None
    backoff_cap: float | None = None
    backoff_jitter: float | None = None

    def __post_init__(self) -> None:
        for name, value in self.declared().items():
            low, high, unit = _RANGES[name]
            numbers = int if name in _WHOLE else (int, float)
            is_number = isinstance(value, numbers) and not isinstance(value, bool)
            if not (is_number and low <= value <= high):
                raise ConfigurationError(
                    f"{name} is {value!r}: use {low:g} to {high:g}{unit}"
                )

    def declared(self) -> dict[str, float]:
        """Return what is declared."""
        return {
            name: value for name, value in asdict(self).items() if value is not None
        }
