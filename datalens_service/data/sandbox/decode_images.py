"""The process that reads images for a prediction: `python -m datalens_service.data.sandbox.decode_images`.

As `decode.py`, with images that have no labels; it leaves `images.npy` and `outcome.json` in its folder.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict

from datalens_service.data import DEFAULT_LIMITS
from datalens_service.data.readers.unlabelled import read_unlabelled
from datalens_service.data.sandbox.confinement import confine
from datalens_service.data.sandbox.decode import OUT_OF_MEMORY, OUTCOME, Outcome
from datalens_service.data.untrusted.validation_errors import UnusableFiles
from datalens_service.errors import InvalidDataset

IMAGES: Final = "images.npy"


class ImagesRequest(BaseModel):
    """What to read.

    Attributes:
        path: The file.
        folder: Where results go.
        most_images: More are refused.
        memory_bytes: Address space of the process.
        cpu_seconds: Its processor time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    folder: Path
    most_images: int
    memory_bytes: int
    cpu_seconds: int


def main() -> None:
    """Serve one request."""
    request = ImagesRequest.model_validate_json(sys.stdin.buffer.read())
    # Pillow warns of what it is suspicious of; here, nobody shares the filter.
    warnings.simplefilter("error")
    confine(
        request.folder,
        memory_bytes=request.memory_bytes,
        cpu_seconds=request.cpu_seconds,
        file_bytes=2 * DEFAULT_LIMITS.uncompressed_bytes,
    )
    outcome = _read(request)
    try:
        (request.folder / OUTCOME).write_text(outcome.model_dump_json())
    except OSError:
        sys.exit(os.EX_IOERR)


def _read(request: ImagesRequest) -> Outcome:
    try:
        images, names = read_unlabelled(request.path, DEFAULT_LIMITS, request.most_images)
        np.save(request.folder / IMAGES, images)
    except UnusableFiles as error:
        return Outcome(refusal=error.text, bad_files=error.bad_files, bad_count=error.count, checked=error.checked)
    except InvalidDataset as error:
        return Outcome(refusal=error.text)
    except MemoryError:
        return Outcome(refusal=OUT_OF_MEMORY)
    except OSError:
        # What is wrong with the images is refused above; this is the disk.
        sys.exit(os.EX_IOERR)
    return Outcome(names=names)


if __name__ == "__main__":
    main()
