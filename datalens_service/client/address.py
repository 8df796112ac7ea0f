"""Addresses of services, and how a connection to one is configured."""

import ipaddress
from typing import Any, Final

import httpx2

from datalens_service.client.errors import ClientError
from datalens_service.voices import HEADER, Voice

DEFAULT_URL: Final = "http://127.0.0.1:8000"


def is_loopback(url: str) -> bool:
    """Whether an address means this machine.

    Raises:
        ClientError: Not an HTTP address.
    """
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


def build_http_options(url: str, api_key: str, voice: Voice) -> dict[str, Any]:
    """Keyword arguments of the HTTP client."""
    return {
        "base_url": url,
        "headers": {HEADER: voice.value, **({"Authorization": f"Bearer {api_key}"} if api_key else {})},
        # A proxy from the environment would resolve loopback to its own machine.
        "trust_env": not is_loopback(url),
    }
