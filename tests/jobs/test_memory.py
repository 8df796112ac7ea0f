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
from datalens_service.base.errors import WorkerUnavailable
from datalens_service.jobs import memory
from datalens_service.jobs.execute import choose_device, training_device
from datalens_service.spec import Device
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
