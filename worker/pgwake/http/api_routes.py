"""The routes that a token opens: the API, its document, its events and the page."""

from starlette.routing import Route

from pgwake.http import openapi, stream
from pgwake.http.api import (
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

OPERATIONS = (
    *queues.OPERATIONS,
    *history.OPERATIONS,
    *enqueue.OPERATIONS,
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
    return [
        *(operation.route(context, token) for operation in OPERATIONS),
        openapi.route(token, OPERATIONS),
        stream.route(context.fanout, token),
        *page_routes(),
    ]
