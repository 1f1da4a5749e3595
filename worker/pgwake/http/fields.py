"""What the fields of requests and answers can hold."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from pgwake.produce.options import KEY_BYTES, MAX_DELAY, MAX_ID, NAME_BYTES

MAX_SECONDS = MAX_DELAY.total_seconds()  # of a delay or a pause
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


class Request(BaseModel):
    """What a client sends: a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class Parameters(BaseModel):
    """Parameters of path and query; they come as text."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class ResponseModel(BaseModel):
    """What the service answers; the document says it, the database makes it."""

    model_config = ConfigDict(extra="forbid")


def _bytes(limit: int) -> AfterValidator:
    def check(text: str) -> str:
        if not 1 <= len(text.encode()) <= limit:
            raise ValueError(f"it has {len(text.encode())} bytes, use 1 to {limit}")
        if "\0" in text:
            raise ValueError("it holds NUL, which PostgreSQL can't store")
        return text

    return AfterValidator(check)


def _text(limit: int, what: str, example: str) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": limit,
            "pattern": "^[^\\u0000]*$",
            "description": f"{what}: 1 to {limit} bytes",
            "examples": [example],
        }
    )


def _whole(value: Any) -> Any:
    """Take digits, and 2.0 for 2: to JSON they are one."""
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{1,19}", value, re.ASCII):
        raise ValueError("use a whole number, in digits")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def read_instant(value: Any) -> Any:
    """Read a time with an offset; raises ValueError if it is none."""
    if not isinstance(value, str):
        raise ValueError("use a text, such as 2027-01-31T08:00:00+01:00")  # noqa: TRY004
    if not _RFC_3339.fullmatch(value):
        raise ValueError(
            "use a time as RFC 3339 has it, with an offset: 2027-01-31T08:00:00+01:00"
        )
    return datetime.fromisoformat(value.upper())


WHOLE = BeforeValidator(_whole)
QueueName = Annotated[
    str, _bytes(NAME_BYTES), _text(NAME_BYTES, "name of a queue", "emails")
]
Kind = Annotated[
    str, _bytes(NAME_BYTES), _text(NAME_BYTES, "which handler runs it", "send_email")
]
ScheduleName = Annotated[
    str, _bytes(NAME_BYTES), _text(NAME_BYTES, "name of a schedule", "nightly")
]
Key = Annotated[str, _bytes(KEY_BYTES), _text(KEY_BYTES, "a key", "customer 7")]
WorkerName = Annotated[
    str, _bytes(KEY_BYTES), _text(KEY_BYTES, "name of a worker", "web1:4711:0c5fa1de")
]
JobId = Annotated[
    int, Field(ge=1, le=MAX_ID, description="id of a job", examples=[17]), WHOLE
]
Limit = Annotated[int, Field(ge=1, le=500, description="how many at most"), WHOLE]
# Whole numbers of policy; the database's checks say which it takes.
Whole = Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE]
Rate = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
Instant = Annotated[
    datetime,
    BeforeValidator(read_instant),
    WithJsonSchema(
        {"type": "string", "format": "date-time", "examples": ["2027-01-31T07:00:00Z"]}
    ),
]
Status = Literal["waiting", "pending", "running", "failed", "completed", "cancelled"]
# What a list is filtered by: scheduled and retrying are pending, and not yet due.
ListStatus = Literal[
    "waiting",
    "pending",
    "scheduled",
    "retrying",
    "running",
    "failed",
    "completed",
    "cancelled",
]

# Of answers.
Count = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[
    float | None, Field(description="null: there were none in the last five minutes")
]
Time = Annotated[
    str,
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "examples": ["2027-01-31T07:00:00+00:00"],
        }
    ),
]
