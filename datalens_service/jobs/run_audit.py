"""The work of an audit: train what is attacked, attack it, and keep figures for the owner. No model is stored."""

from dataclasses import replace

from datalens_service.audits.audit import AuditResult, AuditSettings, Train
from datalens_service.audits.reconstruction import NO_MODEL, Reconstruction, invert_records
from datalens_service.audits.rehearsal import rehearse
from datalens_service.audits.released_model import attack_released_model
from datalens_service.audits.request import AuditRequest, RehearsedMethod, ReleasedJob, UnprotectedNetwork
from datalens_service.audits.unprotected import train_unprotected
from datalens_service.data.dataset import Dataset
from datalens_service.methods import DpSgd, ExecutionOptions
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedModel
from datalens_service.phases import Phase
from datalens_service.privacy.accounting import mu_of_units
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.run import Observer, run
from datalens_service.services import encoders
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import audits, jobs
from datalens_service.store.jobs.leases import Lease


def run_audit(
    database: Database,
    artifacts: ArtifactStore,
    lease: Lease,
    request: AuditRequest,
    dataset: Dataset,
    observe: Observer,
    options: ExecutionOptions,
) -> None:
    """Do an audit and note what it found.

    Progress is the number of models that were trained: of the request, not of the records.

    Raises:
        InvalidInput: Too few units or test images.
    """
    result, picture = _AuditRun(database, artifacts, request, dataset, observe, options).run()
    audits.store_result(database, lease, result.model_dump(mode="json"), picture)


class _AuditRun:
    """One audit, with the number of models trained so far."""

    def __init__(
        self,
        database: Database,
        artifacts: ArtifactStore,
        request: AuditRequest,
        dataset: Dataset,
        observe: Observer,
        options: ExecutionOptions,
    ) -> None:
        self._database = database
        self._artifacts = artifacts
        self._request = request
        self._dataset = dataset
        self._observe = observe
        self._options = options
        self._trained = 0
        membership, rehearsed = request.membership, request.target.kind != "released"
        self._models = 0 if membership is None else membership.models + rehearsed

    def run(self) -> tuple[AuditResult, bytes | None]:
        """Train, attack, score; what was found, and the picture of inversion if it was asked for."""
        self._tell()
        membership = self._request.membership
        result = NO_MODEL if membership is None else self._tell_members(membership)
        inverted = self._invert() if self._request.inverts else None
        self._observe(Phase.ATTACKING, max(1, self._models), max(1, self._models))
        if inverted is None:
            return result, None
        return result.model_copy(update={"inversion": inverted.figures}), inverted.picture

    def _tell_members(self, settings: AuditSettings) -> AuditResult:
        match self._request.target:
            case RehearsedMethod(spec=spec):
                mu = mu_of_units(spec.limit_units(self._dataset.schema))
                return rehearse(self._dataset, self._private(spec), mu, settings)
            case UnprotectedNetwork(passes=passes):
                return rehearse(self._dataset, self._unprotected(passes), None, settings)
            case ReleasedJob(job_id=job_id):
                return self._attack_released(job_id, settings)

    def _invert(self) -> Reconstruction:
        """Gradients of the method as the job would release them, or did."""
        target, effort = self._request.target, self._request.inversion
        spec: TrainingSpec | None = None
        if isinstance(target, RehearsedMethod):
            spec = target.spec
        elif isinstance(target, ReleasedJob):
            spec = TrainingSpec.model_validate(jobs.get(self._database, target.job_id).spec)
        method = spec.method if spec is not None and isinstance(spec.method, DpSgd) else None
        plan = None if spec is None else spec.plan(self._dataset.schema)
        settings = effort.settings(self._request.seed)
        return invert_records(self._dataset, method, plan, effort.records, settings, self._tell)

    def _attack_released(self, job_id: str, settings: AuditSettings) -> AuditResult:
        job = jobs.get(self._database, job_id)
        spec = TrainingSpec.model_validate(job.spec)
        model = self._load(job_id, job.result)
        # From the ledger, not from the plan: what the model was charged.
        mu = mu_of_units(job.charged_units)
        return attack_released_model(model, self._dataset, self._private(spec), mu, settings)

    def _load(self, job_id: str, result: str | None) -> ReleasedModel:
        if result == Classifier.result:
            return Classifier.load(self._artifacts.releasable(job_id, "classifier.safetensors").path)
        return Generator.load(self._artifacts.releasable(job_id, "generator.safetensors").path)

    def _private(self, spec: TrainingSpec) -> Train:
        options = replace(self._options, encoder=encoders.find(self._artifacts, spec.method))

        def train(part: Dataset, seed: int) -> ReleasedModel:
            seeded = spec.model_copy(update={"seed": seed})
            # Nothing of the model leaves the process, so nothing is charged.
            account = UnchargedAccount()
            model = run(seeded, part, account=account, observe=self._step, options=options).model
            self._count()
            return model

        return train

    def _unprotected(self, passes: int) -> Train:
        def train(part: Dataset, seed: int) -> ReleasedModel:
            model = train_unprotected(part, seed, passes)
            self._count()
            return model

        return train

    def _step(self, _phase: Phase, _value: int, _maximum: int) -> None:
        """Between two steps of a model: only whether to go on is asked."""
        self._tell()

    def _count(self) -> None:
        self._trained += 1
        self._tell()

    def _tell(self) -> None:
        # The last value is told once everything is scored.
        self._observe(Phase.ATTACKING, min(self._trained, max(0, self._models - 1)), max(1, self._models))
