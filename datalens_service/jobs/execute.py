"""The work of a job under a lease, and its end one way or the other.

train ──▶ package ──▶ model is ready ──▶ evaluate ──▶ state the figures ──▶ end
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from datalens_service.adapters.time_stamps import NoTimeStamp, ask_for_time_stamp
from datalens_service.audits.request import AuditRequest
from datalens_service.base import logs
from datalens_service.base.checkpoint import Checkpoints
from datalens_service.base.errors import (
    CheckpointMismatch,
    FileDamaged,
    GpuMemoryTaken,
    JobStopped,
    RankLost,
    StaleLease,
    StateConflict,
    StoreUnavailable,
    WorkerUnavailable,
)
from datalens_service.base.gpu import explain_old_driver
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.data.export.content_credentials import ContentCredentials
from datalens_service.data.export.pixel_hashes import PIXEL_HASHES, parse_hashes
from datalens_service.data.intake.stored_dataset import load_dataset
from datalens_service.evaluation.evaluate import NOTHING, PENDING, Evaluation
from datalens_service.jobs.build_report import build_job_report, build_proof
from datalens_service.jobs.failures import check_disk, describe_problem
from datalens_service.jobs.job_watch import JobWatch, ShutdownRequested
from datalens_service.jobs.memory import enough_gpu_memory, enough_memory
from datalens_service.jobs.packaging import package, restate
from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.jobs.ranks import ONE_RANK, Ranks, SharedWork
from datalens_service.jobs.release_files import ReleaseContents, SamplePreviews
from datalens_service.jobs.run_audit import AuditRun
from datalens_service.jobs.run_evaluation import EvaluationContext, measure
from datalens_service.methods import ExecutionOptions, Plan
from datalens_service.planning.resources import expect_memory
from datalens_service.proof.job_proof import AccountProof
from datalens_service.proof.time_stamp import TIME_STAMP_FILE, TIME_STAMP_TYPE
from datalens_service.services import encoders, pricing
from datalens_service.spec import Device, TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.datasets.record_files import RecordStore
from datalens_service.store.installation import signing_key
from datalens_service.store.jobs import jobs, leases, released_images
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.account import JobAccount
from datalens_service.training import Observer, Result, run

PRIVATE_READS = ("training", "attacks")

log = structlog.get_logger()


class _Task(NamedTuple):
    """A job under its lease, with all that its work needs."""

    database: Database
    artifacts: ArtifactStore
    settings: Settings
    lease: Lease
    private: PrivateFolder
    observe: Observer
    ranks: Ranks


def execute(
    database: Database,
    artifacts: ArtifactStore,
    settings: Settings,
    lease: Lease,
    observe: Observer | None = None,
    ranks: Ranks = ONE_RANK,
) -> Job:
    """Do the job and end it: succeeded, cancelled, or failed with a problem that is safe to show.

    Args:
        settings: Folders for private state while it runs, and the device to train on.
        observe: Told of every step; may raise ShutdownRequested.
        ranks: Processes that may share its teachers, of which this one leads.

    Returns:
        The job as it ended.

    Raises:
        StaleLease: Another worker holds the job; nothing more was written.
        StoreUnavailable: The job has not ended and can be resumed.
        ShutdownRequested: The same.
        RankLost: The same.
        GpuMemoryTaken: The same.
    """
    private = PrivateFolder(settings.data_dir, lease)
    private.open()
    with JobWatch(database, private, lease, observe) as watch:
        with private.for_temporary_files():
            state, problem = _attempt(_Task(database, artifacts, settings, lease, private, watch, ranks))
        # Before the end, so that an ended job has none; a crash in between only costs the checkpoint.
        private.close()
        job = leases.finish(database, lease, state, problem)
        private.remove_job()
    return job


def _attempt(task: _Task) -> tuple[JobState, dict[str, Any] | None]:
    """Do the work; the state in which the job ends, and the problem of a failed one."""
    try:
        work = _attack if jobs.get(task.database, task.lease.job_id).is_audit else _work
        work(task)
    except (StaleLease, StoreUnavailable, ShutdownRequested, RankLost, GpuMemoryTaken):
        raise
    except JobStopped:
        return JobState.CANCELLED, None
    except Exception as error:  # noqa: BLE001 (whatever ended the job has to be on its row)
        check_disk(error, task.settings.data_dir)
        problem = describe_problem(error)
        log.error("job failed", job_id=task.lease.job_id, problem=problem["type"], **logs.outline(error))
        return JobState.FAILED, problem
    return JobState.SUCCEEDED, None


def _work(task: _Task) -> None:
    job = jobs.get(task.database, task.lease.job_id)
    spec = TrainingSpec.model_validate(job.spec)
    device = training_device(choose_device(spec.device, task.settings.device))
    needed = expect_memory(spec.method, datasets.get(task.database, job.dataset_id).schema)
    with enough_memory(needed) if device == "cpu" else enough_gpu_memory(needed, device):
        _make_model(task, job, spec, device)


def _make_model(task: _Task, job: Job, spec: TrainingSpec, device: str) -> None:
    database, settings, lease, private = task.database, task.settings, task.lease, task.private
    stored, records, dataset = _open_records(task, job.dataset_id)
    checkpoints = Checkpoints(private.checkpoint, spec.digest())
    account = JobAccount(database, lease.job_id, lease.token)
    credentials = ContentCredentials.from_settings(settings)
    previews = SamplePreviews(task.artifacts, lease, credentials=credentials)
    plan = _release_plan(database, job, spec, dataset.schema)
    public = _public(database, spec.public_data, job)
    images = (
        None
        if public is None
        else load_dataset(RecordStore(settings).fetch(public.records_path, private.path / "public"))
    )
    encoder = encoders.find(task.artifacts, spec.method)
    work = SharedWork(job.id, spec.method.max_ranks(dataset.schema), stored.records_path, records, private.path)
    with task.ranks.share(work) as group:
        options = ExecutionOptions(
            device,
            private.path,
            group,
            settings.data_dir / "public-models",
            encoder,
            apart=settings.contributions_apart,
        )
        begin = partial(run, spec, dataset, account=account, plan=plan, observe=task.observe, previews=previews)
        result = _run(partial(begin, checkpoints=checkpoints, options=options, public=images), checkpoints)
    result = _named(result, public)
    writer = _ReleaseWriter(task, result, spec.synthetic_images, credentials)
    proof = writer.store(package, PENDING if spec.evaluation.enabled else NOTHING)
    writer.record_images()
    leases.mark_released(database, lease, result.model.result)
    if spec.evaluation.enabled:
        context = EvaluationContext(database, settings, lease, private.path, device)
        proof = writer.store(restate, measure(result, spec, dataset, context, task.observe))
    _have_head_witnessed(task, proof)


def _attack(task: _Task) -> None:
    """An audit in place of a job: it trains here alone and releases nothing."""
    job = jobs.get(task.database, task.lease.job_id)
    _, _, dataset = _open_records(task, job.dataset_id)
    request = AuditRequest.model_validate(job.spec)
    task.ranks.shutdown()
    options = ExecutionOptions(training_device(choose_device(request.device, task.settings.device)), task.private.path)
    AuditRun(task.database, task.artifacts, request, dataset, task.observe, options).do(task.lease)


class _ReleaseWriter(NamedTuple):
    """Writes what a trained job hands out."""

    task: _Task
    result: Result
    num_images: int
    credentials: ContentCredentials | None

    def store(self, write: Callable[..., None], evaluation: Evaluation) -> AccountProof:
        """Store report and proof as the ledger stands now, and the files that `write` makes of them; the proof."""
        database, lease, folder = self.task.database, self.task.lease, self.task.private.path
        report = build_job_report(database, self.task.settings, lease.job_id, self.result, evaluation)
        proof, key, files = build_proof(database, lease.job_id, report), signing_key(database), self.result.extras.files
        contents = ReleaseContents(
            folder, self.result.model, report, proof, key, self.num_images, files, self.credentials
        )
        write(self.task.artifacts, lease, contents, self.task.observe)
        return proof

    def record_images(self) -> None:
        """Note the hashes of the synthetic images that were packed, by which they are found again."""
        hashes = self.task.private.path / PIXEL_HASHES
        if hashes.exists():
            released_images.record(self.task.database, self.task.lease, parse_hashes(hashes.read_text()))


def _have_head_witnessed(task: _Task, proof: AccountProof) -> None:
    """Store a time stamp of the head of the journal that was just stored, if the operator named an authority.

    The release is out by now. Without an answer the job succeeds, and the log says so.
    """
    authority = task.settings.timestamp_url.get_secret_value()
    if not authority:
        return
    try:
        stamp = ask_for_time_stamp(authority, proof.account.head.hash)
    except NoTimeStamp as error:
        log.warning("no time stamp of the account's head", job_id=task.lease.job_id, detail=str(error))
        return
    task.artifacts.put(task.lease, TIME_STAMP_FILE, stamp, releasable=False, media_type=TIME_STAMP_TYPE)


def _run(begin: Callable[[], Result], checkpoints: Checkpoints) -> Result:
    try:
        return begin()
    except CheckpointMismatch:
        # The file is from an older version. Replaying the stored sums from the start takes longer, and is enough.
        checkpoints.discard()
        return begin()


def _release_plan(database: Database, job: Job, spec: TrainingSpec, schema: Schema) -> Plan:
    """Return the plan that was reserved, even where this version would plan the same spec otherwise."""
    stored = jobs.get_plan(database, job.id)
    if stored is not None:
        return stored
    # The version that stored this job kept only the price.
    plan = spec.plan(schema)
    if plan.cost() != job.price.get("units"):
        raise StateConflict("This version plans the job differently from the plan that was reserved; submit it again.")
    return plan


def _public(database: Database, dataset_id: str | None, job: Job) -> StoredDataset | None:
    """The public data of a job. Whether they may be used is asked again here: no private set may pass for one."""
    if dataset_id is None:
        return None
    return pricing.check_public_data(database, job.tenant_id, dataset_id, datasets.get(database, job.dataset_id))


def _named(result: Result, public: StoredDataset | None) -> Result:
    """Add what the owner said of the public data that the model started from."""
    images = result.public_inputs.images
    if public is None or images is None:
        return result
    said = {"name": public.name, "license": public.schema.public_license}
    inputs = result.public_inputs.model_copy(update={"images": images.model_copy(update=said)})
    return replace(result, public_inputs=inputs)


def _open_records(task: _Task, dataset_id: str) -> tuple[StoredDataset, Path, Dataset]:
    """The data set as the service knows it, the folder of its records, and these."""
    stored = datasets.get(task.database, dataset_id)
    if stored.partition_key is None:
        raise StateConflict("The data set was deleted; upload it again to train on it.")
    records = RecordStore(task.settings).fetch(stored.records_path, task.private.path / "records")
    upload = load_dataset(records)
    if stored.has_test != (upload.test is not None):
        raise FileDamaged("The stored test images are lost. Restore the data set from a backup, or upload it again.")
    return stored, records, Dataset(*upload, stored.partition_key)


def choose_device(requested: Device, device: str) -> str:
    """Return the device of a job, on a worker that is set to `device`.

    Raises:
        WorkerUnavailable: The job wants a GPU, and the worker is set not to use one.
    """
    if requested is Device.CPU:
        return "cpu"
    if requested is Device.GPU and device == "cpu":
        raise WorkerUnavailable("The job wants a GPU, and ⟦DATALENS_DEVICE⟧ keeps this worker on the CPU.")
    return "cuda" if requested is Device.GPU and device == "auto" else device


def training_device(device: str) -> str:
    """The device as torch calls it; torch is not needed for `cpu`.

    Raises:
        WorkerUnavailable: A GPU is demanded and there is none.
    """
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda" if device == "auto" else device
    if device != "auto":
        why = explain_old_driver() or ""
        raise WorkerUnavailable(f"{device} is wanted, and this worker has no GPU that torch can use. {why}".rstrip())
    return "cpu"
