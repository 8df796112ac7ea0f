"""The documented commands, typed where somebody has folders of his own with the names of ours."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import pytest

from datalens_service.client import Client
from deployments.deployment import PATIENCE, QUICK, lamps
from deployments.redis import Redis
from deployments.stack import SECRET
from ports import free_port

CELERY = ("-A", "datalens_service.workers.app", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle")
"""As docs/deploy.md has it."""


class Shell:
    """Runs programs of an installation in a folder.

    Args:
        environment: Of the installation.
        folder: Where they are typed.
        variables: Settings.
    """

    def __init__(self, environment: Path, folder: Path, **variables: str) -> None:
        self._programs = environment / "bin"
        self._folder = folder
        self.log = folder.parent / "log.txt"
        path = f"{self._programs}{os.pathsep}{os.environ['PATH']}"
        self.variables = {"PATH": path, "HOME": str(folder.parent), "OMP_NUM_THREADS": "1", "DATALENS_DEVICE": "cpu"}
        self.variables |= {"DATALENS_DATA_DIR": str(folder.parent / "data"), **variables}

    def run(self, program: str, *arguments: object) -> str:
        """Return what it says on standard output."""
        command = [self._programs / program, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self._folder, env=self.variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def running(self, program: str, *arguments: object) -> Iterator[None]:
        """Meanwhile the program runs."""
        command = [self._programs / program, *map(str, arguments)]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, cwd=self._folder, env=self.variables, stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, self.log.read_text()
        finally:
            process.terminate()
            process.wait(PATIENCE)


def write_records(path: Path) -> Path:
    dataset = lamps()
    assert dataset.test is not None
    splits = {"train": dataset.train, "test": dataset.test}
    kinds = ("images", "labels")
    np.savez(path, **{f"{name}_{kind}": getattr(split, kind) for name, split in splits.items() for kind in kinds})
    return path


def do_job(url: str, key: str, records: Path) -> str:
    """Upload, submit, wait; how the job ended."""
    with Client(url, key, timeout=PATIENCE) as client:
        dataset = client.upload_dataset(records, epsilon=4.0, name="lamps", class_names=("bright", "dark"))
        return str(client.submit(dataset.id, QUICK, accept_low_utility=True).wait().state)


def wait_for(url: str, shell: Shell) -> None:
    """Until the service answers."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            assert httpx2.get(f"{url}/readyz", timeout=PATIENCE).status_code == 200
        except (AssertionError, httpx2.HTTPError):
            assert time.monotonic() < until, shell.log.read_text()
            time.sleep(0.1)
        else:
            return


def test_programs_that_end(environment: Path, foreign: Path, tmp_path: Path) -> None:
    shell = Shell(environment, foreign)
    assert "individual-epsilon" in shell.run("datalens", "--help")
    where = shell.run("python", "-c", "import datalens_service.api as api; print(api.__file__)")
    assert where.startswith(str(environment))
    (tmp_path / "data").mkdir(mode=0o700)
    shell.run("python", "-m", "datalens_service.migrations")
    records = write_records(tmp_path / "lamps.npz")
    asked = ("--epsilon", 2, "--method", "moments", "--confirm-classes", "--no-evaluation")
    said = json.loads(shell.run("datalens", "train", "--data", records, *asked, "--out", tmp_path / "out", "--json"))
    assert (tmp_path / "out" / "card.json").exists(), said


def test_the_service_with_its_supervisor(environment: Path, foreign: Path, tmp_path: Path) -> None:
    shell, port = Shell(environment, foreign), free_port()
    with shell.running("datalens", "serve", "--port", port):
        wait_for(f"http://127.0.0.1:{port}", shell)
        key = (tmp_path / "data" / "api-key").read_text().strip()
        assert do_job(f"http://127.0.0.1:{port}", key, write_records(tmp_path / "lamps.npz")) == "succeeded"


@pytest.mark.redis
def test_a_server_of_ones_own_and_a_celery_worker(environment: Path, foreign: Path, tmp_path: Path) -> None:
    redis, port = Redis(tmp_path, SECRET), free_port()
    redis.serve()
    shell = Shell(environment, foreign, DATALENS_EXECUTOR="celery", DATALENS_BROKER_URL=redis.url)
    server = ("datalens_service.api.main:create_app", "--factory", "--no-access-log", "--no-proxy-headers")
    try:
        with shell.running("uvicorn", *server, "--port", port), shell.running("celery", *CELERY):
            wait_for(f"http://127.0.0.1:{port}", shell)
            key = json.loads(shell.run("datalens", "keys", "create", "--name", "somebody", "--json"))["api_key"]
            assert do_job(f"http://127.0.0.1:{port}", key, write_records(tmp_path / "lamps.npz")) == "succeeded"
            shell.run("python", "-m", "datalens_service.workers.process.health")
    finally:
        redis.kill()
