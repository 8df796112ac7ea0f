"""Delivers signed webhook messages (Standard Webhooks) and refuses private addresses.

A tenant chooses the URL and the service calls it from within the operator's network, so this is where server-side
request forgery (SSRF) is stopped. All addresses of the host are checked, and the connection goes to one of those that
were checked: a name that answers differently the second time (DNS rebinding) changes nothing. Redirects are not
followed.

Every API process runs one sender; a row that one of them has claimed is left alone by the others for a minute. A
process that dies in between sends the message again: the id stays the same, so that receivers can tell.

Which addresses and names are public: by the IANA registries of special-purpose addresses (IPv4 and IPv6) and of
special-use domain names, as of 2025. Whatever is in them is refused, also what is reachable but has no receiver of
messages. Of IPv6, only what IANA allocates to networks (2000::/3) can be public, so addresses that wrap an IPv4 address
and blocks to come are refused.
"""

import http.client
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import SplitResult, urlsplit

import structlog
from standardwebhooks.webhooks import Webhook

from datalens_service.adapters import mail_sender
from datalens_service.base import logs
from datalens_service.base.errors import InvalidInput, StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.store.access import webhooks
from datalens_service.store.access.webhooks import Claimed
from datalens_service.store.database import Database

_POLL_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 10.0
"""To connect, and between two bytes of an answer."""
_TIMEOUTS: Final = 3
"""After so many of them an attempt ends, however slowly something still comes: others wait for its place."""
_AT_ONCE: Final = 32
_PORTS: Final = {"http": 80, "https": 443}
_log = structlog.get_logger("datalens.webhooks")


class AddressRefusedError(Exception):
    """The name of the host stands for a private address."""


class WebhookSender:
    """A thread that sends due messages until it is told to stop."""

    def __init__(self, database: Database, settings: Settings, stopping: threading.Event) -> None:
        self._database = database
        self._settings = settings
        self._stopping = stopping
        self._busy: dict[str, str] = {}
        self._freed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        """Start to send messages, in the background."""
        self._thread.start()

    def join(self) -> None:
        """Wait for messages that are being sent; `stopping` is set."""
        self._freed.set()
        self._thread.join(2 * _TIMEOUT_SECONDS)

    def _run(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="webhook") as pool:
            while not self._stopping.is_set():
                if not self._round(pool):
                    self._freed.wait(_POLL_SECONDS)
                    self._freed.clear()

    def _round(self, pool: ThreadPoolExecutor) -> bool:
        """Begin to send what is due to receivers that get nothing just now; whether there was anything."""
        busy = dict(self._busy)
        try:
            claimed = webhooks.claim_due(self._database, _AT_ONCE - len(busy), busy=busy)
        except StoreUnavailable:
            return False
        except Exception as error:  # noqa: BLE001 (no message may stop all others)
            _log.error("webhooks not sent, trying again", **logs.outline(error))
            return False
        for message in claimed:
            self._busy[message.delivery.webhook_id] = message.tenant_id
            pool.submit(self._serve, message)
        return bool(claimed)

    def _serve(self, message: Claimed) -> None:
        """Send one message; the next one to its receiver waits until then, and no other does."""
        try:
            self._deliver(message)
        except StoreUnavailable:
            # It is sent again in a minute, under the same id.
            pass
        except Exception as error:  # noqa: BLE001 (no message may stop all others)
            _log.error("webhooks not sent, trying again", **logs.outline(error))
        finally:
            del self._busy[message.delivery.webhook_id]
            self._freed.set()

    def _deliver(self, message: Claimed) -> None:
        if message.url.startswith(mail_sender.SCHEME):
            status, error = mail_sender.attempt_mail(message, self._settings)
        else:
            status, error = attempt(message, allow_private=self._settings.webhooks_to_private_addresses)
        webhooks.settle(self._database, message.delivery.id, status=status, error=error)
        if error is not None:
            _log.warning("webhook not delivered", delivery_id=message.delivery.id, error=error)


def check_target(url: str, settings: Settings) -> None:
    """Refuse what no message can go to.

    Raises:
        InvalidInput: Neither a usable address nor a person who may get mail; the sentence says what to change.
    """
    if url.startswith(mail_sender.SCHEME):
        mail_sender.check_recipient(url, settings)
    else:
        check_address(url, allow_private=settings.webhooks_to_private_addresses)


def attempt(message: Claimed, *, allow_private: bool) -> tuple[int | None, str | None]:
    """Send one message once; the status of the answer, and what is wrong with it."""
    body = message.delivery.payload.encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "datalens-service",
        "webhook-id": message.delivery.id,
        "webhook-timestamp": str(int(message.at.timestamp())),
        "webhook-signature": Webhook(message.secret).sign(message.delivery.id, message.at, message.delivery.payload),
    }
    try:
        status = _post(
            check_address(message.url, allow_private=allow_private), body, headers, allow_private=allow_private
        )
    except AddressRefusedError:
        return None, "The host has a private address."
    except InvalidInput as error:
        return None, error.text
    except (OSError, http.client.HTTPException) as error:
        # Messages of such errors name addresses; the class is enough.
        return None, f"No answer: {type(error).__name__}."
    return status, None if 200 <= status < 300 else f"The answer was {status}."


def check_address(url: str, *, allow_private: bool) -> SplitResult:
    """The parts of a usable address.

    Raises:
        InvalidInput: It is not usable; the sentence says what to change.
    """
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0) and url.isascii()
    except ValueError:
        raise InvalidInput("⟦webhook.url⟧ is not an address.") from None
    schemes = ("https", "http") if allow_private else ("https",)
    if not usable or parts.scheme not in schemes or parts.username is not None or parts.fragment:
        raise InvalidInput(
            f"⟦webhook.url⟧ must begin with {' or '.join(schemes)}:// and name a host, no user and no fragment."
        )
    if not allow_private and not may_be_public(parts.hostname or ""):
        raise InvalidInput(
            "⟦webhook.url⟧ must name a host on the public network; the operator can allow private addresses."
        )
    return parts


def _post(parts: SplitResult, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> int:
    """Status of the answer. Redirects are answers like others: they could lead anywhere."""
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    with _connected(host, port, allow_private=allow_private) as plain, _cut_off(plain, _TIMEOUTS * _TIMEOUT_SECONDS):
        secured = ssl.create_default_context().wrap_socket(plain, server_hostname=host) if _secure(parts) else plain
        connection.sock = secured
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("POST", path, body, dict(headers))
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def _cut_off(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Within the block, both sides of the connection are shut after so long."""

    def shut() -> None:
        with suppress(OSError):
            same.shutdown(socket.SHUT_RDWR)

    # TLS takes over the object and not the connection.
    with connection.dup() as same:
        timer = threading.Timer(seconds, shut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _secure(parts: SplitResult) -> bool:
    return parts.scheme == "https"


def _connected(host: str, port: int, *, allow_private: bool) -> socket.socket:
    """A connection to an address that was checked; the name is resolved once, against DNS rebinding."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not allow_private and not all(is_public_address(str(sockaddr[0])) for *_, sockaddr in addresses):
        raise AddressRefusedError
    *_, sockaddr = addresses[0]
    return socket.create_connection((str(sockaddr[0]), port), timeout=_TIMEOUT_SECONDS)


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
    """Return True if an address, as a resolver gives it, is on the public network."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip not in _ALLOCATED:
        return False
    return not any(ip in block for block in _SPECIAL if block.version == ip.version)


def may_be_public(host: str) -> bool:
    """Return True if the host of a URL is a public address, or a name that may stand for one.

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
