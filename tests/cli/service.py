"""`datalens serve` as a real process on a free port."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from deployments.fork_servers import start_program
from ports import free_port

PATIENCE = 240.0
DATALENS = [sys.executable, "-m", "datalens_service.cli"]


class RunningService:
    """Starts the service and waits until it has said where it is."""

    def __init__(self, data_dir: Path, options: tuple[str, ...] = (), umask: int = 0o022) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        self.log = data_dir.parent / f"serve-{self.port}.log"
        said, ours = os.pipe()
        self._said_to = os.fdopen(said, "rb")
        command = [DATALENS[-1], "serve", "--port", str(self.port), "--data-dir", str(data_dir), "--json", *options]
        before = os.umask(umask)
        with self.log.open("ab") as log, os.fdopen(ours, "wb"):
            self.process = start_program(command, os.environ, ours, log.fileno(), data_dir.parent)
        os.umask(before)
        self.said = self._said()

    @property
    def url(self) -> str:
        url: str = self.said["url"]
        return url

    @property
    def api_key(self) -> str:
        return (self.data_dir / "api-key").read_text().strip()

    @property
    def access(self) -> tuple[str, ...]:
        """Options that lead a command to this service."""
        return ("--url", self.url, "--api-key", self.api_key)

    def children(self) -> list[int]:
        """Process ids of everything below the service, job processes too."""
        return [process.pid for process in psutil.Process(self.process.pid).children(recursive=True)]

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it, as Ctrl-C does; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self._said_to.close()
        return code

    def _said(self) -> dict[str, Any]:
        """The one JSON object on its stdout."""
        lines: list[str] = []
        for line in self._said_to:
            lines.append(line.decode())
            if lines[-1].rstrip() == "}":
                said: dict[str, Any] = json.loads("".join(lines))
                return said
        raise AssertionError(f"serve ended early: {self.log.read_text()}")


def random_numbers_of(test: str) -> np.random.Generator:
    """Draw numbers that no other test draws: the shared service recognises records, which have one budget for good.

    All bytes of the test's name are the seed. Numbers counted up would meet the seeds of other tests, and a seed
    `[17, 0]` is the seed `17`.
    """
    return np.random.default_rng(list(test.encode()))


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """`datalens serve`, as a person starts it."""
    running = RunningService(tmp_path_factory.mktemp("service") / "data")
    yield running
    running.stop()
