"""A deployment per test, and a real Redis where its binary is installed."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from datalens_service.store.database import Database
from deployments.deployment import Deployment
from deployments.redis import Redis, redis_is_installed


@pytest.fixture
def local(sqlite_database: Database, tmp_path: Path) -> Iterator[Deployment]:
    """On SQLite, without a broker."""
    deployment = Deployment(sqlite_database, tmp_path)
    yield deployment
    deployment.close()


@pytest.fixture(scope="session")
def redis_port(do_without: Callable[[str], NoReturn]) -> Iterator[int]:
    """Port of a Redis server of our own."""
    if not redis_is_installed():
        do_without("redis-server is not installed")
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(Path(folder), password="")
        server.serve()
        yield server.port
        server.kill()
