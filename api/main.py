"""The REST service: `uvicorn datalens_service.api.main:create_app --factory`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fastapi import FastAPI

    from datalens_service.base.settings import Settings

_APPLICATION: Final = "datalens_service.api.application"


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; nothing is opened before it starts."""
    with _collector_paused():
        from datalens_service.api import application
    return application.create_app(settings)


@contextmanager
def _collector_paused() -> Generator[None]:
    """Modules live until the end: looking for garbage among them takes a seventh of the time to load them."""
    collecting, loaded = gc.isenabled(), _APPLICATION in sys.modules
    gc.disable()
    try:
        yield
        if not loaded:
            gc.freeze()
    finally:
        if collecting:
            gc.enable()
