"""Which addresses may be connected to."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_network,
)
from typing import Self, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# What is not public, by prefix: the special-purpose registries of IANA, and what clouds
# and networks use inside. Not ipaddress's is_global, which differs between versions of
# Python, and counts whole registries as public for the few services in them.
_NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # behind a provider's NAT; a cloud's metadata
            "127.0.0.0/8",  # this machine
            "168.63.129.16/32",  # a cloud's host service
            "169.254.0.0/16",  # link-local; clouds' metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # IETF protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relay anycast
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
# Of IPv6 only what has been given out to the Internet is public, but for these of it.
_PUBLIC_6 = ip_network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    map(
        ip_network,
        (
            "2001::/23",  # IETF protocol assignments: Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "2620:4f:8000::/48",  # AS112
            "3ffe::/16",  # 6bone
            "3fff::/20",  # documentation
        ),
    )
)

# IPv6 with IPv4 in its last four bytes: mapped, compatible, translated (NAT64).
_LAST_BYTES = (
    ip_network("::ffff:0:0/96"),
    ip_network("::/96"),
    ip_network("64:ff9b::/96"),
)


@dataclass(frozen=True, slots=True)
class AddressRule:
    """What may be connected to: public addresses, and what is named.

    Args:
        allows_private: Whether every address is allowed.
        networks: Networks that are.
        hosts: Hosts that are, whatever their address, in lower case.
    """

    allows_private: bool = False
    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, words: Iterable[str], hosts: Collection[str] = ()) -> Self:
        """Read "true", or networks and hosts; further hosts as they are.

        Raises:
            ValueError: A word can't be either.
        """
        allows_private, networks, names = False, [], list(hosts)
        for word in words:
            lower = word.lower()
            if lower in ("true", "1", "yes", "on"):
                allows_private = True
            elif lower not in ("false", "0", "no", "off"):
                try:
                    networks.append(ip_network(word))
                except ValueError:
                    if "/" in word or not all(c.isalnum() or c in "-._" for c in word):
                        raise ValueError(
                            f"{word!r}: use true, or networks (10.0.0.0/8) and hosts "
                            "(hooks.internal), separated by commas"
                        ) from None
                    names.append(lower)
        return cls(allows_private, tuple(networks), frozenset(names))

    def allows(self, host: str, address: Address) -> bool:
        """Whether a host may be connected to at this address."""
        if self.allows_private or host.lower() in self.hosts or self._names(address):
            return True
        real = _meant(address)
        return _is_public(real) or self._names(real)

    def _names(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC)
    return address in _PUBLIC_6 and not any(
        address in network for network in _NOT_PUBLIC_6
    )


def _meant(address: Address) -> Address:
    """Return what a packet to an address may reach: what it has of IPv4, or itself."""
    if any(address in network for network in _LAST_BYTES):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address
