"""What the process of `prepare.py` is asked and answers. Whoever asks needs none of its readers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.data.notices import Notice, NoticeCode
from datalens_service.data.preparation_settings import PrepareSettings

PREPARED: Final = "prepared.npz"
CHANGES: Final = "changes.json"


class PrepareRequest(BaseModel):
    """What to prepare.

    Attributes:
        path: Folder of images.
        folder: Where results go.
        settings: The owner's choices.
        patients: Whether each image belongs to a patient.
        memory_bytes: Address space of the process.
        cpu_seconds: Its processor time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    folder: Path
    settings: PrepareSettings
    patients: bool
    memory_bytes: int
    cpu_seconds: int


class Changes(BaseModel):
    """What was changed, for the owner: it depends on the images.

    Attributes:
        images: How many were prepared.
        notices: What was changed.
    """

    images: int
    notices: tuple[Notice, ...] = Field(default=(), max_length=len(NoticeCode))
