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

# IPv6 with IPv4 in its last four bytes: mapped, compatible, translated (NAT64).
_LAST_BYTES = (
    ip_network("::ffff:0:0/96"),
    ip_network("::/96"),
    ip_network("64:ff9b::/96"),
)


@dataclass(frozen=True, slots=True)
class Rule:
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
        return all(_is_public(real) or self._names(real) for real in _meant(address))

    def _names(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


def _is_public(address: Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not (isinstance(address, IPv6Address) and address.is_site_local)
    )


def _meant(address: Address) -> list[Address]:
    """Return what a packet to an address may reach: what it has of IPv4, or itself."""
    if isinstance(address, IPv4Address):
        return [address]
    meant: list[Address] = []
    if any(address in network for network in _LAST_BYTES):
        meant.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address.sixtofour is not None:
        meant.append(address.sixtofour)
    if address.teredo is not None:
        meant += address.teredo
    return meant or [address]
