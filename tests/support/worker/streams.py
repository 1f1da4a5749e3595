"""A client of /api/events, for its tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self

import httpx

from support import PATIENCE


class Told(NamedTuple):
    """A server-sent event."""

    id: str | None
    event: str
    data: str


class Stream:
    """What a client has been told, in order.

    Attributes:
        events: The events.
        number: That of the last event with an id.
        comments: How many heartbeats there were.
        has_ended: Whether the server has ended it.
    """

    def __init__(self) -> None:
        self.events: list[Told] = []
        self.number = 0
        self.comments = 0
        self.has_ended = False
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def of(
        cls, api: httpx.AsyncClient, last_id: str | None = None, **query: str
    ) -> AsyncIterator[Self]:
        """Follow the events until the block ends."""
        stream = cls()
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        request = api.stream("GET", "/api/events", params=query, headers=headers)
        async with request as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            reading = asyncio.create_task(stream._read(answer))
            try:
                yield stream
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, answer: httpx.Response) -> None:
        fields: dict[str, str] = {}
        try:
            async for line in answer.aiter_lines():
                name, _, value = line.partition(":")
                if line.startswith(":"):
                    self.comments += 1
                elif line:
                    fields[name] = value.removeprefix(" ")
                elif "data" in fields:
                    told = fields.get("id"), fields.get("event", ""), fields["data"]
                    self.events.append(Told(*told))
                    if "id" in fields:
                        self.number = int(fields["id"].partition("-")[2])
                    fields = {}
                self._news.set()
        finally:
            self.has_ended = True
            self._news.set()

    async def has(self, event: str, count: int = 1, **data: Any) -> Told:
        """Wait for the count-th event of that name with these data."""
        wanted = ", ".join(f'"{name}": {value}' for name, value in data.items())

        def found() -> list[Told]:
            return [t for t in self.events if t.event == event and wanted in t.data]

        try:
            await self.until(lambda: len(found()) >= count)
        except TimeoutError:
            raise AssertionError(f"no {event} {data}: {self.events[-3:]}") from None
        return found()[count - 1]

    async def until(self, condition: Any) -> None:
        """Wait until what has been told fulfils a condition."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._news.clear()
                await self._news.wait()
