"""A TCP relay before a server: the network that goes bad on purpose."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pgwake.database.embedded import free_port
from pgwake.database.url import host_urls
from pgwake.errors import ConfigurationError

Way = Literal["to the server", "from the server"]

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class Relay:
    """Forwards connections to a database's server, until it is told to do it badly.

    Args:
        url: The database's URL, with one host.

    Attributes:
        url: The database's URL through it.
        client_seconds: So long after a freeze the clients of its connections are told
            that these are dead, as by TCP_USER_TIMEOUT in sessions of ours.

    Raises:
        ConfigurationError: The URL has several hosts.
    """

    def __init__(self, url: str) -> None:
        if len(host_urls(url)) > 1:
            raise ConfigurationError(
                "a relay goes to one server: name one host, the primary's"
            )
        self._host, self._port = _server_of(url)
        self._listening_port = free_port()
        self.url = _through(url, self._listening_port)
        self._server: asyncio.Server | None = None
        # Each with its ends: the client's, then the server's.
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._dead: set[asyncio.Task[None]] = set()
        self._thawed = _set_event()
        self._open: dict[Way, asyncio.Event] = {
            "to the server": _set_event(),
            "from the server": _set_event(),
        }
        self._delay_seconds = 0.0
        self._bytes_per_second = float("inf")
        self.client_seconds = 60.0

    @classmethod
    @asynccontextmanager
    async def before(cls, url: str) -> AsyncIterator[Self]:
        """Start one before a database's server."""
        relay = cls(url)
        await relay.heal()
        try:
            yield relay
        finally:
            relay.refuse()
            for task in relay._connections:
                task.cancel()
            await asyncio.gather(*relay._connections, return_exceptions=True)

    def freeze(self) -> None:
        """Forward nothing any more, and close nothing: half-open.

        New connections are taken, and hear nothing.
        """
        self._thawed.clear()
        dead = {task: ends for task, ends in self._connections.items() if ends[1:]}
        self._dead |= dead.keys()
        for client, _ in dead.values():
            loop = asyncio.get_running_loop()
            loop.call_later(self.client_seconds, _reset, client)

    def block(self, way: Way) -> None:
        """Hold back what goes one way; the other way is open.

        What was held goes on when that is over, as TCP's repetitions do: late, perhaps
        from a client that has gone.
        """
        self._open[way].clear()

    def slow(self, delay_seconds: float, bytes_per_second: float) -> None:
        """Forward late, and not much at a time, each connection and way for itself."""
        self._delay_seconds = delay_seconds
        self._bytes_per_second = bytes_per_second

    def cut(self) -> None:
        """Reset all connections; new ones are taken."""
        for writers in self._connections.values():
            for writer in writers:
                _reset(writer)

    def refuse(self) -> None:
        """Refuse new connections; those that there are go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def heal(self) -> None:
        """Be as at the beginning; connections from before a freeze stay dead.

        Their server is told, as keepalives would tell it; their clients are not yet.
        """
        self._delay_seconds, self._bytes_per_second = 0.0, float("inf")
        for event in self._open.values():
            event.set()
        self._thawed.set()
        for connection in self._dead:
            _reset(self._connections[connection][1])
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, "127.0.0.1", self._listening_port
            )

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        me = asyncio.current_task()
        assert me is not None, "a coroutine runs in a task"
        self._connections[me] = [writer]
        try:
            await self._thawed.wait()
            await self._forward(reader, writer)
        except OSError:
            _reset(writer)  # the server is not there
        except asyncio.CancelledError:
            pass  # the end; asyncio's streams would log it as an error
        finally:
            self._dead.discard(me)
            for end in self._connections.pop(me):
                end.close()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._host.startswith("/"):
            path = Path(self._host, f".s.PGSQL.{self._port}")
            ends = await asyncio.open_unix_connection(path)
        else:
            ends = await asyncio.open_connection(self._host, self._port)
        up_reader, up_writer = ends
        me = asyncio.current_task()
        assert me is not None, "as above"
        self._connections[me].append(up_writer)
        pair = {
            asyncio.create_task(self._pump(me, reader, up_writer, "to the server")),
            asyncio.create_task(self._pump(me, up_reader, writer, "from the server")),
        }
        try:
            await asyncio.wait(pair, return_when="FIRST_COMPLETED")
        finally:
            for task in pair:
                task.cancel()
            await asyncio.gather(*pair, return_exceptions=True)

    async def _pump(
        self,
        connection: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        way: Way,
    ) -> None:
        while True:
            data = b""
            with suppress(OSError):  # a reset is an end, too
                data = await reader.read(65536)
            seconds = self._delay_seconds + len(data) / self._bytes_per_second
            await asyncio.sleep(seconds)
            await self._open[way].wait()
            if connection not in self._dead:
                with suppress(OSError):
                    writer.write(data)
                    await writer.drain()
            elif way == "from the server":
                await asyncio.Event().wait()
            if not data:
                await self._thawed.wait()
                return


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _server_of(url: str) -> tuple[str, int]:
    """Return host, or the folder of its socket, and port, as asyncpg finds them."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    host = parts.hostname or query.get("host") or os.environ.get("PGHOST")
    port = parts.port or query.get("port") or os.environ.get("PGPORT")
    return host or "localhost", int(port or 5432)


def _through(url: str, port: int) -> str:
    """Return the URL with this port of 127.0.0.1 in place of its host."""
    parts = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    query = dict(parse_qsl(parts.query))
    for name in ("host", "port"):
        query.pop(name, None)
    if query.get("sslmode") == "verify-full":
        query["sslmode"] = "verify-ca"  # the certificate has the server's name
    return parts._replace(
        netloc=f"{login}{at}127.0.0.1:{port}",
        query=urlencode(query, quote_via=quote),
    ).geturl()


def _reset(writer: asyncio.StreamWriter) -> None:
    opened: socket.socket | None = writer.get_extra_info("socket")
    if opened is not None and opened.family != socket.AF_UNIX:
        with suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
