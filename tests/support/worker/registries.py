"""Registries of one handler, as many tests need them."""

import asyncio
from typing import Any

from pgwake import Registry


def quick(queue: str = "default") -> Registry:
    """A registry with one handler, "quick", that does nothing."""
    registry = Registry()

    @registry.job("quick", queue=queue)
    async def quick() -> None: ...

    return registry


def waiting(kind: str = "wait", **options: Any) -> tuple[Registry, asyncio.Event]:
    """A registry with one handler, and what that waits for; its result is "done"."""
    registry = Registry()
    go = asyncio.Event()

    @registry.job(kind, **options)
    async def wait() -> str:
        await go.wait()
        return "done"

    return registry, go


class Crowd:
    """A registry with one handler, "brief"; how many of its jobs have run at once.

    Attributes:
        most: How many, at the most.
    """

    def __init__(self) -> None:
        self.registry = Registry()
        self.most = now = 0

        @self.registry.job("brief")
        async def brief() -> None:
            nonlocal now
            now += 1
            self.most = max(self.most, now)
            await asyncio.sleep(0.005)
            now -= 1
