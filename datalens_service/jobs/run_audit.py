"""The work of an audit: train what is attacked, attack it, and keep figures for the owner. No model is stored."""

from dataclasses import dataclass, replace

from datalens_service.audits.audit import AuditResult, AuditSettings, Train
from datalens_service.audits.reconstruction import NO_MODEL, Reconstruction, invert_records
from datalens_service.audits.request import AuditRequest, RehearsedMethod, ReleasedJob, UnprotectedNetwork
from datalens_service.audits.targets import attack_released_model, rehearse, train_unprotected
from datalens_service.base.progress import Phase
from datalens_service.data.dataset import Dataset
from datalens_service.methods import DpSgd, ExecutionOptions
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedModel
from datalens_service.privacy.accounting import mu_of_ledger_units
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.services import encoders
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import audits, jobs
from datalens_service.store.jobs.leases import Lease
from datalens_service.training import Observer, run


@dataclass
class AuditRun:
    """The work of one audit, with the number of models trained so far.

    Progress is the number of models that were trained: of the request, not of the records.
    """

    database: Database
    artifacts: ArtifactStore
    request: AuditRequest
    dataset: Dataset
    observe: Observer
    options: ExecutionOptions

    def __post_init__(self) -> None:
        self._trained = 0
        membership, rehearsed = self.request.membership, self.request.target.kind != "released"
        self._models = 0 if membership is None else membership.models + rehearsed

    def do(self, lease: Lease) -> None:
        """Note what it found.

        Raises:
            InvalidInput: Too few units or test images.
        """
        result, picture = self.run()
        audits.store_result(self.database, lease, result.model_dump(mode="json"), picture)

    def run(self) -> tuple[AuditResult, bytes | None]:
        """Train, attack, score; what was found, and the picture of inversion if it was asked for."""
        self._tell()
        membership = self.request.membership
        result = NO_MODEL if membership is None else self._tell_members(membership)
        inverted = self._invert() if self.request.inverts else None
        self.observe(Phase.ATTACKING, max(1, self._models), max(1, self._models))
        if inverted is None:
            return result, None
        return result.model_copy(update={"inversion": inverted.figures}), inverted.picture

    def _tell_members(self, settings: AuditSettings) -> AuditResult:
        match self.request.target:
            case RehearsedMethod(spec=spec):
                mu = mu_of_ledger_units(spec.limit_units(self.dataset.schema))
                return rehearse(self.dataset, self._private(spec), mu, settings)
            case UnprotectedNetwork(passes=passes):
                return rehearse(self.dataset, self._unprotected(passes), None, settings)
            case ReleasedJob(job_id=job_id):
                return self._attack_released(job_id, settings)

    def _invert(self) -> Reconstruction:
        """Gradients of the method as the job would release them, or did."""
        target, effort = self.request.target, self.request.inversion
        spec: TrainingSpec | None = None
        if isinstance(target, RehearsedMethod):
            spec = target.spec
        elif isinstance(target, ReleasedJob):
            spec = TrainingSpec.model_validate(jobs.get(self.database, target.job_id).spec)
        method = spec.method if spec is not None and isinstance(spec.method, DpSgd) else None
        plan = None if spec is None else spec.plan(self.dataset.schema)
        settings = effort.settings(self.request.seed)
        return invert_records(self.dataset, method, plan, effort.records, settings, self._tell)

    def _attack_released(self, job_id: str, settings: AuditSettings) -> AuditResult:
        job = jobs.get(self.database, job_id)
        spec = TrainingSpec.model_validate(job.spec)
        model = self._load(job_id, job.result)
        # From the ledger, not from the plan: what the model was charged.
        mu = mu_of_ledger_units(job.charged_units)
        return attack_released_model(model, self.dataset, self._private(spec), mu, settings)

    def _load(self, job_id: str, result: str | None) -> ReleasedModel:
        if result == Classifier.result:
            return Classifier.load(self.artifacts.releasable(job_id, "classifier.safetensors").path)
        return Generator.load(self.artifacts.releasable(job_id, "generator.safetensors").path)

    def _private(self, spec: TrainingSpec) -> Train:
        options = replace(self.options, encoder=encoders.find(self.artifacts, spec.method))

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
        self.observe(Phase.ATTACKING, min(self._trained, max(0, self._models - 1)), max(1, self._models))
