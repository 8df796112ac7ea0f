"""Training without a service: the same store, ledger and job code, embedded in the output folder.

    OUT/                 what was released, and the owner's report
    OUT/private/         records, ledger, database, state of an unfinished run (mode 0700)

A run that was killed goes on when it is started again with the same settings: only one process works in a folder
at a time (a lock that dies with its process), so whoever gets the lock knows that the earlier worker is gone.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from datalens_service.adapters.dispatch import Dispatcher
from datalens_service.adapters.startup import start
from datalens_service.base import logs
from datalens_service.base.audience import FileAudience
from datalens_service.base.errors import GpuMemoryTaken, InvalidInput, RankLost, StateConflict
from datalens_service.base.process_group import SINGLE_PROCESS, ProcessGroup
from datalens_service.base.settings import EmbeddedSettings, Settings
from datalens_service.data.dataset import Split, Upload
from datalens_service.data.export.content_credentials import ContentCredentials
from datalens_service.data.intake.stored_dataset import load_dataset, save_dataset
from datalens_service.jobs.execute import execute
from datalens_service.jobs.job_watch import ShutdownRequested
from datalens_service.jobs.ranks import ReadyRanks
from datalens_service.methods.voting.rivals import restate_rival
from datalens_service.services.pricing import price_request
from datalens_service.services.submit_job import submit_job
from datalens_service.spec import TrainingSpec
from datalens_service.store.access import access_log
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.artifacts import Artifact, ArtifactStore
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.datasets.private_modes import private_folder, private_umask
from datalens_service.store.installation import signing_key
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import account_summary
from datalens_service.store.paging import StoredPage
from datalens_service.subprocesses.sampling import PACKED_IMAGES, write_prefix
from datalens_service.training import Observer

PRIVATE_READS = ("reading the upload", "recognising records that come again")

PRIVATE: Final = "private"
_PUBLIC: Final = "public"
_SIGNING_KEY: Final = "signing-key.pem"
_PARQUET: Final = "synthetic.parquet"
_PLAIN_FILE: Final = 0o666
_PAGE: Final = 200

Listed = TypeVar("Listed")

# A person starts it again by hand, so a run is not given up for being killed.
_MAXIMUM_ATTEMPTS: Final = 1000


@dataclass(frozen=True)
class EmbeddedRun:
    """An output folder with its store, locked by this process.

    Attributes:
        released_mode: File mode of files that may be passed on; all others are for their owner alone.
    """

    out: Path
    settings: Settings
    database: Database
    released_mode: int
    _parquet_cards: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    """Cards of jobs whose images are written as Parquet already, which takes longer than drawing them."""

    @property
    def artifacts(self) -> ArtifactStore:
        """Return the files of the jobs in this folder."""
        return ArtifactStore(self.database, self.settings.data_dir)

    def find_or_create_dataset(
        self, upload: Upload, format_name: str, epsilon: float, delta: float | None, confirm: Callable[[], None]
    ) -> StoredDataset:
        """Return the dataset of this folder; the first call stores it with its lifetime budget, after `confirm`.

        Raises:
            InvalidInput: The folder belongs to other records.
            InvalidDelta: δ is not below 1/n.
        """
        existing = [one for one in self._list_datasets() if not one.schema.records_are_public]
        if not existing:
            confirm()
            return self._store_dataset(upload, format_name, epsilon, delta)
        stored = load_dataset(Path(existing[0].records_path))
        if not _has_same_records(stored, upload):
            raise InvalidInput(f"{self.out} belongs to another data set: choose another folder for this one.")
        return existing[0]

    def find_or_create_public(self, public: Upload, format_name: str, name: str, epsilon: float) -> StoredDataset:
        """Return public images stored beside those of this folder; `epsilon` is never spent on them.

        Raises:
            InvalidDataset: One of them is among the private images of this folder.
        """
        for stored in self._list_datasets():
            if stored.schema.records_are_public and _has_same_records(load_dataset(Path(stored.records_path)), public):
                return stored
        dataset_id = datasets.new_id()
        folder = self.settings.data_dir / _PUBLIC / dataset_id
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            return self._register(public, folder, format_name, name, epsilon, None)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def find_or_create_job(self, dataset: StoredDataset, spec: TrainingSpec) -> Job:
        """Return the job with this spec: an existing one that has not failed, or a new one with its budget reserved.

        Raises:
            BudgetExceeded: The rest of the folder's budget does not pay for it.
            InvalidSpec: The method does not fit the data set.
        """
        priced = price_request(self.database, dataset.tenant_id, dataset.id, spec)
        request = priced.spec.model_dump(mode="json")
        existing = _list_all(partial(jobs.list_jobs, self.database))
        for job in existing:
            stored = {**job.spec, "method": restate_rival(job.spec.get("method"))}
            if stored == request and job.state not in (JobState.FAILED, JobState.CANCELLED):
                return job
        self._cancel_unfinished(
            [job for job in existing if not job.state.terminal], priced.price.ledger_units, dataset.id
        )
        return submit_job(
            self.database, Dispatcher(), priced, submitted_by=access_log.LOCAL, max_attempts=_MAXIMUM_ATTEMPTS
        )

    def run_job(self, job: Job, observe: Observer, process_group: ProcessGroup = SINGLE_PROCESS) -> Job:
        """Run or resume the job in this process and those it leads.

        Raises:
            ShutdownRequested: The job was interrupted and can be resumed.
            GpuMemoryTaken: The same.
            KeyboardInterrupt: The same; the next start in this folder ends the lease, since this process may have been
                interrupted in the middle of a transaction.
        """
        if job.state.terminal:
            return job
        lease = leases.claim(self.database, job.id, f"pid {os.getpid()}", self.settings.lease_seconds)
        if lease is None:
            return jobs.get(self.database, job.id)
        try:
            return execute(self.database, self.artifacts, self.settings, lease, observe, ReadyRanks(process_group))
        except (ShutdownRequested, RankLost, GpuMemoryTaken):
            leases.give_back(self.database, lease)
            raise

    def deliver(self, job: Job, dataset: StoredDataset) -> dict[str, Path]:
        """Copy the job's files into the folder, images as Parquet beside the NPZ, and return the paths by name."""
        paths = {artifact.name: self._copy(artifact) for artifact in self.artifacts.list_artifacts(job.id)}
        if PACKED_IMAGES in paths:
            paths[_PARQUET] = self._write_parquet(job, dataset, paths)
        key = self.out / _SIGNING_KEY
        key.write_text(signing_key(self.database).public.pem, encoding="ascii")
        key.chmod(self.released_mode)
        return {**paths, key.name: key}

    def list_audiences(self, job: Job) -> dict[str, FileAudience]:
        """Return the audience of each delivered file, by its name."""
        files = self.artifacts.list_artifacts(job.id)
        audiences: dict[str, FileAudience] = {file.name: file.audience for file in files}
        releasable = audiences["card.json"]
        parquet = {_PARQUET: releasable} if PACKED_IMAGES in audiences else {}
        return {**audiences, **parquet, _SIGNING_KEY: releasable}

    def _write_parquet(self, job: Job, dataset: StoredDataset, paths: dict[str, Path]) -> Path:
        parquet = self.out / _PARQUET
        count = TrainingSpec.model_validate(job.spec).synthetic_images
        card = paths["card.json"].read_text(encoding="utf-8")
        if self._parquet_cards.get(job.id) != card:
            credentials = ContentCredentials.from_settings(self.settings)
            write_prefix(paths[PACKED_IMAGES], dataset.schema, json.loads(card), count, "parquet", parquet, credentials)
            parquet.chmod(self.released_mode)
            self._parquet_cards[job.id] = card
        return parquet

    def _copy(self, artifact: Artifact) -> Path:
        path = self.out / artifact.name
        path.unlink(missing_ok=True)
        shutil.copyfile(artifact.path, path)
        # Files for the owner stay unreadable to others on a shared machine.
        if artifact.releasable:
            path.chmod(self.released_mode)
        return path

    def _store_dataset(self, upload: Upload, format_name: str, epsilon: float, delta: float | None) -> StoredDataset:
        folder = self.settings.data_dir / "datasets"
        # Left by a run that was killed before it was registered.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        dataset_id = datasets.new_id()
        return self._register(upload, folder / dataset_id, format_name, dataset_id, epsilon, delta)

    def _register(
        self, upload: Upload, folder: Path, format_name: str, name: str, epsilon: float, delta: float | None
    ) -> StoredDataset:
        save_dataset(upload, folder)
        return datasets.create(
            self.database,
            dataset_id=folder.name,
            name=name,
            schema=upload.schema,
            images=upload.train.images,
            unit_ids=upload.train.units,
            format=format_name,
            has_test=upload.test is not None,
            records_path=str(folder),
            epsilon=epsilon,
            delta=delta,
        )

    def _list_datasets(self) -> tuple[StoredDataset, ...]:
        """List the data sets, oldest first: the private one, and public ones that jobs started from."""
        return tuple(reversed(_list_all(partial(datasets.list_datasets, self.database))))

    def _cancel_unfinished(self, unfinished: list[Job], ledger_units: int, dataset_id: str) -> None:
        """Cancel earlier runs with other settings, if their reservations are needed and suffice for the new one."""
        with self.database.session() as session:
            account = account_summary.summarize_account(session, dataset_id)
        if ledger_units <= account.remaining_units + account.reserved_units:
            for job in unfinished:
                jobs.request_cancel(self.database, job.id)


@contextmanager
def open_embedded_run(out: Path) -> Generator[EmbeddedRun]:
    """Open an output folder for this process alone.

    Raises:
        StateConflict: Another process works in it.
        InvalidInput: It is in use for something else.
    """
    private = out.absolute() / PRIVATE
    if not private.exists() and out.exists() and any(out.iterdir()):
        raise InvalidInput(f"{out} holds other files: choose a folder that is empty or does not exist yet.")
    settings = EmbeddedSettings.from_folder(private)
    out.mkdir(parents=True, exist_ok=True)
    # To stderr, and only what went wrong: progress is drawn by the caller.
    logs.configure("error")
    with private_umask() as umask, _lock_folder(private_folder(private) / "lock"):
        database = start(settings)
        try:
            # The lock excludes other processes, so every lease is that of a dead one.
            leases.expire_leases(database, now=datetime.max.replace(tzinfo=UTC))
            yield EmbeddedRun(out, settings, database, _PLAIN_FILE & ~umask)
        finally:
            database.dispose()


@contextmanager
def _lock_folder(path: Path) -> Generator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateConflict(f"Another process works in {path.parent.parent}: wait for its end.") from error
        yield


def _list_all(list_page: Callable[..., StoredPage[Listed]]) -> list[Listed]:
    """List all items of a list, newest first."""
    page = list_page(limit=_PAGE)
    items = [*page.items]
    while page.next_cursor is not None:
        page = list_page(limit=_PAGE, cursor=page.next_cursor)
        items += page.items
    return items


def _has_same_records(stored: Upload, upload: Upload) -> bool:
    splits = ((stored.train, upload.train), (stored.test, upload.test))
    return stored.schema == upload.schema and all(_equal_splits(*pair) for pair in splits)


def _equal_splits(left: Split | None, right: Split | None) -> bool:
    if left is None or right is None:
        return left is right
    return all(np.array_equal(getattr(left, part), getattr(right, part)) for part in ("images", "labels", "unit_ids"))
