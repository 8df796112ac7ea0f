"""The training request of a client. One frozen model is REST body, job row, command-line input and card.

Nothing here imports torch, so that the API can validate and price a request without it.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from datalens_service.base.errors import InfeasiblePlan, InvalidSpec
from datalens_service.base.fields import Frozen, Integer, Number, Stated
from datalens_service.base.parsing import PrivacyParameter
from datalens_service.base.wording import speak
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.methods import Plan
from datalens_service.methods.descent.noisy_directions import DirectionsSummary, summarize_directions
from datalens_service.methods.descent.sampled_gradients import SamplingSummary, summarize_sampling
from datalens_service.methods.expected_quality import describe_images
from datalens_service.methods.registered import RegisteredMethod, describe_public_use
from datalens_service.methods.sums.record_sums import describe_working_size
from datalens_service.methods.voting.rivals import restate_rival
from datalens_service.privacy.accounting import (
    Charge,
    NeighboringRelation,
    check_delta,
    cost_ledger_units,
    default_delta,
    limit_units,
    stated_epsilon,
    stated_mu,
)
from datalens_service.privacy.guarantee import job_guarantee, tell_risk

SYNTHETIC_IMAGES: Final = 10_000
_DEFAULTS: Final = EvaluationSettings()
_OF_IMAGES: Final = (
    "synthetic_images",
    "epochs",
    "batch_size",
    "seeds",
    "mirrored",
    "stronger_classifier",
    "fidelity",
    "fidelity_images",
    "reference",
)
"""Members of the evaluation that concern synthetic images, or classifiers trained on them."""

_ENCODED: Final = (
    "Images are seen through the public encoder {name}. The guarantee does not cover what it was trained on."
)
_NO_PUBLIC_DATA: Final = "⟦spec.public_data⟧ does not apply: "


class Device(StrEnum):
    """The kind of worker that a job needs; the cost does not depend on it."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


NamedMethod = Annotated[RegisteredMethod, Field(discriminator="name"), BeforeValidator(restate_rival)]
Epsilon = Annotated[
    Number, Field(gt=0, le=100, description="ε this job may spend at δ."), AfterValidator(PrivacyParameter)
]
Delta = Annotated[
    Annotated[Number, Field(gt=0, lt=1), AfterValidator(PrivacyParameter)] | None,
    Field(description="δ; left out, it is min(1e-5, n^-1.1), rounded down to three digits. Must be below 1/n."),
]
Seed = Annotated[Integer, Field(ge=0, lt=2**63, description="Seed of training randomness; noise never has a seed.")]
SyntheticImages = Annotated[
    Integer,
    Field(ge=1, le=1_000_000, description="Images to generate with the job; further sampling costs no privacy budget."),
]
WantedDevice = Annotated[
    Device,
    Field(description="- `auto`: wherever the service runs jobs\n- `cpu`: never on a GPU\n- `gpu`: only on one"),
]
ClassShares = Annotated[
    Annotated[tuple[Annotated[Number, Field(ge=0)], ...], Field(min_length=1)] | None,
    Field(
        exclude_if=operator.not_,
        description="Frequencies of the classes, in their order and in any unit, as their owner declares them public. "
        "Images are drawn with them where a request names no classes, and forecasts rest on them; with equal ones "
        "classes take turns. Left out: as frequent as noisy counts say that the method releases, if any, else in turn.",
    ),
]
PublicDataId = Annotated[
    Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")] | None,
    Field(
        exclude_if=operator.not_,
        description=f"Id of a dataset whose records were declared public when it was uploaded. {describe_public_use()} "
        "The guarantee does not cover it, and report and card say so. Left out: none.",
    ),
]


class TrainingSpec(Frozen):
    """A training job: method, its parameters, the budget it may spend, seed and evaluation."""

    method: NamedMethod
    epsilon: Epsilon
    delta: Delta = None
    seed: Seed = 0
    synthetic_images: SyntheticImages = SYNTHETIC_IMAGES
    evaluation: EvaluationSettings = EvaluationSettings()
    device: WantedDevice = Device.AUTO
    public_data: PublicDataId = None
    class_shares: ClassShares = None

    @model_validator(mode="after")
    def _public_data_has_a_use(self) -> Self:
        if self.public_data is None and self.method.needs_public_images:
            raise ValueError(
                speak(f"{self.method.name} makes its images of public ones: name some in ⟦spec.public_data⟧.")
            )
        if self.public_data is not None and self.method.facts.public_images is None:
            raise ValueError(speak(_NO_PUBLIC_DATA + f"{self.method.name} does not start from public images."))
        refusal = self.method.refusal_of_public_data() if self.public_data is not None else ""
        if refusal:
            raise ValueError(speak(_NO_PUBLIC_DATA + refusal))
        return self

    @model_validator(mode="after")
    def _about_images_only_where_some_are_made(self) -> Self:
        """Refuse settings of synthetic images where the method makes none."""
        if self.method.result == "generator":
            return self
        made = f"{self.method.name} makes a {self.method.result}."
        if self.synthetic_images != SYNTHETIC_IMAGES:
            raise ValueError(speak(f"⟦spec.synthetic_images⟧ does not apply: {made}"))
        said = [name for name in _OF_IMAGES if getattr(self.evaluation, name) != getattr(_DEFAULTS, name)]
        if said:
            raise ValueError(speak(f"⟦evaluation.{said[0]}⟧ does not apply: {made}"))
        return self

    def delta_at(self, schema: Schema) -> float:
        """Return δ as named, or the default for this many units.

        Raises:
            InvalidDelta: δ ≥ 1/n.
        """
        delta = default_delta(schema.num_units) if self.delta is None else self.delta
        check_delta(delta, schema.num_units)
        return delta

    def plan(self, schema: Schema) -> Plan:
        """Plan everything a run of this spec will charge.

        Raises:
            InvalidDelta: δ ≥ 1/n.
            InfeasiblePlan: ε does not pay for one step.
            InvalidSpec: The method's parameters or the declared frequencies do not fit the schema.
        """
        check_shares(self.class_shares, schema)
        return self.method.plan_within(schema, self.epsilon, self.delta_at(schema))

    def limit_units(self, schema: Schema) -> int:
        """Return the largest number of ledger units that this job may spend."""
        return limit_units(self.epsilon, self.delta_at(schema))

    def price(self, schema: Schema) -> PlanSummary:
        """Price a run of this spec at its δ."""
        return self.summarize(self.plan(schema), schema)

    def summarize(self, plan: Plan, schema: Schema) -> PlanSummary:
        """Price a plan of this spec at its δ, with the warnings of the method."""
        summary = summarize(plan, self.epsilon, self.delta_at(schema))
        sampled = summary.sampling.warnings if summary.sampling is not None else ()
        working_size = describe_working_size(plan, schema)
        reduced = [working_size] if working_size else []
        encoder = self.method.public_inputs().encoder
        seen = [] if encoder is None else [_ENCODED.format(name=encoder.name)]
        warnings = [*reduced, *self.method.warnings(plan, schema), *sampled, *seen]
        stated = {
            "method": self.method.name,
            "warnings": warnings,
            "rationale": describe_images(self.method, plan, schema, pool=self.public_data is not None),
            "kept_bytes": self.method.kept_bytes(plan),
        }
        return summary.model_copy(update=stated).about(schema)

    def digest(self) -> str:
        """Hash the canonical JSON by SHA-256; the digest names the spec in cards and checkpoints."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def check_shares(shares: Sequence[float] | None, schema: Schema) -> None:
    """Refuse declared frequencies that are not one for each class.

    Raises:
        InvalidSpec: There are more or fewer, or all are 0.
    """
    if shares is not None and (len(shares) != schema.num_classes or min(shares) < 0 or sum(shares) <= 0):
        raise InvalidSpec(f"⟦spec.class_shares⟧ needs a frequency for each of the {schema.num_classes} classes.")


class PlanSummary(BaseModel):
    """The cost of a plan, for people and programs; every number is public and rounded towards privacy."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)

    method: str = Field(default="", description="What was planned; its parameters are in the spec.")
    images: int = Field(description="Images that teachers vote on.")
    steps: int = Field(description="Releases, each charged before its noise is drawn.")
    mu: Stated = Field(description="μ of the Gaussian trade-off curve under zero-out, rounded up.")
    epsilon_at_plan: Stated = Field(description="ε at δ of the whole plan under zero-out, rounded up.")
    epsilon_replace_one: Stated = Field(description="The same when one unit is replaced by another.")
    delta: Stated
    epsilon_limit: Stated
    ledger_units: int = Field(alias="units", description="Ledger units: 1e-15 of μ².")
    slack: int = Field(default=0, description="Charged beside the units, in 1e-18 of δ; 0 without sampled batches.")
    sampling: SamplingSummary | None = Field(default=None, description="Sampling of a plan that samples batches.")
    directions: DirectionsSummary | None = Field(default=None, description="Noisy directions of a plan that has them.")
    unit: str | None = Field(
        default=None, description="What one privacy unit is called; null for a job of version 1.0.0."
    )
    records_per_unit: int = Field(default=1, description="Most training images of one unit.")
    guarantee: str = Field(default="", description="Whom ε protects, against what: the sentence for people.")
    risk: str = Field(default="", description="The guarantee in right guesses whether one unit was used.")
    releases: list[dict[str, Any]]
    phase_seconds: dict[str, float] = Field(
        default={}, description="Expected of each phase of the job, on one core of the machine that planned."
    )
    kept_bytes: int = Field(
        default=0, description="Bytes of released iterates that the job keeps for individual epsilon."
    )
    warnings: list[str] = Field(default=[], description="What to know before paying, from public numbers alone.")
    rationale: str = Field(default="", description="What the images look like; empty if unknown.")

    def about(self, schema: Schema) -> Self:
        """State the guarantee for the units of a data set, which a plan of version 1.0.0 does not name."""
        unit, charge = schema.privacy_unit, Charge(self.ledger_units, self.slack)
        guarantee = job_guarantee(unit, self.epsilon_at_plan, self.delta, charge, self.epsilon_replace_one)
        stated = {"unit": unit.name, "records_per_unit": unit.records, "guarantee": guarantee}
        return self.model_copy(update=stated | {"risk": tell_risk(unit.word, charge)})

    def spoken(self) -> Self:
        """Put the warnings in the words of their reader; a plan is kept without."""
        return self.model_copy(update={"warnings": [speak(warning) for warning in self.warnings]})


def summarize(plan: Plan, epsilon: float, delta: float) -> PlanSummary:
    """Price a plan at δ."""
    charge, replace_one = plan.charge(), plan.charge(NeighboringRelation.REPLACE_ONE)
    return PlanSummary(
        images=plan.images,
        steps=plan.steps,
        mu=stated_mu(charge.ledger_units),
        epsilon_at_plan=stated_epsilon(charge, delta),
        epsilon_replace_one=stated_epsilon(replace_one, delta),
        delta=delta,
        epsilon_limit=epsilon,
        ledger_units=charge.ledger_units,
        slack=charge.slack,
        sampling=summarize_sampling(plan, delta),
        directions=summarize_directions(plan),
        releases=plan.describe_releases(),
    )


class VoteAllowance(BaseModel):
    """The number of single-image votes that a budget pays for."""

    model_config = ConfigDict(frozen=True)

    images: int
    mu: Stated
    epsilon_at_plan: Stated
    delta: Stated


def vote_allowance(top_k: int, noise_stddev: int, epsilon: float, delta: float) -> VoteAllowance:
    """Count the images that teachers may vote on under (ε, δ), independent of any data set.

    Args:
        top_k: Non-zero coordinates of one vote; a vote costs μ² = 4k/(σ² − 9).
        noise_stddev: σ of the discrete Gaussian.

    Raises:
        InfeasiblePlan: Not even one image fits.
    """
    each = cost_ledger_units(4 * top_k, noise_stddev)
    images = limit_units(epsilon, delta) // each
    if images == 0:
        raise InfeasiblePlan("The budget does not pay for a single vote: raise ε or σ of the noise.")
    return VoteAllowance(
        images=images,
        mu=stated_mu(images * each),
        epsilon_at_plan=stated_epsilon(Charge(images * each), delta),
        delta=delta,
    )
