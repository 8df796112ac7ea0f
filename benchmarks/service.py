"""How fast is the service beside the least that could be in its place? `python -m benchmarks.service`.

Everything is measured in the same run on the same machine, each server one process, on SQLite with the same
durability: submit and status at 100 concurrent clients against a handler that does nothing but write and read a
row; submit (`submit_to_row`), pages of jobs, plans and small files also against the one that reads a row; downloads
against static files; the memory of the API while a large upload is received, read and registered. An answer that is not
the expected success ends the run. Prints JSON.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np

from benchmarks.environment import provenance
from benchmarks.http_load import Request, Running, drive, serve, transferred, uploaded
from benchmarks.kept_results import print_result
from benchmarks.large_dataset import write_dataset
from datalens_service.client import Client
from datalens_service.services.startup import start
from datalens_service.settings import Settings
from datalens_service.store.access import keys
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState

MEBIBYTE = 2**20
GOALS = {"submit": 0.5, "status": 0.5, "list": 0.5, "plan": 0.5, "small_download": 0.5, "download": 0.7}
_FLAT = 64 * MEBIBYTE
_SPEC = {"method": {"name": "moments"}, "epsilon": 0.1}


@dataclass(frozen=True)
class Size:
    """How much is asked of the servers."""

    clients: int
    requests: int
    rounds: int
    download_bytes: int
    downloads: int
    upload_bytes: int


FULL = Size(100, 1000, 3, 64 * MEBIBYTE, 10, 2048 * MEBIBYTE)
REDUCED = Size(4, 20, 1, MEBIBYTE, 2, 4 * MEBIBYTE)


class Ours:
    """The service with a key, a data set, and a job that has succeeded."""

    def __init__(self, settings: Settings, server: Running, database: Database) -> None:
        self.server = server
        self._key = keys.create(database, "benchmark")[1]
        self._dataset_id = self._upload(settings.data_dir)
        self._database, self._settings = database, settings

    def submits(self, count: int) -> list[Request]:
        body = json.dumps({"dataset_id": self._dataset_id, "spec": _SPEC}).encode()
        return [Request("POST", "/v1/jobs", {**self._headers(), "Content-Type": "application/json"}, body)] * count

    def reads(self, count: int) -> list[Request]:
        [job] = jobs.list_jobs(self._database, limit=1).items
        return [Request("GET", f"/v1/jobs/{job.id}", self._headers())] * count

    def lists(self, count: int, limit: int = 20) -> list[Request]:
        return [Request("GET", f"/v1/jobs?limit={limit}", self._headers())] * count

    def plans(self, count: int) -> list[Request]:
        body = json.dumps({"dataset_id": self._dataset_id, "spec": _SPEC}).encode()
        return [Request("POST", "/v1/plans", {**self._headers(), "Content-Type": "application/json"}, body)] * count

    def small_downloads(self, count: int) -> list[Request]:
        """The card of the job that has succeeded."""
        page = jobs.list_jobs(self._database, limit=1, state=JobState.SUCCEEDED)
        return [Request("GET", f"/v1/jobs/{page.items[0].id}/artifacts/card.json", self._headers())] * count

    def download(self, content: Path) -> Request:
        """The generator of a succeeded job, which is `content` here."""
        [job] = jobs.list_jobs(self._database, limit=1).items
        lease = leases.claim(self._database, job.id, "benchmark", 600)
        if lease is None:
            raise RuntimeError("somebody else runs the job")
        files = ArtifactStore(self._database, self._settings.data_dir)
        files.put(lease, "generator.safetensors", content, releasable=True, media_type="application/octet-stream")
        card = content.with_name("card.json")
        card.write_text(json.dumps({"method": "moments", "notes": "x" * 4096}))
        files.put(lease, "card.json", card, releasable=True, media_type="application/json")
        leases.finish(self._database, lease, JobState.SUCCEEDED)
        return Request("GET", f"/v1/jobs/{job.id}/generator", self._headers())

    def upload(self) -> Request:
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        return Request("POST", "/v1/datasets", {**self._headers(), **kind})

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"}

    def _upload(self, folder: Path) -> str:
        rng = np.random.default_rng(0)
        path = folder / "benchmark.npz"
        np.savez(path, images=rng.integers(0, 256, (200, 8, 8), dtype=np.uint8), labels=np.arange(200) % 4)
        with Client(f"http://127.0.0.1:{self.server.port}", self._key) as client:
            return client.upload_dataset(path, epsilon=100.0, confirm_classes=True).id


class Plain:
    """The same questions to the plain handler."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self._body = json.dumps({"dataset_id": "ds_0", "spec": _SPEC}).encode()

    def submits(self, count: int) -> list[Request]:
        return [Request("POST", "/jobs", {"Content-Type": "application/json"}, self._body)] * count

    def reads(self, count: int) -> list[Request]:
        kind = {"Content-Type": "application/json"}
        reply = httpx2.post(f"http://127.0.0.1:{self.server.port}/jobs", content=self._body, headers=kind)
        return [Request("GET", f"/jobs/{reply.json()['id']}")] * count


class Side(NamedTuple):
    """Requests to one of the two servers, and the status of their answers."""

    server: Running
    requests: Callable[[int], Sequence[Request]]
    expected: int

    def driven(self, size: Size) -> dict[str, Any]:
        return drive(self.server, size.clients, self.requests(size.requests), self.expected)


def measure(folder: Path, size: Size) -> dict[str, Any]:
    """All figures; `folder` takes data, logs and the files that are served."""
    data, static = folder / "data", folder / "static"
    static.mkdir()
    settings = Settings(data_dir=data)
    database = start(settings)
    # One key sends all of them, in a few minutes.
    environment = {"DATALENS_DATA_DIR": str(data), "DATALENS_REQUESTS_PER_MINUTE": "1000000"}
    plain_environment = {"PLAIN_DATABASE": str(folder / "plain.db"), "PLAIN_FILES": str(static)}
    with (
        serve("api.main:create_app", environment, folder / "ours.log") as server,
        serve("benchmarks.plain_service:create_app", plain_environment, folder / "plain.log") as other,
    ):
        ours, plain = Ours(settings, server, database), Plain(other)
        row = Side(other, plain.reads, 200)
        return {
            "submit": _compared(Side(server, ours.submits, 202), Side(other, plain.submits, 201), size),
            "submit_to_row": _compared(Side(server, ours.submits, 202), row, size),
            "status": _compared(Side(server, ours.reads, 200), row, size),
            "list": _compared(Side(server, ours.lists, 200), row, size),
            "list_of_one": _compared(Side(server, functools.partial(ours.lists, limit=1), 200), row, size),
            "plan": _compared(Side(server, ours.plans, 200), row, size),
            "download": _downloads(ours, plain, static, size),
            "small_download": _compared(Side(server, ours.small_downloads, 200), row, size),
            "upload": _upload_memory(ours, folder, size.upload_bytes),
        }


def _compared(ours: Side, plain: Side, size: Size) -> dict[str, Any]:
    """Both in turns, so that whatever else the machine does hits both."""
    rounds = [tuple(side.driven(size) for side in (ours, plain)) for _ in range(size.rounds)]
    best = [max(side, key=lambda one: float(one["requests_per_second"])) for side in zip(*rounds, strict=True)]
    ratios = [one["requests_per_second"] / other["requests_per_second"] for one, other in rounds]
    return {
        "clients": size.clients,
        "service": best[0],
        "plain": best[1],
        "ratio": round(statistics.median(ratios), 2),
    }


def _downloads(ours: Ours, plain: Plain, static: Path, size: Size) -> dict[str, Any]:
    content = static / "file"
    content.write_bytes(os.urandom(size.download_bytes))
    from_ours, from_plain = ours.download(content), Request("GET", "/files/file")
    rounds = [
        (transferred(ours.server, from_ours, size.downloads), transferred(plain.server, from_plain, size.downloads))
        for _ in range(size.rounds)
    ]
    service, static_rate = (max(side) for side in zip(*rounds, strict=True))
    return {
        "service_mib_per_second": round(service),
        "static_mib_per_second": round(static_rate),
        "ratio": round(statistics.median(one / other for one, other in rounds), 2),
    }


def _upload_memory(ours: Ours, folder: Path, length: int) -> dict[str, Any]:
    """Memory of the API from the first byte of a dataset until it is registered."""
    content = folder / "upload.npz"
    write_dataset(content, length)
    head = b'--x\r\nContent-Disposition: form-data; name="epsilon"\r\n\r\n1\r\n'
    head += b'--x\r\nContent-Disposition: form-data; name="confirm_classes"\r\n\r\ntrue\r\n'
    head += b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    tail = b"\r\n--x--\r\n"
    total = len(head) + content.stat().st_size + len(tail)
    samples = uploaded(ours.server, ours.upload(), _pieces(head, content, tail), total, 201)
    growth = max(samples) - samples[0]
    return {
        "mib": total // MEBIBYTE,
        "memory_mib_before": samples[0] // MEBIBYTE,
        "memory_mib_most": max(samples) // MEBIBYTE,
        "flat": growth <= _FLAT,
    }


def _pieces(head: bytes, content: Path, tail: bytes) -> Iterator[bytes]:
    yield head
    with content.open("rb") as file:
        while piece := file.read(MEBIBYTE):
            yield piece
    yield tail


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reduced", action="store_true", help="a few requests of everything, to see that it runs")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dlbench") as folder:
        measurements = measure(Path(folder), REDUCED if given.reduced else FULL)
    goals = {name: measurements[name]["ratio"] >= goal for name, goal in GOALS.items()} | {
        "upload": measurements["upload"]["flat"]
    }
    report = {**provenance(), "load_average": os.getloadavg()[0], **measurements, "goals_met": goals}
    print_result(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
