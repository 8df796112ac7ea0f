"""Where a job trains."""

from datalens_service.errors import WorkerUnavailable
from datalens_service.spec import Device


def choose_device(requested: Device, device: str) -> str:
    """What a job wants, on a worker that is set to `device`.

    Raises:
        WorkerUnavailable: The job wants a GPU, and the worker is set not to use one.
    """
    if requested is Device.CPU:
        return "cpu"
    if requested is Device.GPU and device == "cpu":
        raise WorkerUnavailable("The job wants a GPU, and ⟦DATALENS_DEVICE⟧ keeps this worker on the CPU.")
    return "cuda" if requested is Device.GPU and device == "auto" else device


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
        raise WorkerUnavailable(f"{device} is wanted, and this worker has no GPU that torch can use.")
    return "cpu"
