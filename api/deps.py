"""Dependencies of handlers: the opened services, and a caller with a valid key."""

import re
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

from anyio import CapacityLimiter
from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import Counter

from datalens_service.adapters.dispatch import Dispatcher
from datalens_service.adapters.health import Surroundings
from datalens_service.adapters.openid_provider import OpenIdProvider
from datalens_service.api.http.metrics import REFUSALS
from datalens_service.api.http.strictness import DIGITS
from datalens_service.api.http.threads import run_in_thread
from datalens_service.api.security.browser_sessions import resume_session
from datalens_service.api.security.permissions import check_allowed, find_rule, is_closed
from datalens_service.api.security.rate_limits import RequestLimits
from datalens_service.base.settings import Settings
from datalens_service.base.signatures import PublicKey
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.services.ledger_check import LedgerCheck
from datalens_service.services.predictions import Predictions
from datalens_service.services.pricing import Prices
from datalens_service.services.removal import Remover
from datalens_service.services.synthetic_files import SyntheticFiles
from datalens_service.services.validation_queue import Validator
from datalens_service.store.access import browser_sessions, keys, quotas, tenants
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import approvals

MAXIMUM_PAGE: Final = 100
READINESS_CONNECTIONS: Final = 2
"""Extra connections of each API process, for requests to `/readyz` and for its own checks."""

LARGEST: Final = 2**63 - 1
"""Number that a column holds."""


@dataclass(frozen=True)
class Services:
    """Everything that was opened when the application started.

    Attributes:
        readiness: The database by connections that no request takes.
        readiness_threads: Threads that no request takes.
    """

    settings: Settings
    database: Database
    readiness: Database
    artifacts: ArtifactStore
    dispatcher: Dispatcher
    synthetic: SyntheticFiles
    predictions: Predictions
    limits: RequestLimits
    ledger_check: LedgerCheck
    surroundings: Surroundings
    stopping: threading.Event
    validator: Validator
    remover: Remover
    signing_key: PublicKey
    openid_provider: OpenIdProvider | None = None
    readiness_threads: CapacityLimiter = field(default_factory=partial(CapacityLimiter, READINESS_CONNECTIONS))
    prices: Prices = field(default_factory=Prices)
    refusals: Counter = field(default_factory=partial(Counter, *REFUSALS, registry=None))


async def get_services(request: Request) -> Services:
    """The services of the running application; async, since it waits for nothing and needs no thread."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="apiKey",
    bearerFormat="dlk_…",
    description="An API key. `datalens serve` prints one when it starts for the first time.",
)


async def caller(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> AsyncGenerator[ApiKey]:
    """The key the request carries, or the one that its browser signed in with: here is the one door.

    Raises:
        Unauthorized: None, or not a valid one.
        RateLimited: It sends more than it may, or its address sends too many wrong keys.
        Forbidden: It lacks the scope of the operation.
        NotFound: The path names an object of another tenant, or of nobody.
        StateConflict: It names a result that waits for a second person, or was withheld.
    """
    # In flight until the block is left, which waits for nothing and needs no thread.
    with ExitStack() as in_flight:
        yield await run_in_thread(_admit, in_flight, request, request.app.state.services, credentials)


def _admit(
    in_flight: ExitStack, request: Request, services: Services, credentials: HTTPAuthorizationCredentials | None
) -> ApiKey:
    key, request.state.is_admitted = _identify(request, services, credentials)
    request.state.caller = key
    request.state.rate_limit = in_flight.enter_context(services.limits.acquire(key))
    operation = getattr(request.scope.get("route"), "operation_id", None)
    check_allowed(key, operation)
    # Ids that are malformed are refused by the operation itself; a database need not see them.
    usable = {name: value for name, value in request.path_params.items() if re.fullmatch(IDENTIFIER, value)}
    with services.database.connection() as connection:
        rule = find_rule(operation)
        if not rule.cross_tenant:
            tenants.check_owned(connection, key.tenant_id, usable)
        if is_closed(key, rule):
            approvals.check_released(connection, usable)
        default = services.settings.tenant_requests_per_minute
        requests = quotas.read_requests_per_minute(connection, key.tenant_id, default)
    services.limits.count_tenant(key.tenant_id, requests)
    return key


def _identify(
    request: Request, services: Services, credentials: HTTPAuthorizationCredentials | None
) -> tuple[ApiKey, Callable[[], bool]]:
    """Return who calls, and a function that tells a long answer whether they still may."""
    if credentials is None:
        signed_in = resume_session(request, services.database)
        return signed_in.key, partial(browser_sessions.is_open, services.database, signed_in.token)
    with services.limits.count_wrong_keys(request), services.database.connection() as connection:
        key = keys.verify(connection, credentials.credentials)
    return key, partial(keys.usable, services.database, key.id)


Caller = Annotated[ApiKey, Depends(caller)]
ObjectId = Annotated[str, Path(max_length=64, pattern=IDENTIFIER)]
LastKnown = Annotated[int, Query(ge=0, le=LARGEST, description="Number of the last entry that is known."), DIGITS]
Limit = Annotated[int, Query(ge=1, le=MAXIMUM_PAGE, description="Page size."), DIGITS]
After = Annotated[str | None, Query(max_length=512, description="Cursor returned by the previous page.")]
