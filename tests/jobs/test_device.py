"""Where jobs train."""

import pytest
from pydantic import ValidationError

from datalens_service.errors import WorkerUnavailable
from datalens_service.jobs.execute import choose_device, training_device
from datalens_service.settings import Settings
from datalens_service.spec import Device


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cpu; rm"])
def test_unknown_device_is_refused(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("DATALENS_DEVICE", device)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize(
    ("device", "there", "chosen"),
    [("cpu", True, "cpu"), ("auto", False, "cpu"), ("auto", True, "cuda"), ("cuda:1", True, "cuda:1")],
)
def test_device(monkeypatch: pytest.MonkeyPatch, device: str, there: bool, chosen: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: there)
    assert training_device(device) == chosen


@pytest.mark.parametrize(
    ("wanted", "worker", "chosen"),
    [
        (Device.AUTO, "auto", "auto"),
        (Device.AUTO, "cuda:1", "cuda:1"),
        (Device.CPU, "cuda:1", "cpu"),
        (Device.GPU, "auto", "cuda"),
        (Device.GPU, "cuda:1", "cuda:1"),
    ],
)
def test_job_gets_the_kind_of_device_it_wants(wanted: Device, worker: str, chosen: str) -> None:
    assert choose_device(wanted, worker) == chosen


def test_job_for_a_gpu_does_not_train_on_a_cpu() -> None:
    with pytest.raises(WorkerUnavailable, match="wants a GPU"):
        choose_device(Device.GPU, "cpu")


def test_missing_gpu_is_not_replaced_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(WorkerUnavailable, match="cuda:1"):
        training_device("cuda:1")
