"""A service within the process of a test, on a port of its own. It has no worker: the test may be one."""

import threading
import time
from collections.abc import Callable
from typing import Final

import uvicorn

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings
from datalens_service.cli.api_server import BoundedProtocol
from datalens_service.store.access import keys

PATIENCE: Final = 120.0


class InProcessService:
    """A running server and a key for it."""

    def __init__(self, settings: Settings) -> None:
        app = create_app(settings)
        self._server = uvicorn.Server(
            uvicorn.Config(app, port=0, log_level="warning", lifespan="on", http=BoundedProtocol)
        )
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]
        self.services: Services = app.state.services
        self.api_key = keys.create(self.services.database, "test")[1]

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def wait_until(condition: Callable[[], object]) -> None:
    """Until it is true, or too late."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)
