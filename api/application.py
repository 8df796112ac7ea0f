"""The web application: routes, middleware, and what it opens when it starts."""

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import anyio.to_thread
from fastapi import Depends, FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.routing import Mount, Route

from datalens_service.adapters.dispatch import Dispatcher, choose_dispatcher
from datalens_service.adapters.health import Surroundings
from datalens_service.adapters.openid_provider import OpenIdProvider
from datalens_service.adapters.startup import prepare, warn_of_unknown_variables
from datalens_service.adapters.webhook_sender import WebhookSender
from datalens_service.api.addresses import address, rooted_at
from datalens_service.api.deps import READINESS_CONNECTIONS, Services, caller
from datalens_service.api.http.file_responses import StaticFolder
from datalens_service.api.http.middleware import SHARED, BodyLimit, ReaderVoice, RequestLog
from datalens_service.api.http.reverse_proxy import ReverseProxy
from datalens_service.api.http.strictness import refuse_unknown
from datalens_service.api.openapi import document
from datalens_service.api.pages import (
    administration_pages,
    dataset_pages,
    image_pages,
    job_pages,
    plan_pages,
    public_pages,
    release_pages,
    shared_pages,
    single_sign_on,
)
from datalens_service.api.pages.views import rendering
from datalens_service.api.problems import handlers
from datalens_service.api.rest import (
    access,
    administration,
    artifacts,
    audits,
    classifiers,
    dataset_changes,
    datasets,
    downloads,
    encoders,
    events,
    generators,
    health,
    jobs,
    plans,
    released_images,
    releases,
    uploads,
    webhooks,
)
from datalens_service.api.rest import problems as problem_types
from datalens_service.api.security.access_logging import AccessLogging
from datalens_service.api.security.rate_limits import RequestLimits
from datalens_service.api.uploads.tus import TusHeaders
from datalens_service.base import logs
from datalens_service.base.errors import InvalidInput
from datalens_service.base.settings import Settings
from datalens_service.data.export.content_credentials import ContentCredentials
from datalens_service.services import removal, tenant_removal
from datalens_service.services.claims import parse_grants
from datalens_service.services.ledger_check import LedgerCheck
from datalens_service.services.predictions import Predictions
from datalens_service.services.removal import Remover
from datalens_service.services.synthetic_files import SyntheticFiles
from datalens_service.services.validation_queue import Validator
from datalens_service.services.waiting import check_workers
from datalens_service.store.database import Database
from datalens_service.store.database_clock import check_clock
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.record_files import RecordStore
from datalens_service.store.installation import signing_key

_KEYED: Final = (
    jobs, datasets, dataset_changes, plans, audits, events, downloads, encoders, generators, classifiers, releases,
    access, administration, released_images, webhooks,
)  # fmt: skip
"""Operations that need a key, all of them."""
_OTHERS: Final = (
    uploads, artifacts, problem_types, public_pages, single_sign_on, dataset_pages, plan_pages, image_pages,
    job_pages, administration_pages, release_pages, shared_pages,
)  # fmt: skip

_TELEMETRY: Final[TelemetryConfig] = {
    # FastAPI would send messages and stacks of exceptions to OpenTelemetry; a message may quote what was uploaded.
    "logs": False,
    # A signed download address is a secret, and so is the link of a partner.
    "exclude": lambda scope: b"signature=" in scope.get("query_string", b"") or SHARED in scope.get("path", ""),
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; nothing is opened before it starts."""
    settings = settings or Settings()
    logs.configure(settings.log_level)
    app = _Application(
        title=document.TITLE,
        version=version("datalens-service"),
        lifespan=_lifespan,
        telemetry=_TELEMETRY,
        # The framework's page loads scripts of a third party; `pages/public_pages.py` has ours.
        docs_url=None,
        redoc_url=None,
        root_path_in_servers=False,
        dependencies=[Depends(refuse_unknown)],
        responses=document.problems("invalid-input"),
    )
    app.state.settings = settings
    app.state.stopping = threading.Event()
    expected = document.problems("unauthorized", "store-unavailable", "internal-error")
    # Routes are tried in turn: what is asked for all the time comes first.
    app.include_router(health.router)
    for module in _KEYED:
        app.include_router(module.router, dependencies=[Depends(caller)], responses=expected)
    for module in _OTHERS:
        app.include_router(module.router)
    app.mount("/static", StaticFolder(), name="static")
    handlers.install(app)
    rendering.answer_browsers(app)
    app.add_middleware(BodyLimit, upload_bytes=settings.max_upload_bytes)
    app.add_middleware(TusHeaders)
    app.add_middleware(AccessLogging)
    app.add_middleware(RequestLog)
    app.add_middleware(ReaderVoice)
    app.add_middleware(ReverseProxy, settings=settings, own=_first_parts(app))
    return app


def _first_parts(app: FastAPI) -> frozenset[str]:
    """Return the first parts of the paths of the service.

    Raises:
        InvalidInput: The root path begins with one of them: nobody could tell whether a proxy has taken it away.
    """
    routes = [*app.routes, *(route for module in (health, *_KEYED, *_OTHERS) for route in module.router.routes)]
    own = frozenset(route.path.split("/")[1] for route in routes if isinstance(route, Route | Mount))
    root_path: str = app.state.settings.root_path
    if root_path and root_path.split("/")[1] in own:
        raise InvalidInput(f"The service has pages at {root_path} itself: choose another root path.")
    return own


class _Application(FastAPI):
    """FastAPI with our description."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            # The same for everybody: paths within the service.
            with rooted_at(""):
                self.openapi_schema = document.describe(self)
        return {**self.openapi_schema, "servers": [{"url": address("") or "/", "description": "This service."}]}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services = await anyio.to_thread.run_sync(_open, app.state.settings, app.state.stopping)
    app.state.services = services
    sender = WebhookSender(services.database, services.settings, services.stopping)
    sender.start()
    services.ledger_check.start()
    services.surroundings.start()
    services.remover.start()
    try:
        yield
    finally:
        services.stopping.set()
        await anyio.to_thread.run_sync(services.ledger_check.stop)
        await anyio.to_thread.run_sync(services.validator.stop)
        await anyio.to_thread.run_sync(services.remover.stop)
        await anyio.to_thread.run_sync(sender.join)
        await anyio.to_thread.run_sync(services.dispatcher.stop)
        services.database.dispose()
        services.readiness.dispose()


def _open(settings: Settings, stopping: threading.Event) -> Services:
    """Migrate the database, begin its check, remove what a crash left, and get everything else ready."""
    warn_of_unknown_variables()
    parse_grants(settings.oidc_scopes)
    database = prepare(settings)
    readiness = Database(settings.url, connections=READINESS_CONNECTIONS)
    ledger_check = LedgerCheck(database)
    artifacts = ArtifactStore(database, settings.data_dir, settings.artifact_url)
    dispatcher = choose_dispatcher(settings)
    key = signing_key(database)
    removal.remove_leftovers(database, artifacts, settings)
    return Services(
        settings=settings,
        database=database,
        readiness=readiness,
        artifacts=artifacts,
        dispatcher=dispatcher,
        synthetic=SyntheticFiles(artifacts, key, settings.data_dir, ContentCredentials.from_settings(settings)),
        predictions=Predictions(settings),
        signing_key=key.public,
        limits=RequestLimits(settings),
        ledger_check=ledger_check,
        surroundings=Surroundings(settings, _list_checks(settings, readiness, artifacts, dispatcher), stopping),
        stopping=stopping,
        validator=Validator(database, settings),
        remover=Remover(database, artifacts, settings, tenant_removal.proceed_all),
        openid_provider=OpenIdProvider(settings) if settings.oidc_issuer else None,
    )


def _list_checks(
    settings: Settings, database: Database, artifacts: ArtifactStore, dispatcher: Dispatcher
) -> dict[str, Callable[[], None]]:
    """List the checks of everything that the service needs besides its disks."""
    return {
        "database": database.check_certificate,
        "artifact_store": artifacts.check,
        "record_store": RecordStore(settings).check,
        "broker": dispatcher.check,
        "clock": partial(check_clock, database),
        "workers": partial(check_workers, database, time.monotonic()),
    }
