"""What webhooks may reach, by address, name and redirect."""

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

import pytest

from pgwake import Discard, Settings
from pgwake.address import AddressRule
from pgwake.kinds.http import HttpClient
from support.worker.receiver import Receiver

PUBLIC = [
    "8.8.8.8",
    "93.184.215.14",
    "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "9.9.9.9",
    "168.63.129.17",
    "192.0.1.1",
    "192.88.98.255",
    "192.88.100.0",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2a00:1450:4001::1",
    "3000::1",
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
    "192.0.0.9",  # IETF protocol assignments
    "192.0.0.170",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",  # 6to4 relay anycast
    "192.175.48.1",
    "168.63.129.16",  # a cloud's host service
    "198.51.100.1",
    "203.0.113.1",
    "64:ff9b:1::1",  # NAT64 of a network's own
    "64:ff9b::168.63.129.16",
    "100::1",  # discard
    "100:0:0:1::1",
    "2001::1",  # Teredo
    "2001:1::1",
    "2001:2::1",
    "2001:20::1",
    "2002:808:808::1",  # 6to4 of a public address: by a relay that nobody runs
    "2620:4f:8000::1",
    "3ffe::1",
    "3fff::1",
    "3fff:fff:ffff::1",
    "4000::1",  # given out to nobody
    "5f00::1",  # segment routing
    "::ffff:0:127.0.0.1",  # translated (SIIT)
    "::ffff:0:8.8.8.8",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert AddressRule().allows("a.example", ip_address(address))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_other_addresses_are_refused_unless_all_are_allowed(address: str) -> None:
    assert not AddressRule().allows("a.example", ip_address(address))
    assert AddressRule.parse(["true"]).allows("a.example", ip_address(address))


def test_networks_and_hosts_can_be_allowed() -> None:
    rule = AddressRule.parse(["10.1.0.0/16", "::1", "Hooks.Internal"])

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
        AddressRule.parse([word])


async def refused(host: str, port: int = 80, rule: AddressRule | None = None) -> str:
    """What is said of a host that may not be connected to."""
    async with HttpClient(Settings.load(), rule or AddressRule()) as client:
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


@pytest.mark.parametrize(
    "url",
    [
        r"http://a.example\@127.0.0.1/",
        r"http://127.0.0.1\@a.example/",
        r"http://a.example\.b.example/",
        r"http:\\127.0.0.1/",
        r"http://a.example/b\c",
        "http://" + "a" * 2048,
    ],
)
async def test_a_url_that_programs_read_differently_is_refused(url: str) -> None:
    for posted in (url, url.replace("a.example", "localhost")):
        async with HttpClient(
            Settings.load(), AddressRule(allows_private=True)
        ) as client:
            with pytest.raises(Discard, match="the URL can't be used"):
                await client.post(posted, "1", b"{}")


async def test_no_redirect_is_followed_to_such_a_url() -> None:
    settings = Settings.load(http_redirects=True)
    rule = AddressRule(allows_private=True)
    with Receiver().serve() as receiver:
        for place in (
            rf"http://a.example\@127.0.0.1:{receiver.port}/",
            "/" + "a" * 2048,
        ):
            url = receiver.answer("/", 307, Location=place)
            async with HttpClient(settings, rule) as client:
                with pytest.raises(Discard, match="redirects to where"):
                    await client.post(url, "1", b"{}")
        assert {post.path for post in receiver.posted} == {"/"}


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
        rule = AddressRule.parse(["127.0.0.2"])
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
        rule = AddressRule.parse(["127.0.0.2", "127.0.0.3"])
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
