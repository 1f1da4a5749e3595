"""What came back from outside, as a job's result."""

import json
from typing import Any

from pgwake.errors import InvalidValueError
from pgwake.jsontext import RESULT_BYTES, dumps, storable

MAX_BYTES = RESULT_BYTES


def result_of(data: bytes, *, is_json: bool) -> Any:
    """Return bytes as a value that can be stored: JSON, or a string, or None for none.

    What is no JSON after all, or none that PostgreSQL can store, is a string. A string
    that is longer than a result may be is cut: the work is done, and must not be done
    again for the length of its answer.

    Args:
        data: At most some more than MAX_BYTES.
        is_json: Whether to try JSON.
    """
    if not data.strip():
        return None
    if is_json and len(data) <= MAX_BYTES:
        try:
            value = json.loads(data)
            dumps(value)
            # With blanks after commas and colons, as jsonb is printed and measured.
            if len(json.dumps(value, ensure_ascii=False).encode()) <= MAX_BYTES:
                return value
        except (ValueError, RecursionError, InvalidValueError):
            pass
    return _cut(storable(data.decode(errors="replace")))


def _cut(text: str) -> str:
    """Return as much of the beginning as a result may have once it is quoted."""
    while (size := len(dumps(text).encode())) > MAX_BYTES:
        text = text[: len(text) * MAX_BYTES // size - 1]
    return text
