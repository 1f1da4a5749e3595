"""A web service of the tests: what it was sent, and answers as it is told."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from support import free_port, wait_for

Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Posted:
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Answers 200 with nothing where it was not told otherwise."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.port = free_port()
        self.url = f"http://{host}:{self.port}"
        self.posted: list[Posted] = []
        self.closed: list[str] = []  # the paths of requests that were given up
        self._answers: dict[str, Answer] = {}

    def answer(
        self,
        path: str,
        status: int = 200,
        body: bytes | str = b"",
        media_type: str | None = None,
        **headers: str,
    ) -> str:
        """Answer so at a path; its URL. An underscore in a header stands for "-"."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def answer(_: Request) -> Response:
            return Response(body, status, named, media_type)

        return self.answer_by(path, answer)

    def answer_by(self, path: str, answer: Answer) -> str:
        """Have a function answer at a path; its URL."""
        self._answers[path] = answer
        return self.url + path

    def hang(self, path: str) -> str:
        """Never answer, and note when the request is given up; the URL."""

        async def hang(request: Request) -> Response:
            while not await request.is_disconnected():
                await asyncio.sleep(0.01)
            self.closed.append(path)
            return Response()

        return self.answer_by(path, hang)

    def flood(self, path: str, status: int = 200, media_type: str | None = None) -> str:
        """Send without end, and note when the request is given up; the URL."""

        async def endless() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 65_536
                    await asyncio.sleep(0)
            finally:
                self.closed.append(path)

        async def flood(_: Request) -> Response:
            return StreamingResponse(endless(), status, media_type=media_type)

        return self.answer_by(path, flood)

    async def has_posts(self, count: int = 1) -> list[Posted]:
        """Wait for so many requests."""

        async def are_there() -> bool:
            return len(self.posted) >= count

        await wait_for(are_there)
        return self.posted

    async def has_closed(self, path: str) -> None:
        """Wait until a request was given up."""

        async def is_closed() -> bool:
            return path in self.closed

        await wait_for(is_closed)

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        path = request.url.path
        self.posted.append(Posted(path, dict(request.headers), body))
        answer = self._answers.get(path)
        return Response() if answer is None else await answer(request)

    @contextlib.contextmanager
    def serve(
        self, host: str = "127.0.0.1", certificate: Path | None = None
    ) -> Iterator["Receiver"]:
        """Serve, in a thread of its own; by TLS with a certificate and its key."""
        app = Starlette(
            routes=[Route("/{path:path}", self._answer, methods=["GET", "POST"])]
        )
        config: dict[str, Any] = {"log_level": "error", "lifespan": "off"}
        if certificate is not None:
            config["ssl_certfile"] = certificate
        server = uvicorn.Server(
            uvicorn.Config(app, host=host, port=self.port, **config)
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the receiver does not start"
                time.sleep(0.01)
            yield self
        finally:
            server.should_exit = server.force_exit = True
            thread.join()
