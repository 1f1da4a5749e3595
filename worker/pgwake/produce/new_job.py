"""A job that is to be enqueued."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Unpack

from pgwake.errors import InvalidArgumentError
from pgwake.produce.options import (
    COLUMNS,
    DEFAULTS,
    OPTIONS,
    Options,
    json_object,
    span,
    text,
)
from pgwake.tracing.tracing import NOWHERE

_JSON = ("payload", "metadata")  # whose texts are JSON already
_MAX_TRACED = 32_768  # characters of metadata that leave room for more


@dataclass(frozen=True, slots=True, init=False)
class NewJob:
    """A job that is to be enqueued, checked as far as that needs no database.

    Args:
        kind: Which handler runs it.
        payload: A JSON object for the handler; dates, UUIDs, models and the like become
            what pydantic makes of them. It is written down now: what is changed in it
            later changes nothing.
        options: See Options. run_at is an aware datetime, delay a timedelta or seconds;
            what is left out, or None, has its default.

    Raises:
        InvalidArgumentError: A field can't be meant; the message says which.
    """

    kind: str
    payload: Mapping[str, Any]
    options: Options
    _texts: dict[str, str | None] = field(repr=False, compare=False)

    def __init__(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        payload = {} if payload is None else payload
        texts: dict[str, str | None] = {
            "kind": text("kind", kind),
            "payload": json_object("payload", payload),
        }
        for name, value in options.items():
            if (row := OPTIONS.get(name)) is None:
                raise TypeError(f"NewJob() has no option {name!r}")
            if value is not None or not row.may_be_none:
                texts[name] = row.write(name, value)
        if "run_at" in texts and "delay" in texts:
            raise InvalidArgumentError("run_at and delay are both given: give one")
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "payload", payload)
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "_texts", texts)

    @property
    def queue(self) -> str:
        """The queue that it goes to."""
        return self.options.get("queue", "default")

    @property
    def is_for_many(self) -> bool:
        """Whether pgwake.enqueue can't add it, and enqueue_many has to."""
        return any(not OPTIONS[name].option.is_parameter for name in self.options)

    def as_json(
        self,
        trace: Mapping[str, str] = NOWHERE,
        defaults: Mapping[str, str | None] = DEFAULTS,
    ) -> str:
        """Return it as JSON text, as the SQL functions take it.

        Args:
            trace: What its metadata is to carry, unless it has a traceparent already.
            defaults: Of what it does not say; enqueue_many has its own.
        """
        texts = {**defaults, **self._texts, "metadata": self._traced(trace)}
        members = [
            f'"{name}": {text if name in _JSON else json.dumps(text)}'
            for name, text in texts.items()
            if text is not None
        ]
        return f"{{{', '.join(members)}}}"

    def _traced(self, trace: Mapping[str, str]) -> str | None:
        text = self._texts.get("metadata")
        if not trace:
            return text
        members = json.dumps(trace)
        if text is None or text == "{}":
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
        on_conflict = self.options.get("on_conflict", "return")
        if self._texts.get("unique_key") is not None and on_conflict != "raise":
            raise InvalidArgumentError(
                f"copy can't {on_conflict} a live job with the unique key: use"
                " enqueue_many, or on_conflict='raise'"
            )

    def as_line(self, now: datetime, trace: Mapping[str, str] = NOWHERE) -> str:
        """Return it as a line of COPY, in the order of COLUMNS.

        Args:
            now: The database's time.
            trace: See as_json.
        """
        texts = DEFAULTS | self._texts
        texts["metadata"] = self._traced(trace)
        if texts["run_at"] is None:
            delay = self.options.get("delay")
            texts["run_at"] = (now + span(delay or 0)).isoformat()
        return "\t".join([_escaped(texts[name]) for name in COLUMNS]) + "\n"


def _escaped(value: str | None) -> str:
    if value is None:
        return r"\N"
    return (
        value.replace("\\", r"\\")
        .replace("\t", r"\t")
        .replace("\n", r"\n")
        .replace("\r", r"\r")
    )
