"""The body of a request: JSON, of a bounded size, as PostgreSQL can store it."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from pgwake.http.problems import ProblemError, field_problem

BODY_SECONDS = 30.0
_MAX_DIGITS = 1000  # of a number; PostgreSQL's has up to 131,072
_MAX_DEPTH = 500  # half of what a worker in Python can read
# A string, or a bracket outside of one. A string that never ends goes to the end of the
# text: else it would be read again from each quote in it.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


class _HugeNumber:
    """Stands for a number that is not to be stored."""


class _Repeated:
    """Stands for an object that names a field twice."""

    def __init__(self, name: str) -> None:
        self.name = name


async def read(request: Request, limit: int) -> str:
    """Read the body, no more than so many bytes of it.

    Raises:
        ProblemError: 400 not UTF-8, 408 too slow, 413 too large, 415 not JSON.
    """
    too_large = ProblemError(
        413,
        f"the body has more than {limit} bytes",
        "Send fewer jobs a request; PGWAKE_HTTP_MAX_BODY says how much is taken.",
        headers={"Connection": "close"},
    )
    length = request.headers.get("Content-Length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > limit):
        raise too_large
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise too_large
                chunks.append(chunk)
    except ClientDisconnect:
        raise ProblemError(400, "the body ended early") from None  # heard by nobody
    except TimeoutError:
        raise ProblemError(
            408,
            f"the body took more than {BODY_SECONDS:g} s",
            "Send it faster, or less of it.",
            headers={"Connection": "close"},
        ) from None
    if size:
        _check_type(request)
    try:
        return b"".join(chunks).decode()
    except UnicodeDecodeError as error:
        raise ProblemError(
            400, f"the body is not UTF-8: {error.reason} at byte {error.start}"
        ) from None


def _check_type(request: Request) -> None:
    media_type, _, rest = request.headers.get("Content-Type", "").partition(";")
    charset = rest.strip().lower().replace('"', "")
    if (
        media_type.strip().lower() != "application/json"
        or charset not in ("", "charset=utf-8")
        or request.headers.get("Content-Encoding", "identity") != "identity"
    ):
        raise ProblemError(
            415,
            "the body is not declared as JSON",
            "Send Content-Type: application/json, in UTF-8, not compressed.",
        )


def parse(text: str) -> Any:
    """Parse JSON that PostgreSQL can store, each name once an object.

    Raises:
        ProblemError: 400, it is no JSON; 422 names where it can't be stored.
    """
    suspects: list[object] = ["\\u"] if "\\u" in text else []

    def number(text: str) -> Any:
        """Return a number; it is only looked at, the database gets its text."""
        exponent = text.lower().partition("e")[2].lstrip("+-0")
        if len(text) <= _MAX_DIGITS and int(exponent[:5] or 0) <= _MAX_DIGITS:
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        suspects.append(text)
        return _HugeNumber()

    def unique(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        names = Counter(name for name, _ in pairs)
        suspects.append(pairs)
        return _Repeated(names.most_common(1)[0][0])

    _check_depth(text)
    decoder = json.JSONDecoder(
        object_pairs_hook=unique,
        parse_int=number,
        parse_float=number,
        parse_constant=_refuse,
    )
    try:
        value = decoder.decode(text)
    except ValueError as error:
        raise ProblemError(
            400, f"the body is not JSON: {error}", "Send a JSON object."
        ) from None
    if suspects:
        _check(value)
    return value


def _check_depth(text: str) -> None:
    depth = 0
    # One by one, so that other threads have their turn.
    for found in _STRING_OR_BRACKET.finditer(text):
        match found[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
        if depth > _MAX_DEPTH:
            raise field_problem([("", f"it is nested deeper than {_MAX_DEPTH} levels")])


def _check(value: Any) -> None:
    """Raise the problem of a value that can't be stored, if it is one."""
    for place, found in _walk(value):
        match found:
            case _HugeNumber():
                problem = f"a number has more than {_MAX_DIGITS} digits"
            case _Repeated():
                problem = f"an object has the field {found.name!r} twice"
            case str() if "\0" in found:
                problem = r"a text holds \u0000, which PostgreSQL can't store"
            case str() if not _is_unicode(found):
                problem = "a text holds a lone surrogate"
            case _:
                continue
        raise field_problem([(_path(place), problem)])


class _Place(NamedTuple):
    """Where a value is; as text only where it is told, since names can be long."""

    parent: "_Place | None"
    step: str | int


def _walk(value: Any) -> Iterator[tuple[_Place | None, Any]]:
    """Yield each value and each name in it, with its place; without recursion."""
    left: list[tuple[_Place | None, Any]] = [(None, value)]
    while left:
        place, found = left.pop()
        match found:
            case dict():
                for name, item in found.items():
                    inner = _Place(place, name)
                    yield inner, name
                    left.append((inner, item))
            case list():
                left.extend((_Place(place, i), item) for i, item in enumerate(found))
            case _:
                yield place, found


def _path(place: _Place | None) -> str:
    """Return jobs[3].payload.x."""
    steps: list[str] = []
    while place is not None:
        step = place.step
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
        place = place.parent
    return "".join(reversed(steps)).removeprefix(".")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is none of its numbers")
