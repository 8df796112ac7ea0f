"""The process that prepares a folder of images: `python -m datalens_service.data.sandbox.prepare`.

As `decode.py`; it leaves `prepared.npz` and `outcome.json` in its folder.
"""

from __future__ import annotations

import os
import sys
import warnings

import numpy as np

from datalens_service.data import DEFAULT_LIMITS
from datalens_service.data.preparation.folders import prepare_folder
from datalens_service.data.readers.npz import PREPARATION
from datalens_service.data.sandbox.confinement import confine
from datalens_service.data.sandbox.decode import OUT_OF_MEMORY, OUTCOME, Outcome
from datalens_service.data.sandbox.prepare_request import CHANGES, PREPARED, Changes, PrepareRequest
from datalens_service.data.untrusted.limits import PREPARE_LIMITS
from datalens_service.data.untrusted.validation_errors import UnusableFiles
from datalens_service.errors import InvalidDataset


def main() -> None:
    """Serve one request."""
    request = PrepareRequest.model_validate_json(sys.stdin.buffer.read())
    warnings.simplefilter("error")
    confine(
        request.folder,
        memory_bytes=request.memory_bytes,
        cpu_seconds=request.cpu_seconds,
        file_bytes=2 * DEFAULT_LIMITS.uncompressed_bytes,
    )
    outcome = _prepare(request)
    try:
        (request.folder / OUTCOME).write_text(outcome.model_dump_json())
    except OSError:
        sys.exit(os.EX_IOERR)


def _prepare(request: PrepareRequest) -> Outcome:
    try:
        arrays, notices = prepare_folder(request.path, request.settings, PREPARE_LIMITS, patients=request.patients)
        # So that whoever gets the file knows, and the service can say it in its datasheets.
        arrays[PREPARATION] = np.array(request.settings.model_dump_json())
        np.savez_compressed(request.folder / PREPARED, allow_pickle=False, **arrays)
        summary = Changes(images=len(arrays["images"]), notices=notices.collected())
        (request.folder / CHANGES).write_text(summary.model_dump_json())
    except UnusableFiles as error:
        return Outcome(refusal=error.detail, bad_files=error.bad_files, bad_count=error.count, checked=error.checked)
    except InvalidDataset as error:
        return Outcome(refusal=error.detail)
    except MemoryError:
        return Outcome(refusal=OUT_OF_MEMORY)
    return Outcome()


if __name__ == "__main__":
    main()
