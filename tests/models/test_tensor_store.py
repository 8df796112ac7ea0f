"""Teachers beyond the limit of memory lie on disk, with the same results, or are refused with a sentence."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from datalens_service.base.checkpoint import Checkpoints
from datalens_service.base.errors import InvalidSpec, JobStopped
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.methods import DataLens
from datalens_service.models.teachers import tensor_store
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import Observer, run

from .builders import ThreePerBlock, gradients, random_batches

ARCHITECTURES = pytest.mark.parametrize("architecture", ["dense", "conv"])
ACTIVE = torch.tensor([True, True, False, True, True, True, True, False])
CPU = torch.device("cpu")


def ensemble(architecture: str, schema: Schema, memory_gib: float = 8.0, seed: int = 7) -> TeacherEnsemble:
    return ThreePerBlock(architecture, len(ACTIVE), schema, "cpu", seed, active=ACTIVE, memory_gib=memory_gib)


def both(architecture: str, schema: Schema) -> tuple[TeacherEnsemble, TeacherEnsemble]:
    """In memory and on disk."""
    inside, outside = ensemble(architecture, schema), ensemble(architecture, schema, memory_gib=1e-6)
    assert (inside._file is None, outside._file is None) == (True, False)
    return inside, outside


def assert_same(inside: TeacherEnsemble, outside: TeacherEnsemble) -> None:
    expected, found = inside.state(), outside.state()
    assert list(expected) == list(found)
    for name, value in expected.items():
        assert value.tobytes() == found[name].tobytes(), name


@ARCHITECTURES
def test_results_are_the_same_to_the_last_bit(architecture: str, schema: Schema):
    inside, outside = both(architecture, schema)
    assert_same(inside, outside)
    for batch in random_batches(schema, len(ACTIVE), steps=3):
        inside.train_step(*batch)
        outside.train_step(*batch)
        assert_same(inside, outside)
        assert gradients(inside, batch).numpy().tobytes() == gradients(outside, batch).numpy().tobytes()


@ARCHITECTURES
def test_a_state_is_restored_from_either_to_either(architecture: str, schema: Schema):
    batches = random_batches(schema, len(ACTIVE), steps=2)
    whole = ensemble(architecture, schema)
    whole.train_step(*batches[0])
    saved = whole.state()
    whole.train_step(*batches[1])
    for memory_gib in (8.0, 1e-6):
        resumed = ensemble(architecture, schema, memory_gib, seed=0)
        resumed.restore(saved)
        resumed.train_step(*batches[1])
        assert_same(whole, resumed)


def test_large_tensors_are_drawn_in_pieces_with_the_numbers_of_one_draw():
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=100)
    weights = TeacherEnsemble("dense", 100, schema, "cpu", seed=3).state()["parameters/input.weight"]
    assert weights.size > 2**20
    generator = torch.Generator().manual_seed(3)
    expected = torch.empty(weights.size).normal_(0.0, float(np.sqrt(2 / 794)), generator=generator)
    np.testing.assert_array_equal(weights.reshape(-1), expected)


def test_the_file_has_no_name(tmp_path: Path):
    tensors = tensor_store.TensorFile([(5, 3), (2000,)], tmp_path)
    first, second = tensors.zeros((5, 3)), tensors.zeros((2000,))
    assert list(tmp_path.iterdir()) == []
    assert (first == 0).all()
    assert (second == 0).all()
    first[3], second[7] = 2.0, 3.0
    tensors.drop(slice(3, 4))
    tensors.drop()
    assert (first.sum(), second.sum()) == (6, 3), "what is dropped is kept in the file"


def test_the_file_outlives_its_owner_while_a_tensor_is_in_use(tmp_path: Path):
    tensor = tensor_store.TensorFile([(4,)], tmp_path).zeros((4,))
    assert (tensor + 1).tolist() == [1, 1, 1, 1]


def test_a_disk_that_is_too_small_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InvalidSpec, match=r"need 4097\.0 GiB of disk .* are free: lower num_teachers"):
        tensor_store.TensorFile([(2**40,)], tmp_path)

    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=2**30 + 2**20 - 1))
    with pytest.raises(InvalidSpec, match="disk"):
        tensor_store.TensorFile([(2**18,)], tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=2**30 + 2**20))
    tensor_store.TensorFile([(2**18,)], tmp_path)

    def full(file: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InvalidSpec, match="disk"):
        tensor_store.TensorFile([(2**18,)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_limit_counts_all_tensors():
    half = [(2**27,), (2**27,)]
    assert tensor_store.spill_to_file(1.0, half, CPU) is None
    assert tensor_store.spill_to_file(0.5, [(2**10,), (2**27 - 2**10,)], CPU) is None
    assert tensor_store.spill_to_file(0.0001, [(2**15,)], CPU) is not None


def test_less_stays_in_memory_while_less_is_free(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tensor_store, "available_bytes", lambda device: 2**16)
    assert tensor_store.spill_to_file(8.0, [(2**14,)], CPU) is None
    assert tensor_store.spill_to_file(8.0, [(2**14 + 1,)], CPU) is not None


def test_a_graphics_processor_keeps_its_tensors_to_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tensor_store, "available_bytes", lambda device: 2**33)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=2**34))
    cuda = torch.device("cuda")
    assert tensor_store.spill_to_file(0.001, [(2**31,)], cuda) is None
    with pytest.raises(InvalidSpec, match=r"need 25\.0 GiB of memory of the GPU and 16\.0 GiB .*dense"):
        tensor_store.spill_to_file(8.0, [(25 * 2**28,)], cuda)
    # Of what fits, another program may have the room: the job tells.
    with pytest.raises(MemoryError):
        tensor_store.spill_to_file(8.0, [(2**31 + 1,)], cuda)


def test_this_machine_has_memory():
    assert tensor_store.available_bytes(CPU) > 2**27


GROWTH = """
import json, sys
import torch
from datalens_service.data.dataset import Schema
from datalens_service.models.teachers.ensemble import TeacherEnsemble

torch.set_num_threads(1)
schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=100)

def resident(kind):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(kind)) / 2**10

def work(teachers, memory_gib):
    ensemble = TeacherEnsemble("dense", teachers, schema, "cpu", 1, memory_gib=memory_gib, block_bytes=2**23)
    real, labels = torch.zeros(teachers, 2, 784, dtype=torch.uint8), torch.zeros(teachers, 2, dtype=torch.int64)
    for _ in range(2):
        ensemble.train_step(real, labels, torch.rand(2, 784), torch.zeros(2, dtype=torch.int64))
    for block in ensemble.image_gradients(torch.rand(2, 784), torch.zeros(2, dtype=torch.int64)):
        assert block.isfinite().all()
    return sum(value.nbytes for value in ensemble._adam_state.arrays().values()) / 2**20

work(100, 8.0)
before = resident("VmRSS")
size = work(1760, float(sys.argv[1]))
print(json.dumps({"size": size, "growth": resident("VmHWM") - before}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts resident memory as Linux does")
def test_resident_memory_stays_under_the_limit():
    def growth(memory_gib: float) -> float:
        """MiB that an ensemble of 256 MiB adds to the largest resident set of a fresh process."""
        command = [sys.executable, "-c", GROWTH, str(memory_gib)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert found["size"] > 256
        return float(found["growth"])

    assert growth(1.0) > 256, "the measure sees an ensemble in memory"
    assert growth(64 / 1024) < 64


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
