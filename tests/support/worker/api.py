"""A client of the HTTP API, for its tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from pgwake import Registry
from support import free_port, wait_for
from support.worker.helpers import embedded
from support.worker.registries import quick

TOKEN = "a-token-of-the-tests"  # noqa: S105, it opens a service of one test


def client(port: int, token: str | None = TOKEN) -> httpx.AsyncClient:
    """A client of the service on a port, with a token or without."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20
    )


@asynccontextmanager
async def serving(
    database: str, registry: Registry | None = None, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A worker that serves the API, by default of a queue that nobody pushes to."""
    given = {"api_token": TOKEN, "http_port": free_port(), **settings}
    async with (
        embedded(database, registry or quick("elsewhere"), **given),
        client(given["http_port"]) as opened,
    ):
        await answers(opened)
        yield opened


async def answers(api: httpx.AsyncClient) -> None:
    """Wait until the service answers."""

    async def is_there() -> bool:
        try:
            return (await api.get("/healthz")).status_code == 200
        except httpx.TransportError:
            return False

    await wait_for(is_there)


def problem(answer: httpx.Response, status: int, **fields: Any) -> dict[str, Any]:
    """Check that an answer is a problem of that status with these fields; it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["type"] == "about:blank"
    assert found["status"] == status
    assert found["title"]
    assert found["detail"]
    assert fields.items() <= found.items(), found
    return found
