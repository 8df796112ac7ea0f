"""A deployment per test, and a real Redis where its binary is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from deployment import Deployment

from datalens_service.store.database import Database


@pytest.fixture
def local(sqlite_database: Database, tmp_path: Path) -> Iterator[Deployment]:
    """On SQLite, without a broker."""
    deployment = Deployment(sqlite_database, tmp_path)
    yield deployment
    deployment.close()


@pytest.fixture
def either(database: Database, tmp_path: Path) -> Iterator[Deployment]:
    """On SQLite, then on PostgreSQL."""
    deployment = Deployment(database, tmp_path)
    yield deployment
    deployment.close()


@pytest.fixture(scope="session")
def redis_port(do_without: Callable[[str], NoReturn]) -> Iterator[int]:
    """Port of a Redis server of our own."""
    binary = shutil.which("redis-server")
    if binary is None:
        do_without("redis-server is not installed")
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        _wait_for(port)
        yield port
        server.terminate()
        server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
