"""A real Redis where its binary is installed."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from deployments.redis import Redis, redis_is_installed


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
