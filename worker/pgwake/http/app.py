"""The application: what answers on which path."""

import asyncio
import re

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pgwake.http.context import ApiContext
from pgwake.http.problems import answer_http

_THIS_MACHINE = re.compile(
    r"(?:\[[0-9a-f:.]+\]|[0-9.]+|localhost)?(?::[0-9]*)?", re.IGNORECASE | re.ASCII
)


def application(context: ApiContext) -> Starlette:
    """Return the application: metrics, health; with a token the API and page."""
    host = context.settings.http_host
    is_local = host.startswith("127.") or host in ("localhost", "::1")

    async def show_metrics(request: Request) -> Response:
        if is_local and not _THIS_MACHINE.fullmatch(request.headers.get("host", "")):
            # A page of that name, whose address has become this machine's meanwhile:
            # a browser here would hand it the names of queues and kinds.
            raise HTTPException(403, "it listens on this machine, and is asked by name")
        accept = request.headers.get("accept", "")
        page, media_type = await asyncio.to_thread(context.metrics.encode, accept)
        return Response(page, headers={"content-type": media_type})

    async def healthz(_: Request) -> Response:
        return _answer(context.health.problems)

    async def readyz(_: Request) -> Response:
        return _answer(context.health.obstacles)

    routes = [
        Route("/metrics", show_metrics),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
    ]
    if context.token is not None:
        # Here, since most workers serve no API, and its models take their time.
        from pgwake.http.api_routes import api_routes  # noqa: PLC0415

        routes += api_routes(context, context.token)
    served = Starlette(routes=routes, exception_handlers={HTTPException: answer_http})
    served.router.redirect_slashes = False
    return served


def _answer(problems: list[str]) -> Response:
    status = "unavailable" if problems else "ok"
    return JSONResponse(
        {"status": status, "problems": problems}, status_code=503 if problems else 200
    )
