"""Three replicas start at once on an empty database: how many owner keys are there, and who can read one in a log?"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.store.access import keys
from datalens_service.store.database import Database
from deployments.postgresql import Cluster, postgresql_binaries, roomy_memory
from ports import free_port

REPLICAS = 3
_PATIENCE = 180.0


def show() -> dict[str, Any]:
    """Keys in the database, logs that name one, and what the key in the data folder opens."""
    with _empty_database() as url, tempfile.TemporaryDirectory(prefix="dlops") as name:
        folder, ports = Path(name), [free_port() for _ in range(REPLICAS)]
        replicas = [_start(folder, url, port) for port in ports]
        try:
            for port in ports:
                _wait_until_alive(port)
            return _described(folder, url, ports)
        finally:
            for replica in replicas:
                replica.terminate()
            for replica in replicas:
                replica.wait()


def _described(folder: Path, url: str, ports: list[int]) -> dict[str, Any]:
    database = Database(url)
    made = len(keys.list_keys(database))
    database.dispose()
    secret = (folder / "data" / "api-key").read_text().strip()
    logs = [path.read_text() for path in folder.glob("*.log")]
    headers = {"Authorization": f"Bearer {secret}"}
    answers = [
        httpx2.get(f"http://127.0.0.1:{port}/v1/jobs", headers=headers, timeout=_PATIENCE).status_code for port in ports
    ]
    named = sum("dlk_" in log for log in logs)
    return {
        "replicas": len(ports),
        "keys": made,
        "logs_with_a_key": named,
        "answers_to_the_key": answers,
        "kept": made == 1 and named == 0 and answers == [200] * len(ports),
    }


def _start(folder: Path, url: str, port: int) -> subprocess.Popen[bytes]:
    settings = {
        "DATALENS_DATA_DIR": str(folder / "data"),
        "DATALENS_DATABASE_URL": url,
        "DATALENS_EXECUTOR": "celery",
        # Nobody is there: starting does not need it.
        "DATALENS_BROKER_URL": "redis://127.0.0.1:1/0",
    }
    with (folder / f"{port}.log").open("wb") as log:
        command = [sys.executable, "-m", "datalens_service.cli", "serve", "--port", str(port)]
        return subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)


def _wait_until_alive(port: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with suppress(httpx2.HTTPError):
            if httpx2.get(f"http://127.0.0.1:{port}/livez").status_code == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("a replica did not start")


@contextmanager
def _empty_database() -> Iterator[str]:
    binaries = postgresql_binaries()
    if binaries is None:
        raise FileNotFoundError("PostgreSQL is not installed")
    # Not the folder of the logs: the path of a Unix socket must stay below 108 bytes.
    with tempfile.TemporaryDirectory(prefix="dlpg", dir=roomy_memory()) as sockets:
        cluster = Cluster(binaries, Path(sockets))
        cluster.start()
        try:
            yield cluster.new_database()
        finally:
            cluster.stop()
