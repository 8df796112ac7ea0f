"""The work of a job under a lease: train, evaluate, package, and end the job one way or the other."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import structlog

from datalens_service import logs
from datalens_service.checkpoint import Checkpoints
from datalens_service.data.dataset import Dataset
from datalens_service.data.stored import load_dataset
from datalens_service.errors import (
    CheckpointMismatch,
    JobStopped,
    RankLost,
    StaleLease,
    StateConflict,
    StoreUnavailable,
)
from datalens_service.methods import Place
from datalens_service.ranks import ALONE, Ranks
from datalens_service.run import Observer, Result, run
from datalens_service.settings import Settings
from datalens_service.spec import TrainingSpec
from datalens_service.store import datasets, jobs, leases
from datalens_service.store.account import JobAccount
from datalens_service.store.artifacts import ArtifactStore
from datalens_service.store.database import Database
from datalens_service.store.jobs import Job, JobState
from datalens_service.store.leases import Lease
from datalens_service.store.signing_key import signing_key
from workers.device import device_for, training_device
from workers.failures import problem_of
from workers.measuring import Workplace, measure
from workers.observer import JobObserver, ShutdownRequested
from workers.packaging import package
from workers.previews import SamplePreviews
from workers.private_folder import PrivateFolder
from workers.reporting import proof_for, report_of

log = structlog.get_logger()


def execute(
    database: Database,
    artifacts: ArtifactStore,
    settings: Settings,
    lease: Lease,
    observe: Observer | None = None,
    ranks: Ranks = ALONE,
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
    ranks: Ranks,
) -> None:
    job = jobs.get(database, lease.job_id)
    spec = TrainingSpec.model_validate(job.spec)
    dataset = _dataset(database, job.dataset_id)
    device = training_device(device_for(spec.device, settings.device))
    checkpoints = Checkpoints(private.checkpoint, spec.digest())
    account = JobAccount(database, lease.job_id, lease.token)
    previews = SamplePreviews(artifacts, lease)
    result = _run(spec, dataset, account, observe, checkpoints, previews, Place(device, private.path, ranks))
    ranks.dismiss()
    workplace = Workplace(database, lease, private.path, device, settings.inception_weights)
    evaluation = measure(result, spec, dataset, workplace, observe)
    report = report_of(database, settings, lease.job_id, result, evaluation)
    proof = proof_for(database, lease.job_id, report)
    key, count = signing_key(database), spec.synthetic_images
    package(artifacts, lease, private.path, result.generator, report, proof, key, count, observe)


def _run(
    spec: TrainingSpec,
    dataset: Dataset,
    account: JobAccount,
    observe: Observer,
    checkpoints: Checkpoints,
    previews: SamplePreviews,
    place: Place,
) -> Result:
    begin = partial(
        run, spec, dataset, account=account, observe=observe, checkpoints=checkpoints, previews=previews, place=place
    )
    try:
        return begin()
    except CheckpointMismatch:
        # Of an older version of this program. Replaying the stored sums from the start takes longer, and is enough.
        checkpoints.discard()
        return begin()


def _dataset(database: Database, dataset_id: str) -> Dataset:
    stored = datasets.get(database, dataset_id)
    if stored.partition_key is None:
        raise StateConflict("The data set was deleted; upload it again to train on it.")
    return load_dataset(Path(stored.records_path), stored.partition_key)
