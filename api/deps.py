"""What handlers ask for: the opened services, and a caller with a valid key."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http.few_threads import SHORT_READS
from api.http.strictness import DIGITS
from api.security.browser_sessions import resume_session
from api.security.note_writer import NoteWriter
from api.security.permissions import check_allowed
from api.security.rate_limits import RequestLimits
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.services.dispatch import Dispatcher
from datalens_service.services.individual_epsilons import IndividualEpsilons
from datalens_service.services.ledger_check import LedgerCheck
from datalens_service.services.openid_provider import OpenIdProvider
from datalens_service.services.predictions import Predictions
from datalens_service.services.synthetic_files import SyntheticFiles
from datalens_service.services.validation_queue import Validator
from datalens_service.settings import Settings
from datalens_service.signatures import PublicKey
from datalens_service.store.access import keys, tenants
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore

MAXIMUM_PAGE: Final = 100


@dataclass(frozen=True)
class Services:
    """Everything that was opened when the application started.

    Attributes:
        settings: Of the deployment.
        database: Data sets, jobs, ledger, keys.
        artifacts: Files of jobs.
        dispatcher: Tells workers that there is a job.
        synthetic: Synthetic images in the format and number asked for.
        predictions: Of released classifiers.
        individual_epsilons: Of records that somebody sends.
        limits: Of the requests of each key.
        notes: Into the audit journals.
        ledger_check: Of all accounts, since the start.
        stopping: Set when the service is about to end; streams end then.
        validator: Reads finished uploads.
        signing_key: Checks what this installation signed; public.
        openid_provider: For single sign-on; None without it.
    """

    settings: Settings
    database: Database
    artifacts: ArtifactStore
    dispatcher: Dispatcher
    synthetic: SyntheticFiles
    predictions: Predictions
    individual_epsilons: IndividualEpsilons
    limits: RequestLimits
    notes: NoteWriter
    ledger_check: LedgerCheck
    stopping: threading.Event
    validator: Validator
    signing_key: PublicKey
    openid_provider: OpenIdProvider | None = None

    @property
    def admits_at_once(self) -> bool:
        """Whether to let a caller in waits for nobody: no server is asked, and SQLite's readers wait for no writer."""
        return self.database.dialect == "sqlite" and not self.limits.shared


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
    request: Request,
    services: ServicesDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> AsyncGenerator[ApiKey]:
    """The key the request carries, or the one that its browser signed in with: here is the one door.

    Raises:
        Unauthorized: None, or not a valid one.
        RateLimited: It sends more than it may.
        Forbidden: It lacks the scope of the operation.
        NotFound: The path names an object of another tenant, or of nobody.
    """
    plain = credentials.credentials if credentials else None
    with ExitStack() as in_flight:
        admit = partial(_admit, request, services, plain, in_flight)
        # To change threads would take longer than to read two rows.
        yield admit() if services.admits_at_once else await SHORT_READS.run(admit)


def _admit(request: Request, services: Services, plain: str | None, in_flight: ExitStack) -> ApiKey:
    """The caller, if the request may go on; it counts as in flight until `in_flight` is closed."""
    key = resume_session(request, services.database).key if plain is None else None
    with services.database.connection() as connection:
        key = key or keys.verify(connection, plain or "")
        request.state.caller = key
        request.state.rate_limit = in_flight.enter_context(services.limits.acquire(key))
        check_allowed(key, getattr(request.scope.get("route"), "operation_id", None))
        # Ids that are malformed are refused by the operation itself; a database need not see them.
        usable = {name: value for name, value in request.path_params.items() if re.fullmatch(IDENTIFIER, value)}
        tenants.check_owned(connection, key.tenant_id, usable)
    return key


Caller = Annotated[ApiKey, Depends(caller)]
ObjectId = Annotated[str, Path(max_length=64, pattern=IDENTIFIER)]
Limit = Annotated[int, Query(ge=1, le=MAXIMUM_PAGE, description="Page size."), DIGITS]
After = Annotated[str | None, Query(max_length=512, description="Cursor returned by the previous page.")]
