"""An operation of the API, from which both its route and its documentation are."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import parse_qsl, unquote

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgwake.database.connection import Connection
from pgwake.http import body, problems
from pgwake.http.context import ApiContext
from pgwake.http.problems import ProblemError
from pgwake.http.refusals import problem_of
from pgwake.http.token import Handler, guarded
from pgwake.tracing.tracing import carried

P = TypeVar("P", bound=BaseModel)
B = TypeVar("B")
T = TypeVar("T")


class _NameConvertor(StringConvertor):
    """A queue's name may hold anything, slashes and line breaks too."""

    regex = r"[\s\S]*"


register_url_convertor("queue_name", _NameConvertor())


class NoParameters(BaseModel):
    """An operation without parameters."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class ParsedRequest(Generic[P, B]):
    """What was asked.

    Attributes:
        parameters: Those of path and query.
        body: The body, checked; None where there is none.
        text: The same, as it was sent.
        trace: What its headers carry of the span that it comes from.
    """

    parameters: P
    body: B
    text: str
    trace: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[P, B]):
    """An operation.

    Attributes:
        method: GET or POST.
        path: Its path; names in braces are parameters.
        summary: What it does.
        parameters: Those of path and query.
        answer: What it answers.
        do: Does it; returns the answer as JSON text.
        body: What the body is; None: there is none.
        is_body_optional: Whether no body stands for an empty object.
        status: Of the answer.
        problems: What may be wrong beside what may be with any.
    """

    method: Literal["GET", "POST"]
    path: str
    summary: str
    parameters: type[P]
    answer: type[BaseModel]
    do: Callable[[ApiContext, ParsedRequest[P, B]], Awaitable[str]]
    body: "TypeAdapter[B] | None" = None
    is_body_optional: bool = False
    status: int = 200
    problems: tuple[int, ...] = ()

    def route(self, context: ApiContext, token: bytes) -> Route:
        """Return the route that does it for who has the token."""
        handler = guarded(token, self._handler(context))
        path = self.path.replace("{name}", "{name:queue_name}")
        return Route(path, handler, methods=[self.method])

    def _handler(self, context: ApiContext) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                asked = await self._read(request, context.settings.http_max_body)
                text = await _while_connected(request, self.do(context, asked))
            except Exception as error:  # noqa: BLE001, each becomes an answer
                return problems.answer(problem_of(error))
            return Response(text, self.status, problems.HEADERS, "application/json")

        return handle

    async def _read(self, request: Request, limit: int) -> ParsedRequest[P, B]:
        """Read what was asked.

        Raises:
            ProblemError: It can't be meant.
        """
        parameters = read_parameters(self.parameters, request)
        trace = carried(request.headers)
        if self.body is None:
            return ParsedRequest(parameters, None, "", trace)  # type: ignore[arg-type]  # B is None
        text = await body.read(request, limit)
        if self.is_body_optional and not text:
            text = "{}"
        # In a thread: a loop that renews leases shares the lock with it, at least.
        return await asyncio.to_thread(self._parse, parameters, text, trace)

    def _parse(
        self, parameters: P, text: str, trace: Mapping[str, str]
    ) -> ParsedRequest[P, B]:
        assert self.body is not None  # noqa: S101, _read has looked
        value = _validated(self.body.validate_python, body.parse(text))
        return ParsedRequest(parameters, value, text, trace)


def listing(
    path: str,
    summary: str,
    answer: type[BaseModel],
    query: Callable[[Connection], Awaitable[str]],
) -> Operation[NoParameters, None]:
    """Return an operation that lists, without parameters, what a query answers."""

    async def do(context: ApiContext, _: ParsedRequest[NoParameters, None]) -> str:
        return await context.pool.read(query)

    return Operation(
        method="GET",
        path=path,
        summary=summary,
        parameters=NoParameters,
        answer=answer,
        do=do,
    )


def read_parameters(model: type[P], request: Request) -> P:
    """Return the parameters of path and query.

    Raises:
        ProblemError: They can't be meant.
    """
    return _validated(model.model_validate, _parameters(request))


def _validated(validate: Callable[[Any], T], value: Any) -> T:
    try:
        return validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise problems.field_problem(
            [(_path(item["loc"]), _message(item["msg"])) for item in found]
        ) from None


def _path(location: tuple[str | int, ...]) -> str:
    """Return jobs[3].priority for ("(many)", "jobs", 3, "priority")."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("("):  # which form of a union
            path += f".{part}" if path else part
    return path


def _message(text: str) -> str:
    return text.removeprefix("Value error, ")


def _parameters(request: Request) -> dict[str, str]:
    """Return the parameters of path and query, each once.

    Raises:
        ProblemError: One is no UTF-8, or is given twice.
    """
    try:
        unquote(request.scope.get("raw_path", b"").decode("latin-1"), errors="strict")
        pairs = parse_qsl(
            request.scope["query_string"].decode("latin-1"),
            keep_blank_values=True,
            errors="strict",
        )
    except ValueError:
        raise ProblemError(
            400, "the address is not UTF-8", "Encode it, as %C3%BC and the like."
        ) from None
    found: dict[str, str] = dict(request.path_params)
    for name, value in pairs:
        if name in found:
            raise problems.field_problem([(name, "it is given twice")])
        found[name] = value
    return found


async def _while_connected(request: Request, asking: Awaitable[str]) -> str:
    """Wait for an answer for as long as the client does."""
    task = asyncio.ensure_future(asking)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when="FIRST_COMPLETED")
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise problems.unavailable("the client has gone")  # heard by nobody
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
