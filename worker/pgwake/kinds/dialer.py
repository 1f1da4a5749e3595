"""Connections to addresses that have been checked."""

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import ip_address

import httpcore

from pgwake.address import Address, AddressRule


class AddressRefusedError(Exception):
    """A host has no address that may be connected to; the message says what to do."""


class Dialer(httpcore.AsyncNetworkBackend):
    """Connects to the very addresses that it has resolved and checked.

    A name that is looked up twice may have another address the second time.
    """

    def __init__(self, rule: AddressRule) -> None:
        self._rule = rule
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109, httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that is allowed and answers.

        Raises:
            AddressRefusedError: None is allowed.
            httpcore.ConnectError: None answers, or the name is unknown.
            httpcore.ConnectTimeout: One did not answer within the time-out.
        """
        allowed = [a for a in await _resolve(host, port) if self._rule.allows(host, a)]
        for address in allowed:
            try:
                return await self._backend.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if address is allowed[-1]:
                    raise
        raise AddressRefusedError(
            f"{host} has no public address: allow it by PGWAKE_HTTP_ALLOW_PRIVATE, if "
            "it is to be connected to"
        )

    async def sleep(self, seconds: float) -> None:
        """Sleep; httpcore asks for it between attempts."""
        await self._backend.sleep(seconds)


async def _resolve(host: str, port: int) -> list[Address]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host}: {error}") from error
    return [ip_address(item[4][0]) for item in found]
