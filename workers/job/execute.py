"""The work of a job under a lease, and its end one way or the other.

train ──▶ package ──▶ model is ready ──▶ evaluate ──▶ state the figures ──▶ end
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from datalens_service import logs
from datalens_service.checkpoint import Checkpoints
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.data.stored_dataset import load_dataset
from datalens_service.errors import (
    CheckpointMismatch,
    JobStopped,
    RankLost,
    StaleLease,
    StateConflict,
    StoreUnavailable,
)
from datalens_service.evaluation.evaluate import PENDING, Evaluation
from datalens_service.methods import ExecutionOptions, Plan
from datalens_service.process_group import SINGLE_PROCESS, ProcessGroup
from datalens_service.run import Observer, Result, run
from datalens_service.settings import Settings
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.signing_key import signing_key
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.account import JobAccount
from workers.job.build_report import proof_for, report_of
from workers.job.device import device_for, training_device
from workers.job.failures import check_disk, problem_of
from workers.job.observer import JobObserver, ShutdownRequested
from workers.job.packaging import package, restate
from workers.job.previews import SamplePreviews
from workers.job.private_folder import PrivateFolder
from workers.job.release_files import ReleaseContents
from workers.job.run_evaluation import Workplace, measure

log = structlog.get_logger()


def execute(
    database: Database,
    artifacts: ArtifactStore,
    settings: Settings,
    lease: Lease,
    observe: Observer | None = None,
    ranks: ProcessGroup = SINGLE_PROCESS,
) -> Job:
    """Do the job and end it: succeeded, cancelled, or failed with a problem that is safe to show.

    Args:
        database: Of the job, its data set and its account.
        artifacts: Where the files go that the job makes.
        settings: Where private state goes while it runs, and where to train.
        lease: Of the job; the caller keeps it alive.
        observe: Told of every step; may raise ShutdownRequested.
        ranks: Processes that share its teachers, of which this one leads.

    Returns:
        The job as it ended.

    Raises:
        StaleLease: Another worker holds the job; nothing more was written.
        StoreUnavailable: The job has not ended and can be resumed.
        ShutdownRequested: The same.
        RankLost: The same.
    """
    private = PrivateFolder(settings.data_dir, lease)
    private.open()
    state, problem = JobState.SUCCEEDED, None
    try:
        with JobObserver(database, lease, observe) as observer:
            _work(database, artifacts, settings, lease, private, observer, ranks)
    except (StaleLease, StoreUnavailable, ShutdownRequested, RankLost):
        raise
    except JobStopped:
        state = JobState.CANCELLED
    except Exception as error:  # noqa: BLE001 (whatever ended the job has to be on its row)
        check_disk(error, settings.data_dir)
        state, problem = JobState.FAILED, problem_of(error)
        log.error("job failed", job_id=lease.job_id, problem=problem["type"], **logs.outline(error))
    # Before the end, so that an ended job has none; a crash in between only costs the checkpoint.
    private.close()
    job = leases.finish(database, lease, state, problem)
    private.remove_job()
    return job


def _work(
    database: Database,
    artifacts: ArtifactStore,
    settings: Settings,
    lease: Lease,
    private: PrivateFolder,
    observe: Observer,
    ranks: ProcessGroup,
) -> None:
    job = jobs.get(database, lease.job_id)
    spec = TrainingSpec.model_validate(job.spec)
    dataset = _dataset(database, job.dataset_id)
    device = training_device(device_for(spec.device, settings.device))
    checkpoints = Checkpoints(private.checkpoint, spec.digest())
    account = JobAccount(database, lease.job_id, lease.token)
    previews = SamplePreviews(artifacts, lease)
    plan = _release_plan(database, job, spec, dataset.schema)
    options = ExecutionOptions(device, private.path, ranks)
    result = _run(spec, plan, dataset, account, observe, checkpoints, previews, options)
    ranks.shutdown()
    writer = _ReleaseWriter(database, artifacts, settings, lease, private.path, result, spec.synthetic_images, observe)
    writer.store(package, PENDING if spec.evaluation.enabled else Evaluation())
    leases.mark_released(database, lease, result.model.result)
    if spec.evaluation.enabled:
        workplace = Workplace(database, lease, private.path, device, settings.inception_weights)
        writer.store(restate, measure(result, spec, dataset, workplace, observe))


class _ReleaseWriter(NamedTuple):
    """Writes what a trained job hands out."""

    database: Database
    artifacts: ArtifactStore
    settings: Settings
    lease: Lease
    folder: Path
    result: Result
    num_images: int
    observe: Observer

    def store(self, write: Callable[..., None], evaluation: Evaluation) -> None:
        """Report and proof as the ledger stands now, and the files that `write` makes of them."""
        report = report_of(self.database, self.settings, self.lease.job_id, self.result, evaluation)
        proof = proof_for(self.database, self.lease.job_id, report)
        key = signing_key(self.database)
        contents = ReleaseContents(self.folder, self.result.model, report, proof, key, self.num_images)
        write(self.artifacts, self.lease, contents, self.observe)


def _run(
    spec: TrainingSpec,
    plan: Plan,
    dataset: Dataset,
    account: JobAccount,
    observe: Observer,
    checkpoints: Checkpoints,
    previews: SamplePreviews,
    options: ExecutionOptions,
) -> Result:
    begin = partial(
        run,
        spec,
        dataset,
        account=account,
        plan=plan,
        observe=observe,
        checkpoints=checkpoints,
        previews=previews,
        options=options,
    )
    try:
        return begin()
    except CheckpointMismatch:
        # Of an older version of this program. Replaying the stored sums from the start takes longer, and is enough.
        checkpoints.discard()
        return begin()


def _release_plan(database: Database, job: Job, spec: TrainingSpec, schema: Schema) -> Plan:
    """What was reserved: also where this version would plan the same spec otherwise."""
    stored = jobs.get_release_plan(database, job.id)
    if stored is not None:
        return stored
    # Of a version that kept only the price.
    plan = spec.plan(schema)
    if plan.units() != job.plan.get("units"):
        raise StateConflict("This version would run the job otherwise than its budget was reserved; submit it again.")
    return plan


def _dataset(database: Database, dataset_id: str) -> Dataset:
    stored = datasets.get(database, dataset_id)
    if stored.partition_key is None:
        raise StateConflict("The data set was deleted; upload it again to train on it.")
    return load_dataset(Path(stored.records_path), stored.partition_key)
