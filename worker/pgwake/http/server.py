"""The server: a port, and an application that answers on it."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EADDRNOTAVAIL

import uvicorn
from starlette.applications import Starlette

from pgwake import forks
from pgwake.errors import ConfigurationError
from pgwake.http.connections import (
    BACKLOG,
    BoundedProtocol,
    max_connections,
    watch,
)


def bind(host: str, port: int) -> socket.socket:
    """Bind the port.

    Raises:
        ConfigurationError: It can't be had; the message says what to do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: else asyncio leaves Nagle's algorithm on, 40 ms an answer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        is_elsewhere = (
            isinstance(error, socket.gaierror) or error.errno == EADDRNOTAVAIL
        )
        remedy = (
            "set PGWAKE_HTTP_HOST to an address of this machine"
            if is_elsewhere
            else "set PGWAKE_HTTP_PORT to a free port, or to 0 to do without"
        )
        raise ConfigurationError(
            f"HTTP can't listen on {host} port {port} ({error.strerror}): {remedy}"
        ) from None
    forks.withhold(listening)
    return listening


class _Server(uvicorn.Server):
    """One that leaves signals to whoever has started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(application: Starlette, listening: socket.socket) -> None:
    """Serve until cancelled, on a loop of pgwake's own."""
    BoundedProtocol.most = max_connections()
    config = uvicorn.Config(
        application,
        http=BoundedProtocol,
        ws="none",
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    watching = asyncio.create_task(watch(server.server_state.connections))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True  # it closes its connections by itself
        await serving
        raise
    finally:
        watching.cancel()
        listening.close()
