"""Where a job trains."""

from __future__ import annotations

from datalens_service.errors import WorkerUnavailable


def training_device(device: str) -> str:
    """The device as torch calls it; torch is not needed for `cpu`.

    Raises:
        WorkerUnavailable: A GPU is demanded and there is none.
    """
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda" if device == "auto" else device
    if device != "auto":
        raise WorkerUnavailable(f"DATALENS_DEVICE is {device}, and this worker has no GPU that torch can use.")
    return "cpu"
