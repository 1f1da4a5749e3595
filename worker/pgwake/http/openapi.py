"""/openapi.json: the document, made of the operations and their models."""

import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgwake.http import problems, stream
from pgwake.http.api.queues import QueueFilter
from pgwake.http.operation import Operation
from pgwake.http.problems import Problem
from pgwake.http.token import guarded
from pgwake.version import __version__

_ALWAYS = (400, 401, 403, 422, 500, 503)
_OF_BODIES = (408, 413, 415)
_PROBLEM = TypeAdapter(Problem)


def route(token: bytes, operations: Iterable[Operation[Any, Any]]) -> Route:
    """Return the route of the document."""
    text = json.dumps(document(list(operations)))

    async def show(_: Request) -> Response:
        return Response(text, 200, problems.HEADERS, "application/json")

    return Route("/openapi.json", guarded(token, show), methods=["GET"])


def document(operations: list[Operation[Any, Any]]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    schemas, components = _schemas(operations)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(
            operation, schemas
        )
    paths.setdefault(stream.PATH, {})["get"] = _stream(schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pgwake",
            "version": __version__,
            "description": "A job queue in PostgreSQL. Times are in UTC; errors are "
            "problems as RFC 9457 has them.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "the service's PGWAKE_API_TOKEN",
                }
            },
        },
    }


def _schemas(
    operations: list[Operation[Any, Any]],
) -> tuple[dict[tuple[Any, str], Any], dict[str, Any]]:
    """Return the schemas of bodies and answers, and the components they refer to."""
    inputs: list[tuple[Any, Any, TypeAdapter[Any]]] = [
        ((Problem, "answer"), "serialization", _PROBLEM)
    ]
    for operation in operations:
        key = _key(operation)
        answer: TypeAdapter[Any] = TypeAdapter(operation.answer)
        inputs.append(((key, "answer"), "serialization", answer))
        if operation.body is not None:
            inputs.append(((key, "body"), "validation", operation.body))
    found, definitions = TypeAdapter.json_schemas(
        inputs, ref_template="#/components/schemas/{model}"
    )
    schemas: dict[tuple[Any, str], Any] = {key: s for (key, _), s in found.items()}
    return schemas, definitions.get("$defs", {})


def _key(operation: Operation[Any, Any]) -> str:
    return f"{operation.method} {operation.path}"


def _described(
    operation: Operation[Any, Any], schemas: dict[tuple[Any, str], Any]
) -> dict[str, Any]:
    words = operation.path.replace("{", "").replace("}", "").split("/")
    described: dict[str, Any] = {
        "operationId": "_".join([operation.method.lower(), *filter(None, words)]),
        "summary": operation.summary,
        "parameters": _parameters(operation.parameters, operation.path),
        "responses": {
            str(operation.status): {
                "description": HTTPStatus(operation.status).phrase,
                "content": _content(
                    "application/json", schemas, _key(operation), "answer"
                ),
            },
            **_faults(schemas, _statuses(operation)),
        },
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.is_body_optional,
            "content": _content("application/json", schemas, _key(operation), "body"),
        }
    return described


def _stream(schemas: dict[tuple[Any, str], Any]) -> dict[str, Any]:
    """Describe the stream of events, which is no operation."""
    return {
        "operationId": "get_api_events",
        "summary": "Changes of jobs' statuses as server-sent events",
        "description": "Events: reset (read anew; from here on nothing is missed), "
        "job_status_changed, and poll (nothing is heard until the next reset).",
        "parameters": [
            *_parameters(QueueFilter, stream.PATH),
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "go on after this event, if it is remembered",
                "schema": {"type": "string"},
            },
        ],
        "responses": {
            "200": {
                "description": HTTPStatus.OK.phrase,
                "content": {stream.MEDIA_TYPE: {"schema": {"type": "string"}}},
            },
            **_faults(schemas, {400, 401, 422, 503}),
        },
    }


def _faults(
    schemas: dict[tuple[Any, str], Any], statuses: set[int]
) -> dict[str, dict[str, Any]]:
    content = _content(problems.MEDIA_TYPE, schemas, Problem, "answer")
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status in sorted(statuses)
    }


def _statuses(operation: Operation[Any, Any]) -> set[int]:
    of_bodies = () if operation.body is None else _OF_BODIES
    return {*_ALWAYS, *of_bodies, *operation.problems}


def _content(
    media_type: str, schemas: dict[tuple[Any, str], Any], key: object, what: str
) -> dict[str, Any]:
    return {media_type: {"schema": schemas[key, what]}}


def _parameters(model: type[BaseModel], path: str) -> list[dict[str, Any]]:
    properties = model.model_json_schema().get("properties", {})
    return [
        {
            "name": name,
            "in": "path" if "{" + name + "}" in path else "query",
            "required": "{" + name + "}" in path,
            "schema": _without_null(schema),
        }
        for name, schema in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that may be left out, but has no null."""
    shown = {k: v for k, v in schema.items() if k not in ("anyOf", "default", "title")}
    (found,) = schema.get("anyOf", [{}])[:1]
    default = schema.get("default")
    return {**found, **shown, **({} if default is None else {"default": default})}
