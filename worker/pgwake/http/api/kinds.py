"""The operation on kinds: who handles them."""

from typing import Any

from pydantic import Field

from pgwake.database.statements import http
from pgwake.http.fields import Count, Kind, ResponseModel, Time
from pgwake.http.operation import Operation, listing


class KnownKind(ResponseModel):
    """A kind that a worker has declared, or that is handled or was given back."""

    name: Kind
    declared: dict[str, Any]
    overrides: dict[str, Any]
    bounce_count: Count
    bounced_at: Time | None
    workers: Count
    schema_: dict[str, Any] | None = Field(
        alias="schema", description="of its payload, as a worker has declared it"
    )


class Kinds(ResponseModel):
    """The kinds that are known, by name."""

    kinds: list[KnownKind]


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(
        "/api/kinds",
        "The kinds, and how many live workers handle them",
        Kinds,
        http.list_kinds,
    ),
)
