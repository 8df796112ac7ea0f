"""The REST service: `uvicorn api.main:create_app --factory`."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

import anyio.to_thread
from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from api.deps import Services
from api.http.middleware import BodyLimit, RequestLog
from api.http.static_files import StaticFolder
from api.openapi import document, examples, service_examples
from api.problems import handlers
from api.routes import (
    artifacts,
    classifiers,
    datasets,
    downloads,
    events,
    generators,
    health,
    jobs,
    journals,
    keys,
    metrics,
    pages,
    plans,
    privacy,
    reference,
    releases,
    signing_in,
    signing_key_page,
    signing_keys,
    webhooks,
)
from api.routes import problems as problem_types
from api.routes import uploads as pieces
from api.security.access_logging import AuditTrail
from api.security.rate_limits import RequestLimits
from api.uploads import receiver
from api.uploads.tus import TusHeaders
from datalens_service import logs
from datalens_service.services import ingestion
from datalens_service.services.dispatch import dispatcher_for
from datalens_service.services.predictions import Predictions
from datalens_service.services.startup import start
from datalens_service.services.synthetic_files import SyntheticFiles
from datalens_service.services.validation_queue import Validator
from datalens_service.services.webhook_sender import WebhookSender
from datalens_service.settings import Settings
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.signing_key import signing_key

_ROUTES = (
    pieces,
    datasets,
    privacy,
    plans,
    jobs,
    events,
    downloads,
    artifacts,
    generators,
    classifiers,
    keys,
    webhooks,
    journals,
    signing_keys,
    health,
    metrics,
    problem_types,
    signing_in,
    signing_key_page,
    pages,
    releases,
    reference,
)

_TELEMETRY: Final[TelemetryConfig] = {
    # FastAPI would send messages and stacks of exceptions to OpenTelemetry; a message may quote what was uploaded.
    "logs": False,
    # A signed download address is a secret.
    "exclude": lambda scope: b"signature=" in scope.get("query_string", b""),
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; nothing is opened before it starts.

    Args:
        settings: Of the deployment; by default from the environment.
    """
    settings = settings or Settings()
    logs.configure(settings.log_level)
    app = _Application(
        title=document.TITLE,
        version=version("datalens-service"),
        lifespan=_lifespan,
        telemetry=_TELEMETRY,
        # The framework's own load scripts of a third party; `routes/reference.py` has ours.
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.stopping = threading.Event()
    for module in _ROUTES:
        app.include_router(module.router)
    app.mount("/static", StaticFolder(), name="static")
    handlers.install(app)
    app.add_middleware(BodyLimit, upload_bytes=settings.max_upload_bytes)
    app.add_middleware(TusHeaders)
    app.add_middleware(AuditTrail)
    app.add_middleware(RequestLog)
    return app


class _Application(FastAPI):
    """FastAPI with our description."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = document.describe(self, {**examples.ANSWERS, **service_examples.ANSWERS})
        return self.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services = await anyio.to_thread.run_sync(_open, app.state.settings, app.state.stopping)
    app.state.services = services
    sender = WebhookSender(services.database, services.settings, services.stopping)
    sender.start()
    try:
        yield
    finally:
        services.stopping.set()
        await anyio.to_thread.run_sync(services.validator.stop)
        await anyio.to_thread.run_sync(sender.join)
        await anyio.to_thread.run_sync(services.dispatcher.stop)
        services.database.dispose()


def _open(settings: Settings, stopping: threading.Event) -> Services:
    """Migrate and audit the database, remove what a crash left, and get everything else ready."""
    database = start(settings)
    artifacts = ArtifactStore(database, settings.data_dir, settings.artifact_url)
    key = signing_key(database)
    receiver.remove_leftovers(settings.data_dir)
    ingestion.remove_leftovers(database, artifacts, settings.data_dir)
    predictions = Predictions(settings)
    predictions.remove_leftovers()
    return Services(
        settings=settings,
        database=database,
        artifacts=artifacts,
        dispatcher=dispatcher_for(settings),
        synthetic=SyntheticFiles(artifacts, key, settings.data_dir),
        predictions=predictions,
        signing_key=key.public,
        limits=RequestLimits(settings),
        stopping=stopping,
        validator=Validator(database, settings),
    )
