"""The request for an audit: the one model of REST body, job row and client."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from datalens_service.audits.attacks import ATTACKS, INVERSION, MEMBERSHIP
from datalens_service.audits.audit import AuditSettings
from datalens_service.audits.inversion_figures import InversionSettings
from datalens_service.base.fields import Frozen, Integer
from datalens_service.base.wording import speak
from datalens_service.spec import Device, TrainingSpec

AttackName = Literal["loss_threshold", "reference", "likelihood_ratio", "inversion"]
_DEFAULT: Final[tuple[AttackName, ...]] = ("loss_threshold", "reference", "likelihood_ratio")
_IDENTIFIER: Final = r"^[A-Za-z0-9_-]+$"

GroupName = Annotated[str, Field(min_length=1, max_length=100)]
Identifier = Annotated[str, Field(max_length=64, pattern=_IDENTIFIER)]


class RehearsedMethod(Frozen):
    """A private method, rehearsed on parts of a dataset before anything is released."""

    kind: Literal["rehearsal"]
    dataset_id: Identifier
    spec: TrainingSpec = Field(description="Method and ε; what it says of images and evaluation is not used.")


class UnprotectedNetwork(Frozen):
    """A network without privacy, rehearsed to show what attacks find where nothing protects the records."""

    kind: Literal["unprotected"]
    dataset_id: Identifier
    passes: Integer = Field(default=30, ge=1, le=200, description="Over its records.")


class ReleasedJob(Frozen):
    """The model that a job released: its training records against the test images of its dataset."""

    kind: Literal["released"]
    job_id: Identifier


Target = Annotated[RehearsedMethod | UnprotectedNetwork | ReleasedJob, Field(discriminator="kind")]


class InversionEffort(Frozen):
    """The effort of inversion."""

    records: Integer = Field(default=8, ge=6, le=50, description="Attacked, each by itself.")
    iterations: Integer = Field(default=300, ge=10, le=10_000)
    restarts: Integer = Field(default=2, ge=1, le=8, description="Random starts, of which the best wins.")

    def settings(self, seed: int) -> InversionSettings:
        return InversionSettings(iterations=self.iterations, restarts=self.restarts, seed=seed)


class AuditRequest(Frozen):
    """A request to attack a model, and the attacks to try."""

    target: Target
    attacks: tuple[AttackName, ...] = Field(
        default=_DEFAULT,
        min_length=1,
        description="Each at most once. `inversion` searches for the image behind one record's gradient: of a network "
        "without privacy, or of `dp_sgd`; the others tell members.",
    )
    references: Integer = Field(default=8, ge=2, le=64, description="Models that never saw the candidates.")
    candidates: Integer = Field(default=2000, ge=50, le=100_000, description="Most members, and most others.")
    seed: Integer = Field(default=0, ge=0, lt=2**63, description="Seed of the split and of training.")
    inversion: InversionEffort = InversionEffort()
    groups: dict[GroupName, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(
        default={},
        max_length=100,
        description="Names of classes by the name of a group: the success of a loss threshold is measured for each "
        "class, and for each group with one threshold for all of its classes.",
    )

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if len(set(self.attacks)) < len(self.attacks):
            raise ValueError(speak(f"Name each attack once in ⟦audit.attacks⟧, among {', '.join(ATTACKS)}."))
        return self

    @property
    def device(self) -> Device:
        return self.target.spec.device if isinstance(self.target, RehearsedMethod) else Device.AUTO

    @property
    def inverts(self) -> bool:
        return INVERSION in self.attacks

    @property
    def membership(self) -> AuditSettings | None:
        """Return the attacks on membership and their sizes; None without any."""
        attacks = tuple(name for name in self.attacks if name in MEMBERSHIP)
        if not attacks:
            return None
        return AuditSettings(
            attacks=attacks, references=self.references, candidates=self.candidates, groups=self.groups, seed=self.seed
        )
