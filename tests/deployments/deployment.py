"""A whole deployment in a folder: settings, data sets, jobs, and real processes on them."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, make_url, select, update

from datalens_service.adapters.dispatch import Dispatcher
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.data.intake.stored_dataset import save_dataset
from datalens_service.jobs.execute import execute
from datalens_service.proof.hash_chain import SPENDS, Balance, Entry, EntryKind
from datalens_service.services.pricing import price_request
from datalens_service.services.submit_job import submit_job
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.account_summary import AccountSummary, entries, summarize_account
from datalens_service.store.ledger.chain_verification import verify_chain
from datalens_service.store.schema.tables import AggregateRow, JobRow, ReleasedStateRow
from datalens_service.workers.process.fork_server import ForkedProcess
from deployments.fork_servers import fork_server, start_program
from deployments.forked_programs import ForkedProgram
from deployments.hold import Hold

CLASSES = ("bright", "dark")
EVALUATION = {"epochs": 1, "synthetic_images": 200, "seeds": 1}
MOMENTS: dict[str, Any] = {
    "method": {"name": "moments", "subspace_dimensions": 8},
    "epsilon": 2.0,
    "synthetic_images": 64,
    "evaluation": EVALUATION,
}
QUICK = {**MOMENTS, "evaluation": {"enabled": False}}
# Short steps, to be held (`Deployment.held`) and interrupted between any two.
VOTES: dict[str, Any] = {
    "method": {
        "name": "datalens",
        "teacher": "dense",
        "num_teachers": 20,
        "images_per_step": 4,
        "top_k": 8,
        "teacher_batch": 4,
        "teacher_warmup_steps": 2,
        "threshold": "none",
        "steps": 20,
    },
    "epsilon": 2.0,
    "synthetic_images": 64,
    "evaluation": {"enabled": False},
}
Process = subprocess.Popen[bytes] | ForkedProgram
LEASE_SECONDS = 30
PATIENCE = 280.0


class Deployment:
    """What an operator has set up in `folder`, on a migrated database with a ledger log."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.log = folder / "worker.log"
        self.changes: dict[str, str] = {}
        self._hold = Hold(folder)
        self._processes: list[Process] = []
        self._jobs: list[ForkedProcess] = []

    @property
    def settings(self) -> Settings:
        return Settings(
            data_dir=self.folder,
            database_url=self.database.url,
            ledger_log=self.ledger_log,
            lease_seconds=LEASE_SECONDS,
        )

    @property
    def ledger_log(self) -> Path:
        """The log that the database was charged with: no other process may have another one."""
        return self.database.log.path if self.database.log is not None else self.folder / "ledger.log"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DATALENS_DATA_DIR": str(self.folder),
            "DATALENS_DATABASE_URL": self.database.url,
            "DATALENS_LEDGER_LOG": str(self.ledger_log),
            "DATALENS_LEASE_SECONDS": str(LEASE_SECONDS),
            "DATALENS_DEVICE": "cpu",
            "OMP_NUM_THREADS": "1",
            **self._hold.environment,
            **self.changes,
        }

    def held(self, step: int, after: str = "store") -> AbstractContextManager[None]:
        """Meanwhile, job processes stand still behind a release; see `Hold.behind`."""
        return self._hold.behind(step, after)

    def upload(self, dataset: Dataset) -> StoredDataset:
        dataset_id = datasets.new_id()
        path = self.folder / "datasets" / dataset_id
        path.parent.mkdir(exist_ok=True)
        save_dataset(dataset, path)
        return datasets.create(
            self.database,
            dataset_id=dataset_id,
            name="lamps",
            schema=dataset.schema,
            images=dataset.train.images,
            unit_ids=dataset.train.units,
            format="npz",
            has_test=dataset.test is not None,
            records_path=str(path),
            epsilon=10.0,
        )

    def submit(self, request: dict[str, Any], dataset: StoredDataset | None = None, **changes: Any) -> Job:
        stored = dataset or self.upload(lamps())
        price = price_request(self.database, stored.tenant_id, stored.id, TrainingSpec.model_validate(request))
        return submit_job(self.database, Dispatcher(), price, **{"submitted_by": "key_test", **changes})

    def claim(self, job: Job) -> Lease:
        lease = leases.claim(self.database, job.id, "test", 600)
        assert lease is not None
        return lease

    def execute(self, job: Job, observe: Any = None, lease: Lease | None = None) -> Job:
        """Do the job in this process; without a lease under a new one."""
        return execute(self.database, self.artifacts, self.settings, lease or self.claim(job), observe)

    @property
    def artifacts(self) -> ArtifactStore:
        return ArtifactStore(self.database, self.folder)

    def read(self, job: Job, name: str) -> bytes:
        """A file of a job."""
        return self.artifacts.get(job.id, name).path.read_bytes()

    def read_json(self, job: Job, name: str) -> Any:
        return json.loads(self.read(job, name))

    def job(self, job: Job) -> Job:
        return jobs.get(self.database, job.id)

    def stored_steps(self, job: Job) -> dict[int, str]:
        """Digest of the stored noisy sum per step."""
        with self.database.session() as session:
            query = select(AggregateRow.step, AggregateRow.sha256).where(AggregateRow.job_id == job.id)
            return {row.step: row.sha256 for row in session.execute(query)}

    def first_kept_step(self, job: Job) -> int:
        """The step up to which a state stands in the place of sums; 0 without one."""
        with self.database.session() as session:
            return session.scalar(select(ReleasedStateRow.step).where(ReleasedStateRow.job_id == job.id)) or 0

    def charged_steps(self, job: Job) -> list[int | None]:
        """The step of each charge, in their order."""
        return [entry.step for entry in self.entries(job) if entry.kind == EntryKind.CHARGE]

    def latest_token(self, job: Job) -> int:
        """Token under which the last noisy sum was stored."""
        with self.database.session() as session:
            return session.scalar(select(func.max(AggregateRow.lease_token)).where(AggregateRow.job_id == job.id)) or 0

    def entries(self, job: Job) -> list[Entry]:
        with self.database.session() as session:
            return [entry for entry in entries(session, job.dataset_id) if entry.job_id == job.id]

    def verified(self, job: Job) -> Balance:
        with self.database.session() as session:
            return verify_chain(session, job.dataset_id)

    def statement(self, job: Job) -> AccountSummary:
        with self.database.session() as session:
            return summarize_account(session, job.dataset_id)

    def worker_pid(self, job: Job) -> int:
        """Of the process that holds the job's lease, as it named itself."""
        with self.database.session() as session:
            owner = session.scalar(select(JobRow.lease_owner).where(JobRow.id == job.id))
        assert owner is not None
        return int(owner.rpartition(":")[2])

    def runs_out_at(self, job: Job) -> datetime:
        """Until when the job is held, unless its lease is renewed."""
        with self.database.session() as session:
            until = session.scalar(select(JobRow.lease_until).where(JobRow.id == job.id))
        assert until is not None
        return until

    def lose_lease(self, job: Job) -> None:
        """As if its worker had been silent for too long."""
        with self.database.transaction() as session:
            session.execute(update(JobRow).where(JobRow.id == job.id).values(lease_until=JobRow.created_at))

    def private_folders(self) -> list[Path]:
        # A walk of the operating system's kind: folders may be removed while it looks.
        walked = os.walk(self.folder / "private")
        return sorted(Path(folder) / name for folder, names, _files in walked for name in names)

    def assert_balanced(self, job: Job) -> None:
        """Chain in order, every draw paid for, one draw per step, nothing under-counted or still reserved."""
        self.verified(job)
        # A kill between a charge's line in the log and its commit leaves a charge that the next start books.
        charges = [entry for entry in self.entries(job) if entry.kind in SPENDS]
        drawn, ended = self.stored_steps(job), self.job(job)
        first = self.first_kept_step(job)
        assert sorted(drawn) == list(range(first, first + len(drawn)))
        assert {entry.step for entry in charges} >= drawn.keys()
        assert ended.charged_units == sum(entry.ledger_units for entry in charges)
        assert self.statement(job).charged_units == ended.charged_units
        assert self.statement(job).reserved_units == ended.reserved_units == 0

    def start(self, *arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen[bytes]:
        """A process of Python."""
        with self.log.open("ab") as log:
            command = [sys.executable, *arguments]
            environment = self.environment | variables
            process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def start_module(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        return self.start("-m", module, *arguments)

    def start_warm(self, module: str, *arguments: str) -> Process:
        """An API or a worker that has imported everything already, unless it loads what only this deployment has."""
        if "PYTHONPATH" in self.changes:
            return self.start_module(module, *arguments)
        with self.log.open("ab") as log:
            process = start_program((module, *arguments), self.environment, log.fileno(), log.fileno())
        self._processes.append(process)
        return process

    def start_job(self, *arguments: str) -> ForkedProcess:
        """`workers.run_job`, forked as a worker does it."""
        with self.log.open("ab") as log:
            process = fork_server().fork(arguments, self.environment, log.fileno(), log.fileno())
        self._jobs.append(process)
        return process

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain; the log says:\n{self.log.read_text()}")
            time.sleep(0.05)

    def wait_for_steps(self, job: Job, count: int) -> None:
        self.wait(lambda: len(self.stored_steps(job)) >= count or self.job(job).state.terminal)
        assert self.job(job).state == JobState.RUNNING, "the job ended before it could be interrupted"

    def wait_for_end(self, job: Job) -> Job:
        self.wait(lambda: self.job(job).state.terminal)
        return self.job(job)

    def close(self) -> None:
        """Stop every process that was started here, and every job process they left."""
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for forked in self._jobs:
            forked.kill()
        for job in jobs.list_jobs(self.database, JobFilter(state=JobState.RUNNING)).items:
            with contextlib.suppress(ValueError, ProcessLookupError):
                # A test that failed may have left its job in this process.
                if (worker := self.worker_pid(job)) != os.getpid():
                    os.kill(worker, signal.SIGKILL)


def lamps(seed: int = 0, *, with_test: bool = True) -> Dataset:
    """Small pictures of two kinds that a mean tells apart; other seeds share none."""
    rng = np.random.default_rng(seed)
    schema = Schema(channels=1, height=8, width=8, class_names=CLASSES, num_units=400)
    return Dataset(schema, _split(rng, 400), _split(rng, 60) if with_test else None, b"k" * 32)


def _split(rng: np.random.Generator, count: int) -> Split:
    labels = rng.integers(0, 2, count)
    images = rng.integers(0, 80, (count, 8, 8, 1)) + np.where(labels == 0, 150, 0)[:, None, None, None]
    return Split(images.astype(np.uint8), labels.astype(np.int64))


def stop_between_transactions(process_id: int, database: Database) -> None:
    """SIGSTOP a process at a moment when it does not hold the write lock of an SQLite database."""
    file = make_url(database.url).database
    assert file is not None
    assert Path(file).exists()
    while True:
        os.kill(process_id, signal.SIGSTOP)
        # A thread inside a system call stops when the call ends, and the call may be the one that takes the lock.
        while not _stopped(process_id):
            time.sleep(0.001)
        connection = sqlite3.connect(file, timeout=0)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            os.kill(process_id, signal.SIGCONT)
            time.sleep(0.01)
        finally:
            connection.close()


def _stopped(process_id: int) -> bool:
    """Whether every thread of a process has stopped; one that ended meanwhile cannot take the lock any more."""
    states = []
    for task in Path(f"/proc/{process_id}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.append(task.read_text().rpartition(")")[2].split()[0])
    return all(state == "T" for state in states)
