"""What a client pushes: a job, or many."""

from typing import Annotated, Any, Self

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
    model_validator,
)

from pgwake.http.fields import MAX_SECONDS, WHOLE, Instant, JobId, Key, Kind, Request
from pgwake.produce.options import OPTIONS, OptionRow

MAX_JOBS = 10_000


def _type_in_json(row: OptionRow) -> Any:
    """Return the type of an option in JSON, with its limits."""
    option = row.option
    match row.sql_type:
        case "int":
            return Annotated[int, Field(ge=option.low, le=option.high), WHOLE]
        case "timestamptz":
            return Instant
        case "jsonb":
            return dict[str, Any]
        case "bigint[]":
            return Annotated[list[JobId], Field(max_length=option.high)]
        case _ if option.pattern:
            return Annotated[str, Field(pattern=option.pattern, max_length=option.high)]
        case _:
            return Key if option.high else row.type


def _help(name: str) -> Any:
    return Field(None, description=OPTIONS[name].option.help)


class _Basis(Request):
    """What is not quite as in the table of options; the queue stands in the path."""

    kind: Kind
    payload: dict[str, Any] = Field({}, description="for the handler; at most 1 MiB")
    run_at: Instant | None = _help("run_at")
    delay_seconds: (
        Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)] | None
    ) = _help("delay")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.run_at is not None and self.delay_seconds is not None:
            raise ValueError(
                "run_at and delay_seconds are both given: give one of them"
            )
        return self

    def options(self, queue: str) -> dict[str, Any]:
        """Return all but payload and metadata, as enqueue_many takes it."""
        found = self.model_dump(
            mode="json",
            exclude={"payload", "metadata", "delay_seconds"},
            exclude_none=True,
        )
        if self.delay_seconds is not None:
            found["delay"] = f"{self.delay_seconds:.6f} seconds"
        return {**found, "queue": queue}


_FIELDS: dict[str, Any] = {
    name: (_type_in_json(row) | None, _help(name))
    for name, row in OPTIONS.items()
    if name not in ("queue", "run_at", "delay")
}
_Fields: Any = create_model("_Fields", __base__=_Basis, **_FIELDS)


class NewJob(_Fields, _Basis):
    """A job that is to be pushed; what is left out, or null, has its default."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "send_email", "payload": {"to": "a@example.org"}},
                {"kind": "sync", "unique_key": "customer 7", "delay_seconds": 60},
            ]
        }
    )


class NewJobs(Request):
    """Jobs that are to be pushed, all or none."""

    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MAX_JOBS)]


def _form(value: Any) -> str:
    return "(many)" if isinstance(value, dict) and "jobs" in value else "(one)"


Push = Annotated[
    Annotated[NewJob, Tag("(one)")] | Annotated[NewJobs, Tag("(many)")],
    Discriminator(_form),
]
