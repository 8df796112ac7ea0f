"""What handlers ask for: the opened services, and a caller with a valid key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.dispatch import Dispatcher
from api.schemas import IDENTIFIER
from api.synthetic import SyntheticFiles
from datalens_service.errors import Unauthorized
from datalens_service.settings import Settings
from datalens_service.store import keys
from datalens_service.store.artifacts import ArtifactStore
from datalens_service.store.database import Database
from datalens_service.store.keys import ApiKey

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
    """

    settings: Settings
    database: Database
    artifacts: ArtifactStore
    dispatcher: Dispatcher
    synthetic: SyntheticFiles


def services(request: Request) -> Services:
    """The services of the running application."""
    opened: Services = request.app.state.services
    return opened


ServicesDep = Annotated[Services, Depends(services)]

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="apiKey",
    bearerFormat="dlk_…",
    description="An API key. `datalens serve` prints one when it starts for the first time.",
)


def caller(
    opened: ServicesDep, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> ApiKey:
    """The key the request carries.

    Raises:
        Unauthorized: None, or not a valid one.
    """
    if credentials is None:
        raise Unauthorized("Send an API key in the header: Authorization: Bearer dlk_…")
    return keys.verify(opened.database, credentials.credentials)


ObjectId = Annotated[str, Path(max_length=64, pattern=IDENTIFIER)]
Limit = Annotated[int, Query(ge=1, le=MAXIMUM_PAGE, description="Items in this portion.")]
After = Annotated[str | None, Query(max_length=512, description="`next_cursor` of the portion before.")]
