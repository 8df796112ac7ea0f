"""Looks at the GPUs of NVIDIA through NVML: no memory of theirs is taken, and CUDA is not begun.

What it finds depends on the machine and on other programs alone, so anybody may read it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NamedTuple

_DRIVERS: Final = {"nvidia-cuda-runtime": {13: 580}, "nvidia-cuda-runtime-cu12": {12: 525}}
"""Oldest drivers, by the package that has torch's CUDA runtime and by its major version: NVIDIA, CUDA Compatibility,
"Minor version compatibility"; an older driver knows no newer CUDA of that major version either."""


class GpuMemory(NamedTuple):
    """Bytes of a GPU, and those of them that no program has."""

    total: int
    free: int


def read_gpu_memory(position: int = 0) -> GpuMemory | None:
    """Read the memory of a GPU.

    Args:
        position: As CUDA counts those that this process may see; on a machine with GPUs of several kinds, with
            `CUDA_DEVICE_ORDER=PCI_BUS_ID`.

    Returns:
        Its memory; None where there is no such GPU, or NVML does not tell.
    """
    with _nvml() as nvml:
        if nvml is None:
            return None
        try:
            found = nvml.nvmlDeviceGetMemoryInfo(_find(nvml, position))
        except (nvml.NVMLError, LookupError, ValueError):
            return None
        return GpuMemory(int(found.total), int(found.free))


def explain_old_driver() -> str | None:
    """Say that the driver of this machine is too old for torch's CUDA; None if it is not, or there is no GPU."""
    needed = _needed_driver()
    with _nvml() as nvml:
        if nvml is None or needed is None:
            return None
        runtime, oldest = needed
        try:
            driver = str(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError:
            return None
    major = driver.partition(".")[0]
    if not major.isdigit() or int(major) >= oldest:
        return None
    return (
        f"The NVIDIA driver {driver} is too old for CUDA {runtime}, which PyTorch was built with: install driver "
        f"{oldest} or newer, or set ⟦DATALENS_DEVICE⟧ to cpu."
    )


def _needed_driver() -> tuple[str, int] | None:
    """Return the version of torch's CUDA and the oldest driver for it; None for a torch without CUDA."""
    for package, drivers in _DRIVERS.items():
        try:
            runtime = version(package)
        except PackageNotFoundError:
            continue
        oldest = drivers.get(int(runtime.partition(".")[0]))
        if oldest is not None:
            return ".".join(runtime.split(".")[:2]), oldest
    return None


@contextmanager
def _nvml() -> Iterator[Any]:
    """NVML; None where the package or the library of the driver is missing."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _find(nvml: Any, position: int) -> Any:
    """Return the GPU at a position among those that this process may see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = str(position) if visible is None else visible.split(",")[position].strip()
    return nvml.nvmlDeviceGetHandleByIndex(int(named)) if named.isdigit() else nvml.nvmlDeviceGetHandleByUUID(named)
