"""From a thread to the event loop that asks for it."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from pgwake.errors import ConfigurationError
from pgwake.produce.drivers.base import AsyncAdapter, SyncAdapter

T = TypeVar("T")

DEADLINE_SECONDS = 120.0  # more than the adapter's own


class BridgeAdapter(SyncAdapter):
    """Asks by another adapter, on its loop, while this thread waits."""

    def __init__(self, adapter: AsyncAdapter, loop: asyncio.AbstractEventLoop) -> None:
        self._adapter = adapter
        self._loop = loop

    def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        return self._wait(self._adapter.fetch(sql, *arguments))

    def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        self._wait(self._adapter.copy(chunks))

    def _wait(self, asking: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            answer = asyncio.run_coroutine_threadsafe(asking, self._loop)
            return answer.result(DEADLINE_SECONDS)
        asking.close()
        raise ConfigurationError("this would block the event loop: await enqueue()")
