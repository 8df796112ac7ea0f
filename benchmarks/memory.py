"""How much memory does a job take, and how much did its plan say? `python -m benchmarks.memory`.

Whole jobs, as a worker does them with all figures, on random images: what these show changes no size. Each is done in a
process of its own, since a process's peak only grows. Prints JSON: GiB planned and at the peak, by job.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from benchmarks.environment import ROOT, make_set, provenance
from benchmarks.kept_results import print_result
from datalens_service.adapters.startup import start
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Dataset
from datalens_service.jobs.execute import execute
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.planning.resources import expect_memory
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.jobs import JobState
from datalens_service.workers import fork_jobs

JOBS: Final = ("28x28x1:2000", "28x28x1:10000", "32x32x3:5000", "64x64x3:3000", "64x64x1:5000")
_TEST_IMAGES: Final = 1000


def random_dataset(shape: tuple[int, int, int], records: int, public: bool = False) -> Dataset:
    """With a test split."""
    data, test = make_set(shape, records, int(public)), make_set(shape, _TEST_IMAGES, 2).train
    return replace(data, schema=data.schema.model_copy(update={"records_are_public": public}), test=test)


def measure(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """One job of this process."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from deployments.deployment import Deployment

    size, _, records = name.partition(":")
    height, width, channels = map(int, size.split("x"))
    shape = (height, width, channels)
    data = random_dataset(shape, int(records))
    fork_jobs.import_all()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), device="cpu")
        local = Deployment(start(settings), Path(folder))
        if "public_data" in request:
            pool = random_dataset(shape, int(records), public=True)
            request = request | {"public_data": local.upload(pool).id}
        spec = RequestedSpec.model_validate({"epsilon": 1.0, **request}).resolve(data.schema)
        lease = local.claim(local.submit(spec.model_dump(mode="json"), local.upload(data)))
        del data
        job = execute(local.database, ArtifactStore(local.database, Path(folder)), settings, lease)
    if job.state != JobState.SUCCEEDED:
        raise RuntimeError(str(job.error))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    planned = expect_memory(spec.method, random_dataset(shape, int(records)).schema) / 2**30
    return {
        "job": name,
        "method": spec.method.name,
        "planned_gib": round(planned, 2),
        "peak_gib": round(peak, 2),
        "seconds": round(time.monotonic() - began),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=(__doc__ or "").splitlines()[0])
    what = "as of POST /v1/jobs, in JSON; whatever public_data names is as many public images"
    parser.add_argument("--spec", type=json.loads, default={"preset": "auto"}, help=what)
    parser.add_argument("--jobs", nargs="+", default=JOBS, help="height x width x channels : records")
    given = parser.parse_args(arguments)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh:
        rows = list(fresh.map(measure, given.jobs, [given.spec] * len(given.jobs)))
    print_result({**provenance(), "load_average": os.getloadavg()[0], "spec": given.spec, "jobs": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
