"""The application: what answers on which path."""

import asyncio

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pgwake.http.context import ApiContext
from pgwake.http.problems import answer_http


def application(context: ApiContext) -> Starlette:
    """Return the application: metrics, health; with a token the API and page."""

    async def show_metrics(request: Request) -> Response:
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
