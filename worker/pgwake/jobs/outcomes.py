"""What a handler raises to say itself what becomes of its job."""

from datetime import timedelta

from pgwake.errors import InvalidValueError

MAX_DELAY = timedelta(days=3650)


class Outcome(Exception):  # noqa: N818, none is an error
    """The base of what a handler raises to end its attempt in its own way.

    From anywhere in the handler, with or without a cause (`raise ... from error`);
    alone in an exception group it counts too.
    """


class Snooze(Outcome):
    """Put the job off: it runs again after the delay, and this attempt doesn't count.

    With a delay of 0 it is given back as it is, due at once.

    Args:
        delay: Seconds or a timedelta, from 0 to 3650 days.

    Raises:
        InvalidValueError: The delay can't be meant.
    """

    delay = timedelta(0)

    def __init__(self, delay: float | timedelta) -> None:
        self.delay = _delay("Snooze", delay)
        super().__init__(f"snoozed for {self.delay}")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the delay, not the message."""
        return Snooze, (self.delay,)


class Retry(Outcome):
    """Count the attempt as failed, and try again after the delay if any is left.

    Args:
        delay: Seconds or a timedelta, from 0 to 3650 days; None: the backoff.
        reason: What to keep in the job's errors; by default the cause's message.

    Raises:
        InvalidValueError: The delay can't be meant.
    """

    delay: timedelta | None = None

    def __init__(
        self, delay: float | timedelta | None = None, reason: str = ""
    ) -> None:
        self.delay = None if delay is None else _delay("Retry", delay)
        super().__init__(reason)


class Discard(Outcome):
    """Send the job to the dead letters, however many attempts it has left.

    Args:
        reason: What to keep in the job's errors; by default the cause's message.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


def outcome_of(error: BaseException) -> BaseException:
    """Return the outcome that an error stands for, or the error itself.

    An outcome alone in a group counts, as of a task that has raised it. One whose delay
    a subclass has made into what can't be meant is an InvalidValueError.
    """
    inner = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    if not isinstance(inner, Outcome):
        return error
    if isinstance(inner, Snooze) or (
        isinstance(inner, Retry) and inner.delay is not None
    ):
        try:
            inner.delay = _delay(type(inner).__name__, inner.delay)
        except InvalidValueError as invalid:
            return invalid
    return inner


def _delay(what: str, delay: float | timedelta | None) -> timedelta:
    try:
        wanted = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        wanted = None
    if wanted is None or not timedelta(0) <= wanted <= MAX_DELAY:
        raise InvalidValueError(
            f"{what} with a delay of {delay!r}: give seconds or a timedelta, from 0 to"
            f" {MAX_DELAY.days} days"
        )
    return wanted
