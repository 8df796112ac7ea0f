"""Addresses at which a client looks for a service."""

import ipaddress
from typing import Final

from datalens_service.client.errors import ClientError

DEFAULT_URL: Final = "http://127.0.0.1:8000"


def is_loopback(url: str) -> bool:
    """Return True if an address means this machine.

    Raises:
        ClientError: Not an HTTP address.
    """
    import httpx2

    try:
        address = httpx2.URL(url)
    except httpx2.InvalidURL:
        address = httpx2.URL("")
    if address.scheme not in ("http", "https") or not address.host:
        raise ClientError("invalid-url", "Not an address", f"{url!r} is not an address like {DEFAULT_URL}.")
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return address.host == "localhost"
