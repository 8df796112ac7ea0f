"""How long do requests wait when 50 clients send them at once? `python -m benchmarks.service`.

One API process on SQLite; each client sends its requests one after another over a connection of its own. Any other
answer than the expected success is an error. Prints JSON: p50 and p95 in milliseconds, errors, requests per second,
and processor time of the server for each: in milliseconds, and as a multiple of what an application of FastAPI with one
empty endpoint takes on the same machine. Then how long it takes to confirm an upload, and processor seconds of two
commands, whose modules are compiled already.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
from fastapi import FastAPI

from benchmarks.environment import provenance
from benchmarks.kept_results import print_result
from datalens_service.adapters.startup import start
from datalens_service.base.settings import Settings
from datalens_service.client import Client
from datalens_service.store.access import keys
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState

_SPEC = {"method": {"name": "moments"}, "epsilon": 0.1}
_TIMEOUT_SECONDS = 120
_API = "datalens_service.api.main:create_app"
_COMMAND_RUNS = 3


class Request(NamedTuple):
    """One request, and the status of its success."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    expected: int = 200


class Load(NamedTuple):
    """How many clients send how many requests of each kind.

    Attributes:
        processor_seconds: Least time that the server takes for each kind; clients begin anew until then. The kernel
            counts in ticks of ten milliseconds, so a second is known to 1 %.
        images: In the upload that is confirmed.
    """

    clients: int
    requests: int
    processor_seconds: float
    images: int


class Server(NamedTuple):
    """The address of an API process, and its id."""

    address: str
    pid: int

    def read_processor_seconds(self) -> float:
        """Processor time that it has taken so far, all of its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Answer(NamedTuple):
    """How long an answer took, and whether it was the expected one."""

    seconds: float
    expected: bool


def build_bare_app() -> FastAPI:
    """Return the application whose processor time is the unit of all others."""
    app = FastAPI()

    @app.get("/")
    async def read_nothing() -> dict[str, str]:
        return {"status": "ok"}

    return app


def measure(folder: Path, load: Load) -> dict[str, Any]:
    """All figures; `folder` takes data and log."""
    empty = Request("GET", "/")
    with serve({}, folder / "bare log", "benchmarks.service:build_bare_app") as server:
        # A machine that others use becomes faster and slower: the unit is from before and after the rest.
        before = drive(server, "none", empty, load)
        answers = measure_service(folder, load)
        after = drive(server, "none", empty, load)
    unit = statistics.mean((before["processor_ms"], after["processor_ms"]))
    answers = {"bare": before, **answers, "bare_again": after}
    for answer in answers.values():
        if "processor_ms" in answer:
            answer["multiple"] = round(answer["processor_ms"] / unit, 1)
    return {**answers, "command_processor_seconds": measure_commands(folder)}


def time_confirmation(server: Server, key: str, path: Path) -> dict[str, float]:
    """How long the confirmation of an upload takes, which ties all of its images to a new budget."""
    with Client(server.address, key) as client:
        dataset_id = client.upload_dataset(path, epsilon=10.0).id
        started, before = time.perf_counter(), server.read_processor_seconds()
        client.confirm_dataset(dataset_id)
        seconds, processor = time.perf_counter() - started, server.read_processor_seconds() - before
    return {"seconds": round(seconds, 2), "processor_seconds": round(processor, 2)}


def measure_commands(folder: Path) -> dict[str, float]:
    """Return processor seconds of each command, the least of some runs."""
    upload = str(write_dataset(folder))
    plan = ["plan", "--data", upload, "--preset", "fast", "--epsilon", "1"]
    compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    return {name: _measure_command(words, compiled) for name, words in {"--help": ["--help"], "plan": plan}.items()}


def _measure_command(words: Sequence[str], environment: dict[str, str]) -> float:
    seconds = []
    # The first run compiles.
    for _ in range(1 + _COMMAND_RUNS):
        before = _read_children_seconds()
        command = [sys.executable, "-m", "datalens_service.cli", *words]
        subprocess.run(command, env=os.environ | environment, stdout=subprocess.DEVNULL, check=True)
        seconds.append(_read_children_seconds() - before)
    return round(min(seconds), 2)


def _read_children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_service(folder: Path, load: Load) -> dict[str, dict[str, float]]:
    """Figures of each kind of request."""
    settings = Settings(data_dir=folder / "data")
    database = start(settings)
    key = keys.create(database, "benchmark")[1]
    # One key sends all of them, in a few minutes.
    environment = {"DATALENS_DATA_DIR": str(settings.data_dir), "DATALENS_REQUESTS_PER_MINUTE": "1000000"}
    with serve(environment, folder / "log") as server:
        requests = _requests(server.address, key, database, settings)
        figures = {name: drive(server, key, request, load) for name, request in requests.items()}
        return {**figures, "confirm": time_confirmation(server, key, write_images(folder, load.images))}


@contextmanager
def serve(environment: dict[str, str], log: Path, app: str = _API) -> Generator[Server]:
    """Run an application, by default the API, in a process of its own, until the block is left."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--factory", "--port", str(port), "--no-access-log", "--log-level", "warning"]
    command = [sys.executable, "-m", "uvicorn", app, *options]
    with log.open("wb") as output, subprocess.Popen(command, env=os.environ | environment, stderr=output) as process:
        try:
            _wait_for(port, process)
            yield Server(f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()


def drive(server: Server, key: str, request: Request, load: Load) -> dict[str, float]:
    """Send one request from many clients at once, many times from each.

    Returns:
        p50 and p95 of the time to an answer, errors, answers per second, and processor time of the server for each.
    """
    started, before = time.perf_counter(), server.read_processor_seconds()
    answers = list[Answer]()
    while not answers or server.read_processor_seconds() - before < load.processor_seconds:
        answers += asyncio.run(_drive(server.address, key, request, load.clients, load.requests))
    seconds, processor = time.perf_counter() - started, server.read_processor_seconds() - before
    cuts = statistics.quantiles([answer.seconds for answer in answers], n=20)
    return {
        "p50_ms": round(1000 * cuts[9]),
        "p95_ms": round(1000 * cuts[18]),
        "errors": sum(not answer.expected for answer in answers),
        "requests_per_second": round(len(answers) / seconds),
        "processor_ms": round(1000 * processor / len(answers), 2),
    }


async def _drive(address: str, key: str, request: Request, clients: int, requests: int) -> list[Answer]:
    limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=clients)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=address, headers=headers, limits=limits, timeout=_TIMEOUT_SECONDS) as client:
        series = await asyncio.gather(*(_send(client, request, requests) for _ in range(clients)))
    return [answer for answers in series for answer in answers]


async def _send(client: httpx2.AsyncClient, request: Request, times: int) -> list[Answer]:
    answers = []
    for _ in range(times):
        started = time.perf_counter()
        try:
            status = (await client.request(request.method, request.path, json=request.body)).status_code
        except httpx2.TransportError:
            status = 0
        answers.append(Answer(time.perf_counter() - started, status == request.expected))
    return answers


def _requests(address: str, key: str, database: Database, settings: Settings) -> dict[str, Request]:
    """One of each kind, about a data set, a job that has succeeded and one that waits; submissions fill the list."""
    with Client(address, key) as client:
        dataset_id = client.upload_dataset(write_dataset(settings.data_dir), epsilon=100.0, confirm_classes=True).id
        job_id = client.submit(dataset_id, _SPEC, accept_low_utility=True).id
        waiting_id = client.submit(dataset_id, _SPEC, accept_low_utility=True).id
    body = {"dataset_id": dataset_id, "spec": _SPEC, "accept_low_utility": True}
    _finish(database, settings, job_id)
    return {
        "livez": Request("GET", "/livez"),
        "submit": Request("POST", "/v1/jobs", body, 202),
        "status": Request("GET", f"/v1/jobs/{job_id}"),
        "poll": Request("GET", f"/v1/jobs/{waiting_id}"),
        "list": Request("GET", "/v1/jobs?limit=20"),
        "datasets": Request("GET", "/v1/datasets"),
        "plan": Request("POST", "/v1/plans", body),
        "download": Request("GET", f"/v1/jobs/{job_id}/artifacts/card.json"),
    }


def write_dataset(folder: Path) -> Path:
    """200 small images of four classes."""
    rng = np.random.default_rng(0)
    path = folder / "benchmark.npz"
    np.savez(path, images=rng.integers(0, 256, (200, 8, 8), dtype=np.uint8), labels=np.arange(200) % 4)
    return path


def write_images(folder: Path, images: int) -> Path:
    """Images of 28×28 of ten classes."""
    rng = np.random.default_rng(1)
    path = folder / "many.npz"
    np.savez(path, images=rng.integers(0, 256, (images, 28, 28), dtype=np.uint8), labels=np.arange(images) % 10)
    return path


def _finish(database: Database, settings: Settings, job_id: str) -> None:
    """Give a job a file of 4 KiB to download, and success."""
    lease = leases.claim(database, job_id, "benchmark", 600)
    if lease is None:
        raise RuntimeError("somebody else runs the job")
    card = settings.data_dir / "card.json"
    card.write_text(json.dumps({"method": "moments", "notes": "x" * 4096}))
    files = ArtifactStore(database, settings.data_dir)
    files.put(lease, "card.json", card, releasable=True, media_type="application/json")
    leases.finish(database, lease, JobState.SUCCEEDED)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=40, help="of each kind, by each client, at least")
    parser.add_argument("--seconds", type=float, default=1.0, help="of the server's processor for each kind, at least")
    parser.add_argument("--images", type=int, default=66_000, help="in the upload that is confirmed")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dlbench") as folder:
        measured = measure(Path(folder), Load(*vars(given).values()))
    report = {**provenance(), "load_average": os.getloadavg()[0], "clients": given.clients, **measured}
    print_result(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
