"""A job whose worker has too little memory says how much it needs and how much there is.

Where jobs train.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import datalens_service.jobs.execute
from datalens_service.base.errors import GpuMemoryTaken, WorkerUnavailable
from datalens_service.base.gpu import GpuMemory
from datalens_service.jobs import memory
from datalens_service.jobs.execute import choose_device, training_device
from datalens_service.spec import Device
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.schema.tables import JobRow
from deployments.deployment import QUICK, Deployment


@pytest.mark.parametrize(
    ("phase", "lack"),
    [
        ("load_dataset", MemoryError),
        ("run", MemoryError),
        ("run", type("OutOfMemoryError", (RuntimeError,), {})),
        ("run", lambda: torch.empty(2**60, dtype=torch.uint8)),
        ("package", MemoryError),
    ],
)
def test_lack_of_memory_has_a_name_and_figures(
    local: Deployment, monkeypatch: pytest.MonkeyPatch, phase: str, lack: Callable[[], Any]
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise lack()

    monkeypatch.setattr(datalens_service.jobs.execute, phase, fail)
    monkeypatch.setattr(memory, "read_limit", lambda: 2**30)
    ended = local.execute(local.submit(QUICK))
    assert ended.error is not None
    assert ended.error["type"] == "out-of-memory"
    assert re.search(r"needs about [\d.]+ GiB .* has 1\.0 GiB", ended.error["detail"])


def test_a_job_that_cannot_fit_is_refused_before_it_begins(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "read_limit", lambda: 2**28)
    ended = local.execute(local.submit(QUICK))
    assert ended.error is not None
    assert (ended.error["type"], ended.charged_units, ended.reserved_units) == ("out-of-memory", 0, 0)
    assert "cannot fit" in ended.error["detail"]


GPU = 80 * 2**30


def train_on_gpu(local: Deployment, monkeypatch: pytest.MonkeyPatch, left: int, lack: Callable[[], Any]) -> Job:
    """Do a job that lacks memory on a GPU, of which other programs leave `left` bytes; torch would say so."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise lack()

    monkeypatch.setattr(datalens_service.jobs.execute, "training_device", lambda _: "cuda")
    monkeypatch.setattr(datalens_service.jobs.execute, "run", fail)
    monkeypatch.setattr(memory, "_read_left_by_others", lambda _: (GPU, left))
    return local.execute(local.submit(QUICK))


LACKS = [MemoryError, type("OutOfMemoryError", (RuntimeError,), {})]


@pytest.mark.parametrize("lack", LACKS)
def test_a_job_that_another_program_leaves_no_memory_on_its_gpu_can_be_resumed(
    local: Deployment, monkeypatch: pytest.MonkeyPatch, lack: Callable[[], Any]
) -> None:
    with pytest.raises(GpuMemoryTaken) as taken:
        train_on_gpu(local, monkeypatch, 2**20, lack)
    assert "can be resumed once enough is free" in taken.value.text
    [job] = jobs.list_jobs(local.database).items
    assert (job.state, job.error) == (JobState.RUNNING, None)


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("left", [GPU, GPU // 2, 2 * 2**30])
def test_a_job_that_needs_more_than_its_plan_says_fails(
    local: Deployment, monkeypatch: pytest.MonkeyPatch, lack: Callable[[], Any], left: int
) -> None:
    """Other programs leave what its plan names."""
    ended = train_on_gpu(local, monkeypatch, left, lack)
    assert (ended.state, ended.reserved_units) == (JobState.FAILED, 0)
    assert ended.error is not None
    assert ended.error["type"] == "out-of-memory"
    assert re.search(r"needs about [\d.]+ GiB .* its GPU has 80\.0 GiB", ended.error["detail"])


def test_another_error_on_a_gpu_is_no_lack_of_memory(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = train_on_gpu(local, monkeypatch, 0, ValueError)
    assert ended.error is not None
    assert ended.error["type"] == "internal-error"


@pytest.mark.parametrize(
    ("needed", "left", "taken"),
    [
        (10, 5, True),
        (10, 7, False),
        (10, 80, False),
        (100, 80, False),
        (100, 60, False),
        (100, 40, True),
        (10**6, 80, False),
    ],
)
def test_a_gpu_is_taken_if_others_leave_less_than_a_job_needs_or_could_have(
    needed: int, left: int, taken: bool
) -> None:
    assert memory.is_taken(needed, GpuMemory(80, left)) == taken


@pytest.mark.parametrize(
    ("device", "ranks", "looked_at"),
    [("auto", 1, [0]), ("cuda", 3, [0, 1, 2]), ("cuda:2", 1, [2]), ("cuda:10", 1, [10])],
)
def test_the_gpus_that_a_job_would_train_on_are_looked_at(
    local: Deployment, monkeypatch: pytest.MonkeyPatch, device: str, ranks: int, looked_at: list[int]
) -> None:
    job, looked = local.submit(QUICK).id, []

    def look(position: int) -> GpuMemory:
        looked.append(position)
        return GpuMemory(GPU, GPU if position < looked_at[-1] else 0)

    monkeypatch.setattr(memory, "read_gpu_memory", look)
    with pytest.raises(GpuMemoryTaken):
        memory.check_gpu_memory(local.database, job, device, ranks)
    assert looked == looked_at
    monkeypatch.setattr(memory, "read_gpu_memory", lambda _: None)
    memory.check_gpu_memory(local.database, job, device, ranks)


def test_the_limit_is_the_lowest_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = memory.read_limit()
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    (tmp_path / "memory.max").write_text("max")
    assert memory.read_limit() >= machine
    (tmp_path / "memory.max").write_text("1000000")
    assert memory.read_limit() == 1000000


def test_a_lost_job_whose_method_is_gone_is_buried_without_figures(local: Deployment) -> None:
    job = local.submit(QUICK).id
    assert "GiB" in memory.compare_memory(local.database, job)
    with local.database.transaction() as session:
        row = session.get_one(JobRow, job)
        row.spec = {**row.spec, "method": {"name": "of_a_package_that_was_removed"}}
    assert memory.compare_memory(local.database, job) == ""


@pytest.mark.parametrize(
    ("device", "there", "chosen"),
    [("cpu", True, "cpu"), ("auto", False, "cpu"), ("auto", True, "cuda"), ("cuda:1", True, "cuda:1")],
)
def test_device(monkeypatch: pytest.MonkeyPatch, device: str, there: bool, chosen: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: there)
    assert training_device(device) == chosen


def test_job_gets_the_kind_of_device_it_wants_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [(Device.AUTO, "auto"), (Device.AUTO, "cuda:1"), (Device.CPU, "cuda:1"), (Device.GPU, "auto")]
    assert [choose_device(*one) for one in asked] == ["auto", "cuda:1", "cpu", "cuda"]
    assert choose_device(Device.GPU, "cuda:1") == "cuda:1"
    with pytest.raises(WorkerUnavailable, match="wants a GPU"):
        choose_device(Device.GPU, "cpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(WorkerUnavailable, match="cuda:1"):
        training_device("cuda:1")
