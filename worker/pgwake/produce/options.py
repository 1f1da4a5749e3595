"""A job's options: the one table that says what a job can be enqueued with.

Keyword arguments, the JSON that SQL takes, the columns of COPY, the model of the HTTP
service and the options of the command line are all made from it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from pgwake.errors import InvalidArgumentError, InvalidValueError
from pgwake.jsontext import dumps

OnConflict: TypeAlias = Literal["return", "replace", "raise"]
OnParentFailure: TypeAlias = Literal["cancel", "run"]

MAX_ID = 2**63 - 1
MAX_DELAY = timedelta(days=36500)
NAME_BYTES = 128  # of a kind and of a queue
KEY_BYTES = 512


@dataclass(frozen=True, slots=True)
class Option:
    """What there is to know of an option beside its name and type.

    Attributes:
        help: What it is, in a clause.
        low: The least number.
        high: The greatest number, the most bytes of a text, the most ids of a list.
        default: What holds where nothing is given, as SQL reads it; None: null.
        pattern: What a text has to match; "": anything.
        is_column: Whether it is a column of pgwake.jobs; else enqueue() alone has it.
        is_parameter: Whether it is a parameter of pgwake.enqueue; else enqueue_many
            alone has it.
    """

    help: str
    low: int = 0
    high: int = 0
    default: str | None = None
    pattern: str = ""
    is_column: bool = True
    is_parameter: bool = True


class Options(TypedDict, total=False):
    """What enqueue() takes beside kind and payload: the table."""

    queue: Annotated[str, Option("the queue that it is in", 1, NAME_BYTES, "default")]
    priority: Annotated[
        int, Option("higher runs first; 0, the default: by policy", -100, 100, "0")
    ]
    run_at: Annotated[
        datetime | None,
        Option("when it is due, such as 2027-01-31T08:00:00+01:00; default at once"),
    ]
    delay: Annotated[
        timedelta | float | None,
        Option("seconds from now until it is due, instead of run_at", is_column=False),
    ]
    max_attempts: Annotated[
        int | None,
        Option("attempts until the dead letters; default by policy", 1, 10_000),
    ]
    unique_key: Annotated[
        str | None, Option("unique with the kind among live jobs", 1, KEY_BYTES)
    ]
    on_conflict: Annotated[
        OnConflict,
        Option(
            "if unique_key is taken: return that job's id (the default), replace"
            " that job, or raise",
            default="return",
            is_column=False,
        ),
    ]
    metadata: Annotated[
        Mapping[str, Any] | None, Option("a JSON object for people and tools")
    ]
    concurrency_key: Annotated[
        str | None, Option("jobs with one key wait for each other", 1, KEY_BYTES)
    ]
    depends_on: Annotated[
        Sequence[int], Option("ids of jobs that have to complete before", 1, 10_000)
    ]
    on_parent_failure: Annotated[
        OnParentFailure | None,
        Option("if one of those fails: cancel (the default), or run"),
    ]
    webhook: Annotated[
        str | None,
        Option(
            "an http(s) URL that hears how it ended",
            1,
            2048,
            pattern=r"^https?://[^\s/]",
        ),
    ]
    expires_at: Annotated[
        datetime | None,
        Option("cancelled if it is not started by then", is_parameter=False),
    ]
    unique_until: Annotated[
        datetime | None,
        Option(
            "unique_key stays taken until then, by a job that has ended, too",
            is_parameter=False,
        ),
    ]


def text(name: str, value: object) -> str:
    """Return a text as it is; raises InvalidArgumentError if it can't be stored."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} is {value!r}: use a text")
    _dumped(name, value)
    return value


def json_object(name: str, value: object) -> str:
    """Return a mapping as JSON text; raises InvalidArgumentError if it has none."""
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(
            f"{name} is of type {type(value).__name__}: use a dict"
        )
    return _dumped(name, value if isinstance(value, dict) else dict(value))


def span(value: Any) -> timedelta:
    """Return a delay as a timedelta; raises InvalidArgumentError if it is none."""
    try:
        delay = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(
            f"delay is {value!r}: use a timedelta, or seconds"
        ) from None
    if not timedelta(0) <= delay <= MAX_DELAY:
        raise InvalidArgumentError(f"delay is {value}: use 0 to 36500 days")
    return delay


def _dumped(name: str, value: object) -> str:
    try:
        return dumps(value)
    except InvalidValueError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def _choice(name: str, value: object) -> str:
    choices = get_args(OPTIONS[name].type)
    if value not in choices:
        *most, last = choices
        raise InvalidArgumentError(
            f"{name} is {value!r}: use {', '.join(most)} or {last}"
        )
    return str(value)


def _number(name: str, value: Any) -> str:
    if not _is_number(value):
        raise InvalidArgumentError(f"{name} is {value!r}: use a number")
    low, high = OPTIONS[name].option.low, OPTIONS[name].option.high
    if name == "priority" and not low <= value <= high:
        raise InvalidArgumentError(f"priority is {value}: use {low} to {high}")
    return str(value)


def _instant(name: str, value: object) -> str:
    if not isinstance(value, datetime):
        raise InvalidArgumentError(f"{name} is {value!r}: use a datetime")
    if value.utcoffset() is None:
        raise InvalidArgumentError(
            f"{name} {value} has no time zone, so it could be meant in any: use an"
            " aware datetime, such as datetime.now(UTC)"
        )
    return value.isoformat()


def _interval(_: str, value: object) -> str:
    # Not in days, which have 23 or 25 hours in some sessions' time zone.
    microseconds = span(value) // timedelta(microseconds=1)
    return f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06} seconds"


def _ids(name: str, value: object) -> str | None:
    if not isinstance(value, Collection) or not all(map(_is_number, value)):
        raise InvalidArgumentError(f"{name}: use a list of jobs' ids")
    return "{" + ",".join(map(str, value)) + "}" if value else None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class OptionRow(NamedTuple):
    """A row of the table, for who makes something of it.

    Attributes:
        option: The option.
        type: Its type in Python, without None.
        may_be_none: Whether None stands for its default.
        sql_type: Its type in SQL.
        write: Returns a value as the text that SQL reads; raises InvalidArgumentError.
    """

    option: Option
    type: Any
    may_be_none: bool
    sql_type: str
    write: Callable[[str, Any], str | None]

    @classmethod
    def of(cls, hint: Any) -> "OptionRow":
        """Read it from its type hint."""
        union, option = get_args(hint)
        may_be_none = type(None) in get_args(union)
        of = get_args(union)[0] if may_be_none else union
        return cls(option, of, may_be_none, *_WRITERS[get_origin(of) or of])


_WRITERS: dict[Any, tuple[str, Callable[[str, Any], str | None]]] = {
    str: ("text", text),
    int: ("int", _number),
    Literal: ("text", _choice),
    datetime: ("timestamptz", _instant),
    timedelta: ("interval", _interval),
    Mapping: ("jsonb", json_object),
    Sequence: ("bigint[]", _ids),
}
OPTIONS = {
    name: OptionRow.of(hint)
    for name, hint in get_type_hints(Options, include_extras=True).items()
}
DEFAULTS = {name: row.option.default for name, row in OPTIONS.items()}
SQL_TYPES = (
    ("kind", "text"),
    ("payload", "jsonb"),
    *((name, row.sql_type) for name, row in OPTIONS.items() if row.option.is_parameter),
)
COLUMNS = (
    *("kind", "payload"),
    *(name for name, row in OPTIONS.items() if row.option.is_column),
)
