"""What webhooks may reach, by address, name and redirect."""

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

import pytest

from pgwake import Discard, Settings
from pgwake.address import Rule
from pgwake.kinds.http import HttpClient
from support.worker.receiver import Receiver

PUBLIC = [
    "8.8.8.8",
    "93.184.215.14",
    "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]
NOT_PUBLIC = [
    "0.0.0.0",  # noqa: S104
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",  # where clouds keep a machine's credentials
    "172.16.0.1",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "2002:7f00:1::",  # 6to4 of 127.0.0.1
    "2002:a00:1::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert Rule().allows("a.example", ip_address(address))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_other_addresses_are_refused_unless_all_are_allowed(address: str) -> None:
    assert not Rule().allows("a.example", ip_address(address))
    assert Rule.parse(["true"]).allows("a.example", ip_address(address))


def test_networks_and_hosts_can_be_allowed() -> None:
    rule = Rule.parse(["10.1.0.0/16", "::1", "Hooks.Internal"])

    assert rule.allows("a.example", ip_address("10.1.2.3"))
    assert rule.allows("a.example", ip_address("::ffff:10.1.2.3"))
    assert rule.allows("a.example", ip_address("::1"))
    assert rule.allows("hooks.internal", ip_address("192.168.1.1"))
    assert not rule.allows("a.example", ip_address("10.2.0.1"))
    assert not rule.allows("a.example", ip_address("127.0.0.1"))
    assert not rule.allows("x.hooks.internal", ip_address("192.168.1.1"))


@pytest.mark.parametrize("word", ["10.0.0.0/33", "10.0.0.1/8", "http://a", "a b", "*"])
def test_what_is_neither_network_nor_host_is_told(word: str) -> None:
    with pytest.raises(ValueError, match="networks"):
        Rule.parse([word])


async def refused(host: str, port: int = 80, rule: Rule | None = None) -> str:
    """What is said of a host that may not be connected to."""
    async with HttpClient(Settings.load(), rule or Rule()) as client:
        with pytest.raises(Discard) as caught:
            await client.post(f"http://{host}:{port}/", "1", b"{}")
    return str(caught.value)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "2130706433",
        "0x7f000001",
        "127.1",
        "169.254.169.254",
        "0",
    ],
)
async def test_every_way_to_write_a_private_host_is_refused(host: str) -> None:
    with Receiver().serve() as receiver:
        said = await refused(host, receiver.port)
        assert "PGWAKE_HTTP_ALLOW_PRIVATE" in said
        assert receiver.posted == []


async def test_a_name_is_connected_to_at_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name server that answers differently the second time gains nothing."""
    loop = asyncio.get_running_loop()
    asked = []

    async def getaddrinfo(host: Any, port: Any, **_: Any) -> Any:
        asked.append(host)
        address = "127.0.0.2" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    with Receiver().serve("127.0.0.1") as first:
        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        rule = Rule.parse(["127.0.0.2"])
        async with HttpClient(Settings.load(), rule) as client:
            # Nobody listens at 127.0.0.2.
            with pytest.raises(Exception, match="ConnectError"):
                await client.post(f"http://rebound.example:{first.port}/", "1", b"{}")
    assert asked == ["rebound.example"]
    assert first.posted == []


async def test_of_several_addresses_those_that_are_refused_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()

    async def getaddrinfo(_: Any, port: Any, **__: Any) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.1", "127.0.0.3", "127.0.0.2")
        ]

    with Receiver().serve("127.0.0.1") as refused, Receiver().serve("127.0.0.2") as ok:
        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        # The first that is allowed does not answer, the second does.
        rule = Rule.parse(["127.0.0.2", "127.0.0.3"])
        async with HttpClient(Settings.load(), rule) as client:
            await client.post(f"http://many.example:{ok.port}/", "1", b"{}")
    assert [post.headers["host"] for post in ok.posted] == [f"many.example:{ok.port}"]
    assert refused.posted == []


async def test_proxies_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Receiver().serve() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        await refused("127.0.0.1", proxy.port)
    assert proxy.posted == []
