"""Detectors on whole jobs: what leaves one, what stays on the disk, and how finely it can be watched."""

import math
import time
from dataclasses import replace
from typing import Any, Final
from unittest import mock

import numpy as np
import pytest

from datalens_service.base.progress import Phase
from datalens_service.data.dataset import Dataset, Split
from datalens_service.jobs import execute, job_watch
from datalens_service.mechanisms import Mechanism
from datalens_service.services import pricing
from datalens_service.spec import TrainingSpec
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import events, leases
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import MOMENTS, QUICK, Deployment, lamps
from worlds import freeze

from .alarm import expect
from .detect_ledger import deployment

FINEST_SECONDS = 10.0
"""Whoever looks at a job all the time sees its progress no more often (docs/privacy.md, "Times")."""
MEASURED = {
    **MOMENTS,
    "evaluation": {"epochs": 1, "synthetic_images": 60, "seeds": 1, "fidelity": ["random"], "reference": "training"},
}

Left = dict[str, bytes]
_UNITS: Final = 198


def what_leaves_a_job_follows_from_noisy_sums(_rng: np.random.Generator) -> None:
    """R4, R27: over other records and the same noisy sums, files that may be passed on are equal byte by byte."""
    one, other = (_left_behind(MEASURED, dataset) for dataset in worlds())
    expect(one.keys() == other.keys(), "which files may be passed on depends on no record")
    for name, content in one.items():
        expect(content == other[name], f"{name} follows from noisy sums and public values")


def worlds() -> tuple[Dataset, Dataset]:
    """Private records all differ, also in brightness, classes, repetitions, and in how many each unit has.

    Test images are public, and the same; so is the number of units.
    """
    public = lamps(seed=9)
    grouped = {"unit": "patient", "records_per_unit": 3, "classes_per_unit": 2, "num_units": _UNITS}
    schema = public.schema.model_copy(update={"test_is_public": True, **grouped})
    dark = lamps(seed=1).train
    bright = Split(np.repeat(255 - lamps(seed=2).train.images[:100], 4, axis=0), np.arange(400) % 7 // 6)
    assert public.test is not None
    splits = [
        replace(split.take(np.arange(sum(sizes))), units=np.repeat(np.arange(_UNITS), sizes))
        for split, sizes in ((dark, [3, 1, 2] * (_UNITS // 3)), (bright, [1] * (_UNITS - 1) + [3]))
    ]
    return tuple(Dataset(schema, train, public.test, b"k" * 32) for train in splits)  # type: ignore[return-value]


def a_job_that_failed_leaves_no_private_file(_rng: np.random.Generator) -> None:
    """S3: records, checkpoints and teachers on a disk end with their job, however it ends."""
    broken = mock.patch.object(execute, "run", side_effect=RuntimeError("of a test"))
    with deployment() as local, broken, mock.patch.object(execute, "log"):
        job = local.submit(QUICK, local.upload(lamps()))
        ended = _execute(local, job.id)
        expect(ended.state is JobState.FAILED, "a job whose work raises has failed")
        expect(local.private_folders() == [], "a failed job leaves no private file")


def progress_is_published_coarsely(_rng: np.random.Generator) -> None:
    """S3: within a phase, steps on private records cannot be timed by whoever looks all the time."""
    moments: list[float] = []
    with deployment() as local:
        lease = local.claim(local.submit(QUICK, local.upload(lamps())))
        clock = mock.Mock(wraps=time)
        with mock.patch.object(job_watch, "time", clock):
            watch = job_watch.JobWatch(local.database, mock.Mock(), lease)
            began = time.monotonic()
            for second in range(60):
                clock.monotonic.side_effect = lambda second=second: began + second
                watch._reached = (Phase.TRAINING, second, 100)
                with mock.patch.object(watch, "_publish", lambda second=second: moments.append(second)):
                    watch._look()
    apart = np.diff([0.0, *moments])
    expect(len(moments) > 2, "progress is published")
    expect(apart.min() >= FINEST_SECONDS, "progress is published no more often than stated")


def _left_behind(request: dict[str, Any], dataset: Dataset) -> Left:
    """Files of a job that anybody may have, and its events, in a world of its own."""
    draw = Mechanism._charge_and_draw

    def same(self: Mechanism[Any, Any], *arguments: Any) -> Any:
        exact = draw(self, *arguments)
        return np.rint(np.random.default_rng(3).normal(0, self.noise_stddev, exact.shape)).astype(np.int64)

    with pytest.MonkeyPatch.context() as patch, deployment() as local:
        freeze(patch)
        patch.setattr(Mechanism, "_charge_and_draw", same)
        # How far a job is between two phases is told by a clock that nobody stops.
        patch.setattr(job_watch, "PROGRESS_SECONDS", math.inf)
        stored = local.upload(dataset)
        priced = pricing.price_request(
            local.database, stored.tenant_id, stored.id, TrainingSpec.model_validate(request)
        )
        job = local.submit(request, stored)
        ended = _execute(local, job.id)
        expect(ended.state is JobState.SUCCEEDED, f"a job that is compared succeeds: {ended.error}")
        store = ArtifactStore(local.database, local.folder)
        left = {file.name: file.path.read_bytes() for file in store.list_artifacts(job.id) if file.releasable}
        told = events.list_milestones(local.database, job.id)
        plan = (priced.price, priced.plan, priced.account)
        return left | {"events": repr(told).encode(), "plan": repr(plan).encode()}


def _execute(local: Deployment, job_id: str) -> Any:
    lease = leases.claim(local.database, job_id, "test", 600)
    assert lease is not None
    return execute.execute(local.database, ArtifactStore(local.database, local.folder), local.settings, lease)
