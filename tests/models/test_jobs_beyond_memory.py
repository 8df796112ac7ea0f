"""A job whose teachers exceed their limit of memory: same images, and no checkpoint as large as they are."""

from pathlib import Path

import numpy as np
import pytest

from datalens_service.checkpoint import Checkpoints
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.errors import JobStopped
from datalens_service.methods import DataLens
from datalens_service.models.teachers import tensor_store
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.run import Observer, run
from datalens_service.spec import TrainingSpec

SCHEMA = Schema(channels=1, height=8, width=8, class_names=("a", "b"), num_units=80)
METHOD = DataLens(num_teachers=8, images_per_step=4, top_k=8, steps=4, teacher_batch=4, teacher_warmup_steps=2, z_dim=4)
SPEC = TrainingSpec(method=METHOD, epsilon=8.0)


def job(account: MemoryAccount, folder: Path, observe: Observer | None = None) -> np.ndarray:
    """Images of the job under one account, with a checkpoint after every step."""
    rng = np.random.default_rng(0)
    records = Split(rng.integers(0, 256, (80, 8, 8, 1)).astype(np.uint8), np.arange(80) % 2)
    dataset = Dataset(SCHEMA, records, None, b"k" * 32)
    checkpoints = Checkpoints(folder / "checkpoint.safetensors", SPEC.digest(), seconds=0.0)
    checkpoints.due = lambda: True  # type: ignore[method-assign]
    return run(SPEC, dataset, account=account, observe=observe, checkpoints=checkpoints).generator.sample(20, seed=1)[0]


def stop_before_the_third(phase: str, step: int, maximum: int) -> None:
    if step == 2:
        raise JobStopped("stopped")


@pytest.mark.parametrize("resumed_free", [0, 2**40], ids=["again on disk", "then in memory"])
def test_a_stopped_job_goes_on_to_the_same_images(resumed_free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The account keeps the noisy sums, so a run that goes on and one that replays them end alike."""
    account = MemoryAccount(SPEC.limit_units(SCHEMA))
    monkeypatch.setattr(tensor_store, "available_bytes", lambda device: 0)
    with pytest.raises(JobStopped):
        job(account, tmp_path, stop_before_the_third)
    file = tmp_path / "checkpoint.safetensors"
    assert file.stat().st_size < 200, "nothing of the teachers"
    monkeypatch.setattr(tensor_store, "available_bytes", lambda device: resumed_free)
    resumed, charges = job(account, tmp_path), list(account.charges)
    assert len(charges) == 4
    file.unlink()
    monkeypatch.setattr(tensor_store, "available_bytes", lambda device: 2**40)
    np.testing.assert_array_equal(resumed, job(account, tmp_path))
    assert account.charges == charges, "replaying costs nothing"
