"""Settings that only workers read, beside `datalens_service.settings`; same prefix `DATALENS_`."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from datalens_service.errors import WorkerUnavailable


class WorkerSettings(BaseSettings):
    """How a worker trains and which queue it serves."""

    model_config = SettingsConfigDict(env_prefix="DATALENS_", frozen=True)

    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="Where jobs train: cpu, cuda, cuda:1, …; auto takes CUDA where torch finds it.",
    )
    queue: str = Field(
        default="cpu",
        pattern=r"^[a-z][a-z0-9_-]{0,63}$",
        description="Celery queue that jobs are sent to and that a worker serves; cpu and gpu by convention.",
    )


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
