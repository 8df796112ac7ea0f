"""Limits the requests of a key: by a moving window, shared by all API processes through the broker's Redis.

How many are served at once is counted by each process for itself: the limit protects its threads.

Without such a broker, and while it does not answer, each process counts for itself: with k processes behind one
address, a key then gets up to k times as much. What must hold exactly, budgets, is in the database.
"""

import ipaddress
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

import structlog
from fastapi import Request
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.errors import StorageError
from limits.storage import RedisStorage
from limits.strategies import MovingWindowRateLimiter

from datalens_service.base.errors import RateLimited, Unauthorized
from datalens_service.base.settings import Settings
from datalens_service.store.access.keys import ApiKey

_WINDOW_SECONDS: Final = 10
_REDIS_TIMEOUT_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = 10.0
_CLOCK_SECONDS: Final = 60.0
_LONGEST_WINDOW_SECONDS: Final = 60.0
_PREFIX: Final = "datalens-requests"
_LINK_REQUESTS_PER_MINUTE: Final = 120
_LINK_REQUESTS_AT_ONCE: Final = 4
_log = structlog.get_logger("datalens.api")


@dataclass(frozen=True)
class RateLimitStatus:
    """The rest of a key's limit after a request; for the headers `RateLimit` and `RateLimit-Policy`."""

    per_minute: int
    remaining: int
    seconds_to_reset: int

    def headers(self) -> dict[str, str]:
        """Return the headers that the draft of the IETF defines."""
        return {
            "RateLimit-Policy": f'"default";q={self.per_minute};w=60',
            "RateLimit": f'"default";r={self.remaining};t={self.seconds_to_reset}',
        }


def moving_window(per_minute: int) -> RateLimitItem:
    """The window of whole seconds that allows exactly this rate.

    The longest one of at most 10 seconds; rates such as 7 a minute have none and get the shortest longer one.
    """
    divisor = math.gcd(per_minute, 60)
    requests, seconds = per_minute // divisor, 60 // divisor
    repeat = max(1, _WINDOW_SECONDS // seconds)
    return RateLimitItemPerSecond(requests * repeat, seconds * repeat, namespace="")


class _RedisStorage(RedisStorage):
    """Dates requests by the clock of Redis: the library takes that of each API host, and they may be days apart."""

    _read_at = -math.inf
    _started = 0.0

    def read_clock(self) -> float:
        """Seconds since 1970; asked for once a minute, and counted on by a clock that nobody sets."""
        now = monotonic()
        if now - self._read_at >= _CLOCK_SECONDS:
            connection: Any = self.get_connection()
            seconds, microseconds = connection.time()
            self._started, self._read_at = seconds + microseconds / 1e6 - now, now
        return self._started + now

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Note a request, as the library does, unless the window is full."""
        arguments = [self.read_clock(), limit, expiry, amount]
        return bool(self.lua_acquire_moving_window([self.prefixed_key(key)], arguments))

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Begin of the window, and the requests in it, as the library tells them."""
        now = self.read_clock()
        window = self.lua_moving_window([self.prefixed_key(key)], [now - expiry, limit])
        return (float(window[0]), window[1]) if window else (now, 0)


class _Counted(NamedTuple):
    """The answer to a request that was counted: admitted or not, and the rest of its window."""

    is_allowed: bool
    remaining: int
    seconds_to_reset: float


class _ProcessWindows:
    """Moving windows of one process, by a clock that nobody sets.

    The storage of the library dates requests by the clock of the machine, and starts a thread for nearly every one.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sent: dict[str, deque[float]] = {}
        self._swept_at = clock()

    def count(self, window: RateLimitItem, key_id: str) -> _Counted:
        """Note a request, unless its window is full."""
        with self._lock:
            now, seconds = self._clock(), window.get_expiry()
            self._sweep(now)
            sent = self._sent.setdefault(window.key_for(key_id), deque())
            while sent and sent[0] < now - seconds:
                sent.popleft()
            allowed = len(sent) < window.amount
            if allowed:
                sent.append(now)
            return _Counted(allowed, window.amount - len(sent), sent[0] + seconds - now)

    def _sweep(self, now: float) -> None:
        """Forget who has sent nothing within the longest window."""
        if now - self._swept_at > _LONGEST_WINDOW_SECONDS:
            self._swept_at = now
            recent = now - _LONGEST_WINDOW_SECONDS
            self._sent = {name: sent for name, sent in self._sent.items() if sent[-1] >= recent}


class _SharedWindows:
    """Moving windows of all processes, in Redis."""

    def __init__(self, storage: _RedisStorage) -> None:
        self._storage, self._limiter = storage, MovingWindowRateLimiter(storage)

    def count(self, window: RateLimitItem, key_id: str) -> _Counted:
        """Note a request, unless its window is full.

        Raises:
            StorageError: Redis does not answer.
        """
        allowed = self._limiter.hit(window, key_id)
        state = self._limiter.get_window_stats(window, key_id)
        return _Counted(allowed, state.remaining, state.reset_time - self._storage.read_clock())


class RateLimits:
    """Counts the requests of each key.

    Args:
        broker_url: Redis that all processes share; another broker, or None, means that each counts for itself.
        clock: Seconds since any instant; for tests.
    """

    def __init__(self, broker_url: str | None, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or monotonic
        self._local = _ProcessWindows(self._clock)
        self._shared = _shared(broker_url)
        self._unreachable = False
        self._retry_at = -math.inf

    def count(self, key_id: str, per_minute: int, refusal: str | None = None) -> RateLimitStatus:
        """Count a request.

        Args:
            refusal: Sentence for a caller who has used up the limit; None speaks of a key.

        Raises:
            RateLimited: The limit is used up.
        """
        refusal = refusal or f"This key may send {per_minute} requests a minute."
        if self._shared is not None and self._clock() >= self._retry_at:
            try:
                status = _count(self._shared, key_id, per_minute, refusal)
            except StorageError as error:
                self._fall_back(error)
            else:
                self._recover()
                return status
        return _count(self._local, key_id, per_minute, refusal)

    def _fall_back(self, error: StorageError) -> None:
        # A limit is no reason to refuse everybody: what must not be exceeded is not counted here.
        self._retry_at = self._clock() + _RETRY_SECONDS
        if not self._unreachable:
            _log.warning("rate limits are per process", error=type(error.__cause__).__name__)
        self._unreachable = True

    def _recover(self) -> None:
        if self._unreachable:
            _log.info("rate limits are shared again")
        self._unreachable = False


class RequestLimits:
    """Both limits of a key, or of a link: requests per minute, and requests at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._in_flight: Counter[str] = Counter()
        self._rates = RateLimits(settings.broker_url)

    @contextmanager
    def acquire(self, key: ApiKey) -> Generator[RateLimitStatus]:
        """Count a request, and count it as in flight until the block is left.

        Raises:
            RateLimited: The key has used up its limit, or too many of its requests are in flight.
        """
        per_minute = key.requests_per_minute or self._settings.requests_per_minute
        at_once = key.concurrent_requests or self._settings.concurrent_requests
        with self._acquire(key.id, "key", per_minute, at_once) as status:
            yield status

    @contextmanager
    def acquire_link(self, link_id: str) -> Generator[RateLimitStatus]:
        """Do the same for a link of a partner.

        Raises:
            RateLimited: The link has used up its limit, or too many of its requests are in flight.
        """
        with self._acquire(link_id, "link", _LINK_REQUESTS_PER_MINUTE, _LINK_REQUESTS_AT_ONCE) as status:
            yield status

    @contextmanager
    def _acquire(self, caller: str, kind: str, per_minute: int, at_once: int) -> Generator[RateLimitStatus]:
        self._begin(caller, kind, at_once)
        try:
            yield self._rates.count(caller, per_minute, f"This {kind} may send {per_minute} requests a minute.")
        finally:
            self._end(caller)

    @contextmanager
    def count_wrong_keys(self, request: Request) -> Generator[None]:
        """Count a key or link that is refused within the block by the address that it came from.

        Behind proxies that is the client's. Right keys and links of the same address are not held up.

        Raises:
            RateLimited: It was refused, and more such came than an address may send.
        """
        try:
            yield
        except Unauthorized:
            limit, address = self._settings.wrong_keys_per_minute, request.client.host if request.client else ""
            sentence = f"An address may send {limit} wrong keys or links a minute, and yours has sent more."
            self._rates.count(f"address-{_network(address)}", limit, sentence)
            raise

    def count_tenant(self, tenant_id: str, per_minute: int | None) -> None:
        """Count a request by its tenant, if that has a quota.

        Raises:
            RateLimited: The tenant has used up its quota.
        """
        if per_minute is not None:
            sentence = f"The keys of your tenant may send {per_minute} requests a minute together."
            self._rates.count(f"tenant-{tenant_id}", per_minute, sentence)

    def _begin(self, caller: str, kind: str, limit: int) -> None:
        with self._lock:
            if self._in_flight[caller] >= limit:
                detail = f"{limit} requests of this {kind} are being served; wait for one of them."
                raise RateLimited(detail, extra={"retry_after": 1})
            self._in_flight[caller] += 1

    def _end(self, caller: str) -> None:
        with self._lock:
            self._in_flight[caller] -= 1
            if not self._in_flight[caller]:
                # Revoked keys leave nothing behind.
                del self._in_flight[caller]


def _shared(broker_url: str | None) -> _SharedWindows | None:
    if broker_url is None or urlsplit(broker_url).scheme not in RedisStorage.STORAGE_SCHEME:
        return None
    # Its driver is installed where there is such a broker.
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    storage = _RedisStorage(
        broker_url,
        key_prefix=_PREFIX,
        wrap_exceptions=True,
        socket_timeout=_REDIS_TIMEOUT_SECONDS,
        socket_connect_timeout=_REDIS_TIMEOUT_SECONDS,
        # By default it would repeat, with pauses of seconds, what every request waits for.
        retry=cast(Any, Retry(NoBackoff(), 0)),
    )
    return _SharedWindows(storage)


def _network(address: str) -> str:
    """Return the network of an IPv6 address that one client has (/64), and any other address as it is."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def _count(windows: _ProcessWindows | _SharedWindows, key_id: str, per_minute: int, refusal: str) -> RateLimitStatus:
    counted = windows.count(moving_window(per_minute), key_id)
    seconds = max(1, math.ceil(counted.seconds_to_reset))
    if not counted.is_allowed:
        raise RateLimited(refusal, extra={"retry_after": seconds})
    return RateLimitStatus(per_minute, counted.remaining, seconds)
