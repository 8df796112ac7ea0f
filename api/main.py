"""The REST service: `uvicorn api.main:create_app --factory`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio.to_thread
from fastapi import FastAPI

from api import examples, intake, openapi, problems, uploads
from api.deps import Services
from api.dispatch import dispatcher_for
from api.middleware import BodyLimit, RequestLog
from api.routes import datasets, downloads, health, jobs, plans
from api.routes import problems as problem_types
from api.synthetic import SyntheticFiles
from datalens_service import logs
from datalens_service.settings import Settings
from datalens_service.store.artifacts import ArtifactStore
from datalens_service.store.startup import start

_ROUTES = (datasets, plans, jobs, downloads, health, problem_types)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; nothing is opened before it starts.

    Args:
        settings: Of the deployment; by default from the environment.
    """
    settings = settings or Settings()
    logs.configure(settings.log_level)
    app = _Application(title=openapi.TITLE, version=version("datalens-service"), lifespan=_lifespan)
    app.state.settings = settings
    for module in _ROUTES:
        app.include_router(module.router)
    problems.install(app)
    app.add_middleware(BodyLimit, upload_bytes=settings.max_upload_bytes)
    app.add_middleware(RequestLog)
    return app


class _Application(FastAPI):
    """FastAPI with our description."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = openapi.describe(self, examples.ANSWERS)
        return self.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    opened = await anyio.to_thread.run_sync(_open, app.state.settings)
    app.state.services = opened
    try:
        yield
    finally:
        await anyio.to_thread.run_sync(opened.dispatcher.stop)
        opened.database.dispose()


def _open(settings: Settings) -> Services:
    """Migrate and audit the database, remove what a crash left, and get everything else ready."""
    database = start(settings)
    artifacts = ArtifactStore(database, settings.data_dir)
    uploads.remove_leftovers(settings.data_dir)
    intake.remove_leftovers(database, artifacts, settings.data_dir)
    return Services(
        settings=settings,
        database=database,
        artifacts=artifacts,
        dispatcher=dispatcher_for(settings),
        synthetic=SyntheticFiles(artifacts, settings.data_dir),
    )
