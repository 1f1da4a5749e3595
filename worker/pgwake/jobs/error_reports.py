"""What went wrong in a handler: in words that can be stored, from whichever process."""

import re
import traceback
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from pgwake.errors import InvalidPayloadError, InvalidValueError, PgwakeError
from pgwake.jobs.outcomes import Discard, Outcome, Retry, Snooze, outcome_of
from pgwake.jsontext import storable

_LONGEST = 2000  # characters of a message, and of a traceback
_LOGIN = re.compile(r"(://[^\s/@:]*):[^\s/@]+@")  # postgresql://user:password@
_secrets: set[str] = set()

_OURS = str(Path(__file__).parents[1])


def hide(secrets: Iterable[str]) -> None:
    """Leave these out of what is told of errors in this process, from now on.

    What is short is not: it would be found in any word.
    """
    _secrets.update(secret for secret in secrets if len(secret) >= 8)


def _told(text: str) -> str:
    """Return text without secrets: passwords in URLs, and what is to be hidden."""
    text = _LOGIN.sub(r"\1:***@", text)
    for secret in _secrets:
        text = text.replace(secret, "***")
    return storable(text)


class ReportedError(PgwakeError):
    """What a handler's process has reported of its attempt, or what befell it.

    Args:
        message: What it was.
        traceback: Where it came from; None: not from the handler's code.
        reason: As fail_jobs takes it.
        retryable: Whether another attempt may help.
        retry_in: How long until then; None: the backoff.
        error_type: The class of the error; None: it was none.
    """

    def __init__(
        self,
        message: str,
        traceback: str | None = None,
        reason: str = "failed",
        *,
        retryable: bool = True,
        retry_in: timedelta | None = None,
        error_type: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.traceback = traceback
        self.reason = reason
        self.retryable = retryable
        self.retry_in = retry_in
        self.error_type = error_type

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all of it, not the message alone."""
        return ReportedError, (self.message,), vars(self)


def report(error: BaseException) -> ReportedError | Snooze:
    """Put an error into a form that another process understands."""
    outcome = outcome_of(error)
    if isinstance(outcome, Snooze):
        return outcome
    told = ReportedError(*describe(outcome), error_type=type_of(outcome))
    match outcome:
        case Retry():
            told.retry_in = outcome.delay
        case Discard():
            told.reason, told.retryable = "discarded", False
        case InvalidPayloadError():
            told = ReportedError(str(outcome), None, "invalid", retryable=False)
        case InvalidValueError():
            told.reason = "invalid"
    return told


def type_of(error: BaseException | str) -> str | None:
    """Return the name of an error's class, or of its cause's, with its module."""
    if isinstance(error, str):
        return None
    if isinstance(error, ReportedError):
        return error.error_type
    if isinstance(error, Outcome):
        error = error.__cause__ or error
    module, name = type(error).__module__, type(error).__qualname__
    return name if module == "builtins" else f"{module}.{name}"


def describe(error: BaseException | str) -> tuple[str, str | None]:
    """What it is, and where in the user's code it came from; bounded."""
    if isinstance(error, str):
        return _told(error[: 2 * _LONGEST])[:_LONGEST], None
    if isinstance(error, ReportedError):
        return _told(error.message), error.traceback and _told(error.traceback)
    told = ""
    try:
        if isinstance(error, Outcome):  # its reason, and where its cause came from
            told, error = str(error), error.__cause__ or error
        title = told or f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception as unprintable:  # noqa: BLE001, a user's __str__
        title = (
            f"{type(error).__name__} (its str() raises {type(unprintable).__name__})"
        )
    frames = traceback.extract_tb(error.__traceback__)
    trace = "".join(
        traceback.format_list([f for f in frames if not f.filename.startswith(_OURS)])
    )
    # Twice as much of it is looked at, so that no secret is cut, and not known.
    title, trace = _told(title[: 2 * _LONGEST]), _told(trace[-2 * _LONGEST :])
    return title[:_LONGEST], trace[-_LONGEST:].rstrip() or None
