"""Operations on kinds: who handles them, their limits."""

from typing import Any

from pydantic import Field, TypeAdapter

from pgwake.database.statements import http, operate
from pgwake.http.context import ApiContext
from pgwake.http.fields import (
    Count,
    Kind,
    Parameters,
    Rate,
    Request,
    ResponseModel,
    Time,
    Whole,
)
from pgwake.http.operation import Operation, ParsedRequest, listing
from pgwake.jsontext import dumps


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


class KindPath(Parameters):
    """A kind, by its name in the path; / in it is %2F."""

    name: Kind


class ChangeKindLimits(Request):
    """What is to be different: null lifts a limit, what is left out stays."""

    max_running: Whole | None = None
    rate_limit: Rate | None = None
    rate_burst: Whole | None = None


class KindLimits(ResponseModel):
    """A kind's limits, in all queues together; null: none."""

    max_running: int | None = Field(description="jobs at once; 0: none starts")
    rate_limit: float | None = Field(description="starts a second")
    rate_burst: int | None = Field(description="starts at once; null: a second's worth")


async def _limit(
    context: ApiContext, asked: ParsedRequest[KindPath, ChangeKindLimits]
) -> str:
    name, changes = asked.parameters.name, asked.body.model_dump(exclude_unset=True)
    return dumps(
        await context.pool.write(lambda c: operate.change_kind_limits(c, name, changes))
    )


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(
        "/api/kinds",
        "The kinds, and how many live workers handle them",
        Kinds,
        http.list_kinds,
    ),
    Operation(
        method="POST",
        path="/api/kinds/{name}/limits",
        summary="Change a kind's limits, which hold in all queues together",
        parameters=KindPath,
        body=TypeAdapter(ChangeKindLimits),
        answer=KindLimits,
        do=_limit,
    ),
)
