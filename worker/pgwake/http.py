"""HTTP: metrics for Prometheus, health for whoever restarts us."""

import asyncio
import socket
from time import monotonic

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pgwake.errors import ConfigurationError
from pgwake.metrics import Metrics

MAIN_LAG_SECONDS = 10.0
DATABASE_SECONDS = 15.0


class Health:
    """What the health endpoints answer from; they never ask the database themselves.

    Attributes:
        main_lag: How late the main loop answered the lifeline, in seconds.
        is_draining: Whether the worker has been told to stop.
        database_seen_at: When the database last answered, on the monotonic clock.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.main_lag = 0.0
        self.is_draining = False
        self.database_seen_at: float | None = None

    @property
    def problems(self) -> list[str]:
        """What makes the process unfit to live."""
        if self.main_lag > MAIN_LAG_SECONDS:
            return [f"the main loop has not answered for {self.main_lag:.0f} s"]
        return []

    @property
    def obstacles(self) -> list[str]:
        """What keeps the process from working now."""
        found = self.problems
        if self.is_draining:
            found.append("draining")
        seen = self.database_seen_at
        if seen is None or monotonic() - seen > DATABASE_SECONDS:
            found.append("the database does not answer")
        return found


def application(health: Health) -> Starlette:
    """Return the application: /metrics, /healthz, /readyz."""

    async def metrics(_: Request) -> Response:
        return Response(health.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    async def healthz(_: Request) -> Response:
        return _answer(health.problems)

    async def readyz(_: Request) -> Response:
        return _answer(health.obstacles)

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ]
    )


def _answer(problems: list[str]) -> Response:
    status = "unavailable" if problems else "ok"
    return JSONResponse(
        {"status": status, "problems": problems}, status_code=503 if problems else 200
    )


def bind(host: str, port: int) -> socket.socket:
    """Bind the port.

    Raises:
        ConfigurationError: It can't be had; the message says what to do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"HTTP can't listen on {host} port {port} ({error.strerror}): set "
            "PGWAKE_HTTP_PORT to a free port, or to 0 to do without"
        ) from None
    return listening


async def serve(health: Health, listening: socket.socket) -> None:
    """Serve until cancelled."""
    config = uvicorn.Config(
        application(health),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True  # it closes its connections by itself
        await serving
        raise
    finally:
        listening.close()
