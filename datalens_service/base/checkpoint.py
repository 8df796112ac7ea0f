"""Checkpoints: the state of a run, so that it need not start over. Private: teachers are in it.

A checkpoint saves time, never privacy: charges and noisy sums are in the ledger, and steps after the
checkpoint are replayed from there.
"""

import os
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from datalens_service.base.errors import CheckpointMismatch

TEACHERS: Final = "teachers/"
"""Prefix for the state of teachers, which is withheld from scripts."""


State = dict[str, "np.ndarray"]


class Checkpoints:
    """One file that is replaced atomically.

    Args:
        digest: Digest of the spec; a file of another spec is refused.
        seconds: Least time between two files.
    """

    def __init__(self, path: Path, digest: str, seconds: float = 30.0) -> None:
        self._path = path
        self._digest = digest
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def due(self) -> bool:
        """Tell whether enough time has passed since the last one."""
        return time.monotonic() >= self._next

    def save(self, step: int, state: State) -> None:
        """Write the state before `step`, or leave the last one; a run that saves slowly saves less often."""
        began = time.monotonic()
        partial = self._path.with_suffix(".partial")
        try:
            save_file(dict(state), partial, {"digest": self._digest, "step": str(step)})
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(self._path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        now = time.monotonic()
        self._next = now + max(self._seconds, 10 * (now - began))

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Return the last saved (step, state), or None.

        Raises:
            CheckpointMismatch: The file belongs to another spec.
        """
        if not self._path.exists():
            return None
        with safe_open(self._path, framework="numpy") as file:
            metadata = file.metadata()
            if metadata["digest"] != self._digest:
                raise CheckpointMismatch("The checkpoint in this folder belongs to another training request.")
            return int(metadata["step"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def discard(self) -> None:
        """Remove the file: private state does not outlive its run."""
        self._path.unlink(missing_ok=True)
