"""A TCP relay before a server, which can go dead without closing anything."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """Forwards connections to a server, until it is frozen.

    Attributes:
        url: The database's URL through it.
    """

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._thawed = asyncio.Event()
        self._dead: set[asyncio.Task[None]] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._accepting: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._server: asyncio.Server | None = None
        self.url = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, url: str) -> AsyncIterator[Self]:
        """Start one before a database."""
        relay = cls(url)
        relay.thaw()
        server = await asyncio.start_server(relay._accept, "127.0.0.1", 0)
        relay._server = server
        port = server.sockets[0].getsockname()[1]
        target = relay._target
        netloc = f"{target.username}:{target.password}@127.0.0.1:{port}"
        relay.url = target._replace(netloc=netloc).geturl()
        try:
            yield relay
        finally:
            server.close()
            for task in relay._pumps | relay._dead:
                task.cancel()
            await asyncio.gather(*relay._pumps, *relay._dead, return_exceptions=True)
            relay._is_over = True
            relay.thaw()
            await asyncio.gather(*relay._accepting)  # which close what they have

    def freeze(self) -> None:
        """Forward nothing any more; new connections are taken, and hear nothing."""
        self._thawed.clear()
        self._dead |= self._pumps

    def thaw(self) -> None:
        """Forward new connections; those from before stay dead."""
        self._thawed.set()

    def refuse(self) -> None:
        """Refuse new connections, for good; those that there are go on."""
        assert self._server is not None
        self._server.close()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._accepting.add(me)
        try:
            await self._thawed.wait()
            if not self._is_over:
                await self._forward(reader, writer)
        finally:
            self._accepting.discard(me)
            writer.close()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        target = self._target
        up_reader, up_writer = await asyncio.open_connection(
            target.hostname, target.port
        )
        pair = [
            asyncio.create_task(self._pump(reader, up_writer)),
            asyncio.create_task(self._pump(up_reader, writer)),
        ]
        self._pumps.update(pair)
        try:
            await asyncio.wait(pair, return_when="FIRST_COMPLETED")
        finally:
            for task in pair:
                task.cancel()
                self._pumps.discard(task)
            up_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        me = asyncio.current_task()
        while data := await reader.read(65536):
            if me in self._dead:
                await asyncio.Event().wait()
            writer.write(data)
            await writer.drain()
        if me in self._dead:
            await asyncio.Event().wait()
