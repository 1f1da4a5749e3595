"""A job that is to be enqueued."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from pgwake.errors import InvalidArgumentError, InvalidValueError
from pgwake.jsontext import dumps
from pgwake.tracing.tracing import NOWHERE

OnConflict = Literal["return", "replace", "raise"]
OnParentFailure = Literal["cancel", "run"]

_MAX_DELAY = timedelta(days=36500)
_TEXTS = (
    "kind",
    "queue",
    "unique_key",
    "concurrency_key",
    "on_parent_failure",
    "webhook",
)
_NUMBERS = ("priority", "max_attempts")
_MAX_TRACED = 32_768  # characters of metadata that leave room for more
_MAY_BE_NONE = ("unique_key", "concurrency_key", "on_parent_failure", "webhook")


class Options(TypedDict, total=False):
    """What enqueue() takes beside kind and payload; see NewJob for what it means."""

    queue: str
    priority: int
    run_at: datetime | None
    delay: timedelta | float | None
    max_attempts: int | None
    unique_key: str | None
    on_conflict: OnConflict
    metadata: Mapping[str, Any] | None
    concurrency_key: str | None
    depends_on: Sequence[int]
    on_parent_failure: OnParentFailure | None
    webhook: str | None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is to be enqueued, checked as far as that needs no database.

    Args:
        kind: Which handler runs it.
        payload: A JSON object for the handler; dates, UUIDs, models and the like become
            what pydantic makes of them. It is written down now: what is changed in it
            later changes nothing.
        queue: Where it waits.
        priority: -100 to 100, higher first; 0: by policy.
        run_at: When it is due, an aware datetime; default at once.
        delay: How long from now it is due instead: a timedelta, or seconds.
        max_attempts: Attempts until the dead letters; None: by policy.
        unique_key: Unique with the kind among live jobs.
        on_conflict: What happens if it is taken: return the live job's id, replace that
            job, or raise DuplicateJobError.
        metadata: A JSON object for people and tools.
        concurrency_key: Jobs with the same one run one after the other, or as many at
            once as its limit says.
        depends_on: Ids of jobs that have to complete before.
        on_parent_failure: If one of those fails: cancel (the default), or run anyway.
        webhook: A URL that hears how it ended.

    Raises:
        InvalidArgumentError: A field can't be meant; the message says which.
    """

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    queue: str = "default"
    priority: int = 0
    run_at: datetime | None = None
    delay: timedelta | float | None = None
    max_attempts: int | None = None
    unique_key: str | None = None
    on_conflict: OnConflict = "return"
    metadata: Mapping[str, Any] | None = None
    concurrency_key: str | None = None
    depends_on: Sequence[int] = ()
    on_parent_failure: OnParentFailure | None = None
    webhook: str | None = None
    _payload_text: str = field(init=False, repr=False, compare=False)
    _metadata_text: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            self._check_text(name)
        for name in _NUMBERS:
            value = getattr(self, name)
            if not _is_number(value) and not (name == "max_attempts" and value is None):
                raise InvalidArgumentError(f"{name} is {value!r}: use a number")
        if not -100 <= self.priority <= 100:
            raise InvalidArgumentError(f"priority is {self.priority}: use -100 to 100")
        if self.on_conflict not in ("return", "replace", "raise"):
            raise InvalidArgumentError(
                f"on_conflict is {self.on_conflict!r}: use return, replace or raise"
            )
        self._check_times()
        if not _are_ids(self.depends_on):
            raise InvalidArgumentError("depends_on: use a list of jobs' ids")
        object.__setattr__(self, "_payload_text", _object("payload", self.payload))
        text = None if self.metadata is None else _object("metadata", self.metadata)
        object.__setattr__(self, "_metadata_text", text)

    def _check_text(self, name: str) -> None:
        value = getattr(self, name)
        if value is None and name in _MAY_BE_NONE:
            return
        if not isinstance(value, str):
            raise InvalidArgumentError(f"{name} is {value!r}: use a text")
        _dumped(name, value)

    def _check_times(self) -> None:
        if self.run_at is not None:
            if not isinstance(self.run_at, datetime):
                raise InvalidArgumentError(f"run_at is {self.run_at!r}: use a datetime")
            if self.run_at.utcoffset() is None:
                raise InvalidArgumentError(
                    f"run_at {self.run_at} has no time zone, so it could be meant in"
                    " any: use an aware datetime, such as datetime.now(UTC)"
                )
            if self.delay is not None:
                raise InvalidArgumentError("run_at and delay are both given: give one")
        if self.delay is not None and not timedelta(0) <= self._delay <= _MAX_DELAY:
            raise InvalidArgumentError(f"delay is {self.delay}: use 0 to 36500 days")

    @property
    def _delay(self) -> timedelta:
        if self.delay is None or isinstance(self.delay, timedelta):
            return self.delay or timedelta(0)
        try:
            return timedelta(seconds=self.delay)
        except (TypeError, ValueError, OverflowError):
            raise InvalidArgumentError(
                f"delay is {self.delay!r}: use a timedelta, or seconds"
            ) from None

    def as_json(self, trace: Mapping[str, str] = NOWHERE) -> str:
        """Return it as JSON text, as the SQL functions take it.

        Args:
            trace: What its metadata is to carry, unless it has a traceparent already.
        """
        fields = {
            "kind": self.kind,
            "queue": self.queue,
            "priority": self.priority,
            "on_conflict": self.on_conflict,
            "run_at": None if self.run_at is None else self.run_at.isoformat(),
            # Not in days, which have 23 or 25 hours in some sessions' time zone.
            "delay": None if self.delay is None else _seconds(self._delay),
            "max_attempts": self.max_attempts,
            "unique_key": self.unique_key,
            "concurrency_key": self.concurrency_key,
            "depends_on": list(self.depends_on) or None,
            "on_parent_failure": self.on_parent_failure,
            "webhook": self.webhook,
        }
        text = json.dumps({k: v for k, v in fields.items() if v is not None})
        metadata = self._traced(trace) or "null"
        return f'{text[:-1]}, "payload": {self._payload_text}, "metadata": {metadata}}}'

    def _traced(self, trace: Mapping[str, str]) -> str | None:
        text = self._metadata_text
        if not trace:
            return text
        members = json.dumps(trace)
        if text in (None, "{}"):
            return members
        if len(text) > _MAX_TRACED or (
            '"traceparent"' in text and "traceparent" in json.loads(text)
        ):
            return text
        return f"{text[:-1]}, {members[1:]}"

    def check_copy(self) -> None:
        """Check that COPY can add it: it looks for no live job.

        Raises:
            InvalidArgumentError: It is to find one.
        """
        if self.unique_key is not None and self.on_conflict != "raise":
            raise InvalidArgumentError(
                f"copy can't {self.on_conflict} a live job with the unique key: use"
                " enqueue_many, or on_conflict='raise'"
            )

    def as_line(self, now: datetime, trace: Mapping[str, str] = NOWHERE) -> str:
        """Return it as a line of COPY, in the order of queue.producer.COPY_COLUMNS.

        Args:
            now: The database's time.
            trace: See as_json.
        """
        values = (
            self.kind,
            self._payload_text,
            self.queue,
            str(self.priority),
            (self.run_at or now + self._delay).isoformat(),
            None if self.max_attempts is None else str(self.max_attempts),
            self.unique_key,
            self._traced(trace),
            self.concurrency_key,
            "{" + ",".join(map(str, self.depends_on)) + "}"
            if self.depends_on
            else None,
            self.on_parent_failure,
            self.webhook,
        )
        return "\t".join(map(_escaped, values)) + "\n"


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_ids(values: object) -> bool:
    return isinstance(values, Collection) and all(map(_is_number, values))


def _object(name: str, value: object) -> str:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(
            f"{name} is of type {type(value).__name__}: use a dict"
        )
    return _dumped(name, value if isinstance(value, dict) else dict(value))


def _dumped(name: str, value: object) -> str:
    try:
        return dumps(value)
    except InvalidValueError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def _seconds(delay: timedelta) -> str:
    microseconds = delay // timedelta(microseconds=1)
    return f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06} seconds"


def _escaped(value: str | None) -> str:
    if value is None:
        return r"\N"
    return (
        value.replace("\\", r"\\")
        .replace("\t", r"\t")
        .replace("\n", r"\n")
        .replace("\r", r"\r")
    )
