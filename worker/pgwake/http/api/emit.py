"""The operation that emits an event."""

from typing import Any

from pydantic import Field, TypeAdapter

from pgwake.database.statements import http
from pgwake.http.context import ApiContext
from pgwake.http.fields import Key, Request, ResponseModel
from pgwake.http.operation import NoParameters, Operation, ParsedRequest


class Event(Request):
    """An event, for the jobs that wait for it or will."""

    name: Key = Field(examples=["order:42:approved"])
    payload: Any = Field(None, description="any JSON")


class Emitted(ResponseModel):
    """Whether it was the first of its name; else nothing has changed."""

    is_first: bool


async def _emit(context: ApiContext, asked: ParsedRequest[NoParameters, Event]) -> str:
    return await context.pool.write(lambda c: http.emit_event(c, asked.text))


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="POST",
        path="/api/emit",
        summary="Emit an event, for the jobs that wait for it",
        parameters=NoParameters,
        body=TypeAdapter(Event),
        answer=Emitted,
        do=_emit,
    ),
)
