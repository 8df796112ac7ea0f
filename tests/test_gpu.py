"""GPUs as NVML shows them, which a stand-in does here: their memory, and drivers that are too old for torch's CUDA."""

import re
from collections.abc import Callable
from types import SimpleNamespace

import pynvml
import pytest

from datalens_service.base import gpu
from datalens_service.base.gpu import GpuMemory, explain_old_driver, read_gpu_memory
from repository import ROOT


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with 80 bytes and one with 24, which NVML counts in this order."""
    free = {0: (80, 70), 1: (24, 4), "GPU-b": (24, 4)}

    def find(named: int | str) -> int | str:
        if named not in free:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return named

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", find)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", find)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetMemoryInfo", lambda found: SimpleNamespace(total=free[found][0], free=free[found][1])
    )


def fail(code: int) -> Callable[..., None]:
    def raise_error(*_: object) -> None:
        raise pynvml.NVMLError(code)

    return raise_error


@pytest.mark.parametrize(
    ("visible", "position", "memory"),
    [
        (None, 0, GpuMemory(80, 70)),
        (None, 1, GpuMemory(24, 4)),
        (None, 2, None),
        ("1", 0, GpuMemory(24, 4)),
        ("1,0", 1, GpuMemory(80, 70)),
        ("GPU-b", 0, GpuMemory(24, 4)),
        ("GPU-c", 0, None),
        ("0", 1, None),
        ("", 0, None),
        ("-1", 0, None),
    ],
)
def test_memory_is_that_of_the_gpu_that_cuda_would_take(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, position: int, memory: GpuMemory | None
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read_gpu_memory(position) == memory


def test_a_machine_without_a_gpu_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", fail(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert read_gpu_memory() is None
    assert explain_old_driver() is None


@pytest.mark.parametrize(
    ("packages", "driver", "old"),
    [
        ({"nvidia-cuda-runtime": "13.2.86"}, "535.104.05", True),
        ({"nvidia-cuda-runtime": "13.2.86"}, "575.51", True),
        ({"nvidia-cuda-runtime": "13.2.86"}, "580.65.06", False),
        ({"nvidia-cuda-runtime": "13.2.86"}, "610.1", False),
        ({"nvidia-cuda-runtime-cu12": "12.8.90"}, "470.1", True),
        ({"nvidia-cuda-runtime-cu12": "12.8.90"}, "535.104.05", False),
        ({"nvidia-cuda-runtime": "99.0.1"}, "535.104.05", False),
        ({}, "470.1", False),
    ],
)
def test_a_driver_that_is_too_old_is_told_with_the_one_that_is_needed(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], driver: str, old: bool
) -> None:
    def find_version(name: str) -> str:
        if name not in packages:
            raise gpu.PackageNotFoundError
        return packages[name]

    monkeypatch.setattr(gpu, "version", find_version)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: driver)
    told = explain_old_driver()
    assert (told is not None) == old
    assert told is None or (driver in told and "newer" in told)


def test_the_page_and_the_code_name_the_driver_that_the_pinned_torch_needs() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    [(runtime, major)] = re.findall(r"^nvidia-cuda-runtime==((\d+)\.\d+)", lock, re.MULTILINE)
    oldest = gpu._DRIVERS["nvidia-cuda-runtime"][int(major)]
    page = " ".join((ROOT / "docs" / "deploy.md").read_text().split())
    assert f"CUDA {runtime}" in page
    assert f"driver {oldest} or newer" in page
