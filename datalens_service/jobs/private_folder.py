"""Keeps the private state of a job between steps: `data_dir/private/<job>/<lease token>/`.

Every lease has a folder of its own, so a worker that lost the job and does not know it yet cannot write into,
or remove, the files of its successor. The successor takes the last checkpoint along. Nothing private outlives
its job: the worker that ends it removes the files, and `remove_leftovers` removes what a crash left.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from datalens_service.base.errors import NotFound
from datalens_service.store.database import Database
from datalens_service.store.disk import translated
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.leases import Lease

_CHECKPOINT = "checkpoint.safetensors"


class PrivateFolder:
    """The private files of one job under one lease; for the service's own user only (mode 0700)."""

    def __init__(self, data_dir: Path, lease: Lease) -> None:
        self._job = _root(data_dir) / lease.job_id
        self.path = self._job / str(lease.token)

    @property
    def checkpoint(self) -> Path:
        """Path of the checkpoint, which may not exist yet."""
        return self.path / _CHECKPOINT

    def open(self) -> None:
        """Make the folder and take over the last checkpoint of earlier leases."""
        with translated("Private state cannot be kept; free the disk of ⟦DATALENS_DATA_DIR⟧."):
            for folder in (self._job.parent, self._job, self.path):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._inherit()

    @contextmanager
    def for_temporary_files(self) -> Iterator[None]:
        """Let this process, and those that it starts, keep temporary files here: what a job forgets ends with it."""
        earlier, variable = tempfile.tempdir, os.environ.get("TMPDIR")
        tempfile.tempdir = os.environ["TMPDIR"] = str(self.path.absolute())
        try:
            yield
        finally:
            tempfile.tempdir = earlier
            os.environ.pop("TMPDIR")
            if variable is not None:
                os.environ["TMPDIR"] = variable

    def close(self) -> None:
        """Remove the files of this lease."""
        shutil.rmtree(self.path, ignore_errors=True)

    def remove_job(self) -> None:
        """Remove the files of all leases, once the job has ended."""
        shutil.rmtree(self._job, ignore_errors=True)

    def _inherit(self) -> None:
        earlier = (folder for folder in self._job.iterdir() if folder != self.path)
        for folder in sorted(earlier, key=lambda folder: int(folder.name)):
            if (folder / _CHECKPOINT).exists():
                (folder / _CHECKPOINT).replace(self.checkpoint)
            shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(database: Database, data_dir: Path) -> None:
    """Remove private files of jobs that have ended, whoever ended them."""
    root = _root(data_dir)
    for folder in root.iterdir() if root.exists() else ():
        if _ended(database, folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def _root(data_dir: Path) -> Path:
    return data_dir / "private"


def _ended(database: Database, job_id: str) -> bool:
    try:
        return jobs.get(database, job_id).state.terminal
    except NotFound:
        return True
