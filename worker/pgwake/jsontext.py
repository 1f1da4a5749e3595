"""JSON as PostgreSQL takes it."""

import json
import re
from typing import Any

from pgwake.errors import InvalidValueError, UnreadableValueError

RESULT_BYTES = 1 << 20  # as the check jobs_result_is_at_most_1_mib says
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def dumps(value: Any) -> str:
    r"""Return the value as JSON text that jsonb accepts.

    Dates, UUIDs, decimals, dataclasses, pydantic models and the like become what
    pydantic makes of them.

    Raises:
        InvalidValueError: NaN, infinity, \u0000, a lone surrogate, or a type that
            has no JSON form.
    """
    try:
        text = json.dumps(
            value,
            allow_nan=False,
            ensure_ascii=False,
            separators=(",", ":"),
            default=_jsonable,
        )
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValueError("a string holds a lone surrogate") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"not a JSON value: {error}") from None
    if "\\u0000" in text and _NUL.search(text):
        raise InvalidValueError(r"a string holds \u0000, which PostgreSQL can't store")
    return text


def dumps_result(value: Any) -> str | None:
    """Return a job's result as JSON text; None for none.

    Measured here: the database would refuse one that is too long, but only once it had
    all of it, and the ends of other jobs wait for that.

    Raises:
        InvalidValueError: As dumps(), or it has more than RESULT_BYTES.
    """
    if value is None:
        return None
    text = dumps(value)
    # jsonb is measured as it is printed, with more blanks than this, so never shorter.
    if len(text) * 4 > RESULT_BYTES and (size := len(text.encode())) > RESULT_BYTES:
        raise InvalidValueError(
            f"the result can't be stored: it has {size} bytes, and may have "
            f"{RESULT_BYTES} (jobs_result_is_at_most_1_mib). Keep it elsewhere, and "
            "return where"
        )
    return text


class JsonText(str):
    """JSON as PostgreSQL has written it, to be shown or passed on without reading it.

    Anybody may have put there what Python does not read.
    """

    __slots__ = ()

    @classmethod
    def of(cls, text: str | None) -> "JsonText | None":
        """Mark a text; None for none."""
        return None if text is None else cls(text)


def loads(text: str) -> Any:
    """Return the value of JSON that PostgreSQL has written.

    Raises:
        UnreadableValueError: Python does not read it.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = (
            "it is nested too deep"
            if isinstance(error, RecursionError)
            else "a number in it has more digits than Python reads"
        )
        raise UnreadableValueError(
            f"Python can't read this JSON, since {why}: {text[:80]}... "
            "Select it as text, or correct what has written it.",
            text,
        ) from None


def _jsonable(value: Any) -> Any:
    # Here, since most values are plain, and who only enqueues such needs no pydantic.
    from pydantic_core import to_jsonable_python  # noqa: PLC0415

    return to_jsonable_python(value)


def storable(text: str) -> str:
    """Return text that PostgreSQL can store: NUL and lone surrogates replaced."""
    return (
        text.replace("\0", "\N{REPLACEMENT CHARACTER}")
        .encode(errors="backslashreplace")
        .decode()
    )
