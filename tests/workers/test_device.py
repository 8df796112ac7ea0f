"""Where jobs train."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from datalens_service.errors import WorkerUnavailable
from datalens_service.settings import Settings
from workers.device import training_device


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


def test_missing_gpu_is_not_replaced_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(WorkerUnavailable, match="cuda:1"):
        training_device("cuda:1")
