"""Training without a service: the same store, ledger and job code, embedded in the output folder.

    OUT/                 what was released, and the owner's report
    OUT/private/         records, ledger, database, state of an unfinished run (mode 0700)

A run that was killed goes on when it is started again with the same settings: only one process works in a folder
at a time (a lock that dies with its process), so whoever gets the lock knows that the earlier worker is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from datalens_service import logs
from datalens_service.cli.settings import embedded_settings
from datalens_service.data.dataset import Dataset, Split
from datalens_service.data.readers.base import Upload
from datalens_service.data.stored_dataset import load_dataset, save_dataset
from datalens_service.errors import InvalidInput, RankLost, StateConflict
from datalens_service.process_group import SINGLE_PROCESS, ProcessGroup
from datalens_service.run import Observer
from datalens_service.sampling import write_prefix
from datalens_service.services.pricing import quote
from datalens_service.services.startup import start
from datalens_service.settings import Settings
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.artifacts import Artifact, ArtifactStore, Audience
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.datasets.private_modes import private_folder, private_umask
from datalens_service.store.datasets.signing_key import signing_key
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import account_summary
from workers.job.execute import execute
from workers.job.observer import ShutdownRequested
from workers.process.heartbeat import Heartbeat

PRIVATE: Final = "private"
_STOCK: Final = "synthetic.npz"
_KEY: Final = "signing-key.pem"
_PARQUET: Final = "synthetic.parquet"
_PLAIN_FILE: Final = 0o666

# A person starts it again by hand, so a run is not given up for being killed.
_MAXIMUM_ATTEMPTS: Final = 1000


@dataclass(frozen=True)
class Workbench:
    """An output folder, locked by this process.

    Attributes:
        out: The folder.
        settings: Of the store in it.
        database: Of the store in it.
        released_mode: Of files that may be passed on; all others are for their owner alone.
    """

    out: Path
    settings: Settings
    database: Database
    released_mode: int

    @property
    def artifacts(self) -> ArtifactStore:
        """Files of the jobs in this folder."""
        return ArtifactStore(self.database, self.settings.data_dir)

    def dataset(self, upload: Upload, format_name: str, epsilon: float, delta: float | None) -> StoredDataset:
        """The data set of this folder; kept with its lifetime budget at the first call.

        Raises:
            InvalidInput: The folder belongs to other records.
            InvalidDelta: δ is not below 1/n.
        """
        known = datasets.list_datasets(self.database, limit=1).items
        if not known:
            return self._keep(upload, format_name, epsilon, delta)
        stored = load_dataset(Path(known[0].records_path), known[0].partition_key or b"")
        if not _same(stored, upload):
            raise InvalidInput(f"{self.out} belongs to another data set: choose another folder for this one.")
        return known[0]

    def job(self, dataset: StoredDataset, spec: TrainingSpec) -> Job:
        """The job with this spec: the one there is, unless it failed, or a new one with its budget reserved.

        Raises:
            BudgetExceeded: What remains of the folder's budget does not pay for it.
            InvalidSpec: The method does not fit the data set.
        """
        priced = quote(self.database, dataset.tenant_id, dataset.id, spec)
        wanted = priced.spec.model_dump(mode="json")
        there = jobs.list_jobs(self.database, limit=200).items
        for job in there:
            if job.spec == wanted and job.state not in (JobState.FAILED, JobState.CANCELLED):
                return job
        self._give_up([job for job in there if not job.state.terminal], priced.cost.units, dataset.id)
        return jobs.create(
            self.database,
            dataset_id=dataset.id,
            spec=wanted,
            plan=priced.cost.model_dump(mode="json"),
            units=priced.cost.units,
            max_attempts=_MAXIMUM_ATTEMPTS,
        )

    def work(self, job: Job, observe: Observer, ranks: ProcessGroup = SINGLE_PROCESS) -> Job:
        """Do the job in this process and those it leads, from where an earlier one left it.

        Raises:
            ShutdownRequested: The job waits to be taken up again.
            RankLost: The same.
            KeyboardInterrupt: The same; the next start in this folder ends the lease, since this process may have been
                interrupted in the middle of a transaction.
        """
        if job.state.terminal:
            return job
        lease = leases.claim(self.database, job.id, f"pid {os.getpid()}", self.settings.lease_seconds)
        if lease is None:
            return jobs.get(self.database, job.id)
        try:
            with Heartbeat(self.database, lease):
                return execute(self.database, self.artifacts, self.settings, lease, observe, ranks)
        except (ShutdownRequested, RankLost):
            leases.release(self.database, lease)
            raise

    def deliver(self, job: Job, dataset: StoredDataset) -> dict[str, Path]:
        """Copy what the job made into the folder, and its images as Parquet beside the NPZ.

        Returns:
            Path of each file by its name.
        """
        paths = {artifact.name: self._copied(artifact) for artifact in self.artifacts.list_artifacts(job.id)}
        parquet = self.out / _PARQUET
        count = TrainingSpec.model_validate(job.spec).synthetic_images
        card = json.loads(paths["card.json"].read_text(encoding="utf-8"))
        write_prefix(paths[_STOCK], dataset.schema, card, count, "parquet", parquet)
        key = self.out / _KEY
        key.write_text(signing_key(self.database).public.pem, encoding="ascii")
        for made in (parquet, key):
            made.chmod(self.released_mode)
        return {**paths, parquet.name: parquet, key.name: key}

    def audiences(self, job: Job) -> dict[str, Audience]:
        """For whom each delivered file is, by its name."""
        made: dict[str, Audience] = {file.name: file.audience for file in self.artifacts.list_artifacts(job.id)}
        return {**made, _PARQUET: made[_STOCK], _KEY: made[_STOCK]}

    def _copied(self, artifact: Artifact) -> Path:
        path = self.out / artifact.name
        path.unlink(missing_ok=True)
        shutil.copyfile(artifact.path, path)
        # Figures for the owner are for the owner's eyes on a shared machine, too.
        if artifact.releasable:
            path.chmod(self.released_mode)
        return path

    def _keep(self, upload: Upload, format_name: str, epsilon: float, delta: float | None) -> StoredDataset:
        folder = self.settings.data_dir / "datasets"
        # Left by a run that was killed before it was registered.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        dataset_id = datasets.new_id()
        save_dataset(Dataset(*upload, partition_key=b""), folder / dataset_id)
        return datasets.create(
            self.database,
            dataset_id=dataset_id,
            name=dataset_id,
            schema=upload.schema,
            images=upload.train.images,
            units=upload.train.units,
            format=format_name,
            has_test=upload.test is not None,
            records_path=str(folder / dataset_id),
            epsilon=epsilon,
            delta=delta,
        )

    def _give_up(self, unfinished: list[Job], units: int, dataset_id: str) -> None:
        """Cancel earlier runs with other settings, if what they hold back pays for the new one."""
        with self.database.session() as session:
            account = account_summary.statement(session, dataset_id)
        if units <= account.remaining_units + account.reserved_units:
            for job in unfinished:
                jobs.request_cancel(self.database, job.id)


@contextmanager
def workbench(out: Path) -> Generator[Workbench]:
    """Open an output folder for this process alone.

    Raises:
        StateConflict: Another process works in it.
        InvalidInput: It is in use for something else.
    """
    private = out.absolute() / PRIVATE
    if not private.exists() and out.exists() and any(out.iterdir()):
        raise InvalidInput(f"{out} holds other files: choose a folder that is empty or does not exist yet.")
    settings = embedded_settings(private)
    out.mkdir(parents=True, exist_ok=True)
    # To stderr, and only what went wrong: progress is drawn by the caller.
    logs.configure("error")
    with private_umask() as usual, _alone(private_folder(private) / "lock"):
        database = start(settings)
        try:
            # Nobody else can be at work here, so whoever holds a job is dead.
            later = datetime.now(UTC) + timedelta(seconds=settings.lease_seconds + 1)
            leases.expire_leases(database, now=later)
            yield Workbench(out, settings, database, _PLAIN_FILE & ~usual)
        finally:
            database.dispose()


@contextmanager
def _alone(path: Path) -> Generator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateConflict(f"Another process works in {path.parent.parent}: wait for its end.") from error
        yield


def _same(stored: Dataset, upload: Upload) -> bool:
    return stored.schema == upload.schema and all(
        _equal(mine, theirs) for mine, theirs in ((stored.train, upload.train), (stored.test, upload.test))
    )


def _equal(mine: Split | None, theirs: Split | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return all(
        np.array_equal(left, right)
        for left, right in (
            (mine.images, theirs.images),
            (mine.labels, theirs.labels),
            (mine.unit_ids, theirs.unit_ids),
        )
    )
