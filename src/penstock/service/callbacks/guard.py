"""Which addresses Penstock may be made to ask. Called by sender for each address that a name stands for, at the time of each connection. Pure.

Whoever may submit a workflow chooses where its callbacks go. So only addresses of the open internet are asked, unless the operator lists others:
PENSTOCK_CALLBACK_HOSTS, with addresses (10.1.2.3), networks (10.1.0.0/16) and names (hooks.internal, *.internal), separated by commas.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

VARIABLE: Final = "PENSTOCK_CALLBACK_HOSTS"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?\Z", re.A)

_CLOSED: Final[tuple[tuple[str, Network], ...]] = tuple(
    (what, ipaddress.ip_network(text))
    for what, texts in (
        ("of this machine", ("0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128")),
        ("link-local", ("169.254.0.0/16", "fe80::/10")),
        ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")),
        ("of a provider's own network", ("100.64.0.0/10",)),
        ("of a cloud's metadata", ("168.63.129.16/32",)),
        ("of a group of machines", ("224.0.0.0/4", "ff00::/8", "255.255.255.255/32")),
        (
            "reserved",
            (
                *("192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
                *("64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16"),
            ),
        ),
    )
    for text in texts
)
_WITH_IPV4: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("2002::/16"))
"""NAT64 and 6to4: another way to write an address of IPv4."""


class AddressGuard(NamedTuple):
    networks: tuple[Network, ...] = ()
    names: tuple[str, ...] = ()

    def refusal(self, host: str, address: str) -> str:
        """Why this address may not be asked, which `host` stands for now; empty if it may."""
        if self._is_named(host):
            return ""
        try:
            found: Address = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return f"{address!r} is not an address"
        forms = (found, *_inner(found))
        if any(form in network for form in forms for network in self.networks if network.version == form.version):
            return ""
        for form in forms:
            what = _what(form)
            if what:
                shown = host if host == address else f"{host} is {address}, which"
                return f"{shown} is an address {what}; who runs Penstock may allow it with {VARIABLE}"
        return ""

    def _is_named(self, host: str) -> bool:
        host = host.lower().rstrip(".")
        return any(host == name or (name[:2] == "*." and host.endswith(name[1:])) for name in self.names)


def parse(entries: Iterable[str]) -> AddressGuard:
    """Raises ValueError with the entry that is neither an address, a network nor a name."""
    networks: list[Network] = []
    names: list[str] = []
    for entry in entries:
        text = entry.strip().lower()
        try:
            networks.append(ipaddress.ip_network(text.strip("[]"), strict=False))
        except ValueError:
            if not _NAME.match(text) or re.fullmatch(r"[\d.]+", text):
                raise ValueError(entry) from None
            names.append(text.rstrip("."))
    return AddressGuard(tuple(networks), tuple(names))


def _inner(address: Address) -> tuple[Address, ...]:
    """Addresses of IPv4 that are written inside one of IPv6."""
    if not isinstance(address, ipaddress.IPv6Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    number = int(address)
    if address in _WITH_IPV4[0] or (number >> 32 == 0 and number > 1):
        return (ipaddress.IPv4Address(number & 0xFFFFFFFF),)
    return (ipaddress.IPv4Address((number >> 80) & 0xFFFFFFFF),) if address in _WITH_IPV4[1] else ()


def _what(address: Address) -> str:
    """Empty: it is of the open internet."""
    if isinstance(address, ipaddress.IPv6Address) and _inner(address):
        return ""  # the address inside decides
    for what, network in _CLOSED:
        if address.version == network.version and address in network:
            return what
    return "" if address.is_global else "that is not of the open internet"
