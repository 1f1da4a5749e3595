"""The operation on kinds: who handles them."""

from typing import Any

from pgwake.database.statements import http
from pgwake.http.context import ApiContext
from pgwake.http.fields import Count, Kind, ResponseModel, Time
from pgwake.http.operation import NoParameters, Operation, ParsedRequest


class KnownKind(ResponseModel):
    """A kind that a worker has declared, or that is handled or was given back."""

    name: Kind
    declared: dict[str, Any]
    overrides: dict[str, Any]
    bounce_count: Count
    bounced_at: Time | None
    workers: Count


class Kinds(ResponseModel):
    """The kinds that are known, by name."""

    kinds: list[KnownKind]


async def _list(context: ApiContext, _: ParsedRequest[NoParameters, None]) -> str:
    return await context.pool.read(http.list_kinds)


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="GET",
        path="/api/kinds",
        summary="The kinds, and how many live workers handle them",
        parameters=NoParameters,
        answer=Kinds,
        do=_list,
    ),
)
