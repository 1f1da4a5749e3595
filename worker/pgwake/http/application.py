"""The application: what answers on which path."""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pgwake.http.health import Health
from pgwake.metrics import Metrics


def application(metrics: Metrics, health: Health) -> Starlette:
    """Return the application: /metrics, /healthz, /readyz."""

    async def show_metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        page, media_type = await asyncio.to_thread(metrics.encode, accept)
        return Response(page, headers={"content-type": media_type})

    async def healthz(_: Request) -> Response:
        return _answer(health.problems)

    async def readyz(_: Request) -> Response:
        return _answer(health.obstacles)

    return Starlette(
        routes=[
            Route("/metrics", show_metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ]
    )


def _answer(problems: list[str]) -> Response:
    status = "unavailable" if problems else "ok"
    return JSONResponse(
        {"status": status, "problems": problems}, status_code=503 if problems else 200
    )
