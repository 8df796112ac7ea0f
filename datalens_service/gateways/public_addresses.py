"""Which addresses and names lie on the public network.

Sources: the IANA registries of special-purpose addresses (IPv4 and IPv6) and of special-use domain names, as of 2025.
Whatever is in them is refused, also what is reachable but has no receiver of messages. Of IPv6, only what IANA
allocates to networks (2000::/3) can be public, so addresses that wrap an IPv4 address and blocks to come are refused.
"""

import ipaddress
import re
import socket
from typing import Final

_ALLOCATED: Final = ipaddress.IPv6Network("2000::/3")
_SPECIAL: Final = tuple(
    ipaddress.ip_network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private use
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link local
        "172.16.0.0/12",  # private use
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private use
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "2001::/23",  # protocol assignments, Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_NOWHERE: Final = frozenset({"alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion", "test"})
"""Last labels of names that the public network does not resolve."""

_LABEL: Final = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}$)({_LABEL}\.)+{_LABEL}")


def is_public_address(address: str) -> bool:
    """Whether an address, as a resolver gives it, is on the public network."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip not in _ALLOCATED:
        return False
    return not any(ip in block for block in _SPECIAL if block.version == ip.version)


def may_be_public(host: str) -> bool:
    """Whether the host of a URL is a public address, or a name that may stand for one.

    What a resolver takes for an IPv4 address is one: also a number, octal or hexadecimal parts, and fewer than four.
    """
    host = host.lower().removesuffix(".")
    try:
        return is_public_address(host)
    except ValueError:
        pass
    try:
        return is_public_address(socket.inet_ntoa(socket.inet_aton(host)))
    except OSError:
        return _NAME.fullmatch(host) is not None and host.rpartition(".")[2] not in _NOWHERE
