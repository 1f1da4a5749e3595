"""The routes that a token opens: the API, its document, its events and the page."""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgwake.http import openapi, stream
from pgwake.http.api import (
    emit,
    enqueue,
    failed,
    findings,
    history,
    jobs,
    kinds,
    queues,
    schedules,
    update,
    workers,
)
from pgwake.http.assets import page_routes
from pgwake.http.context import ApiContext
from pgwake.http.token import Handler

OPERATIONS = (
    *queues.OPERATIONS,
    *history.OPERATIONS,
    *enqueue.OPERATIONS,
    *emit.OPERATIONS,
    *jobs.OPERATIONS,
    *update.OPERATIONS,
    *failed.OPERATIONS,
    *workers.OPERATIONS,
    *kinds.OPERATIONS,
    *schedules.OPERATIONS,
    *findings.OPERATIONS,
)


def api_routes(context: ApiContext, token: bytes) -> list[Route]:
    """Return the routes, for who has the token."""
    routes = [
        *(operation.route(context, token) for operation in OPERATIONS),
        openapi.route(token, OPERATIONS),
        stream.route(context.fanout, token),
        *page_routes(),
    ]
    return list(_one_a_path(routes))


def _one_a_path(routes: Iterable[Route]) -> Iterable[Route]:
    """Join the routes of a path, so that a 405 names the methods of all of them."""
    by_path: dict[str, list[Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    for path, same in by_path.items():
        endpoints = {name: one.endpoint for one in same for name in one.methods or ()}

        async def handle(
            request: Request, endpoints: dict[str, Handler] = endpoints
        ) -> Response:
            return await endpoints[request.method](request)

        yield Route(path, handle, methods=[*endpoints]) if len(same) > 1 else same[0]
