"""The privacy part of a report: the charge, its meaning at several δ, and its limits.

Every number is a function of public parameters and of the ledger; no private record enters. Losses are rounded up.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final, Literal

from pydantic import Field
from scipy.special import ndtr, ndtri

from datalens_service.base.audience import AllPublic, Public
from datalens_service.base.errors import LedgerCorrupt
from datalens_service.base.fields import Frozen, Stated
from datalens_service.data.export.licence import describe_public_images
from datalens_service.mechanisms import PlannedRelease, VonMisesFisherSum
from datalens_service.models.public_source import NO_PUBLIC_INPUTS, PublicGenerator, PublicInputs, PublicSource
from datalens_service.privacy.accounting import (
    SLACK_UNITS_PER_DELTA,
    Charge,
    NeighboringRelation,
    delta_beside,
    round_down_significant,
    round_up,
    stated_epsilon,
    stated_mu,
)
from datalens_service.privacy.guarantee import PrivacyUnit, job_guarantee, membership_advantage
from datalens_service.privacy.poisson_sampling import PoissonSampling
from datalens_service.report import phrases
from datalens_service.report.result_wording import choose_wording

Tier = Literal["tier_1", "tier_2", "tier_3"]
_SMALL_DELTA = 1e-6
_NO_BRACES = str.maketrans("{}", "()")
_TIER_1, _TIER_2 = 1.0, 10.0
_ZERO_OUT, _REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE


class SpendPoint(Frozen):
    """The loss after so many releases; ε is rounded up."""

    releases: Public[int] = Field(ge=0, description="Made so far.")
    release: Public[str] = Field(description="The last of them.")
    ledger_units: Public[int] = Field(alias="units", ge=0, description="Charged so far, in 1e-15 of μ².")
    mu: Public[Stated]
    epsilon: Public[Stated] = Field(description="ε at the requested δ; a running account.")


class CurvePoint(Frozen):
    """A pair that holds; ε is rounded up."""

    delta: Public[Stated]
    epsilon: Public[Stated]


class Point(Frozen):
    """A point of the ε-δ curve; ε is rounded up."""

    chosen: Public[str] = Field(description="Reason for this δ.")
    delta: Public[Stated]
    epsilon: Public[Stated]


class Guarantee(Frozen):
    """Bounds that follow from the charged units under one neighbouring relation; every figure is rounded up."""

    relation: Public[NeighboringRelation]
    meaning: Public[str]
    ledger_units: Public[int] = Field(alias="units", description="Charged, in 1e-15 of μ².")
    slack: Public[int] = Field(
        default=0, exclude_if=operator.not_, description="Charged beside the units, in 1e-18 of δ."
    )
    mu: Public[Stated] = Field(description="Parameter of the Gaussian trade-off curve.")
    points: Public[tuple[Point, ...]] = Field(description="ε at the requested δ, at 1e-6 and at n^-1.1.")
    membership_advantage: Public[float] = Field(description="Largest true minus false positive rate of any attack.")
    true_positive_rate_at_0_1_percent: Public[float] = Field(description="Largest at a false positive rate of 0.1 %.")
    true_positive_rate_at_1_percent: Public[float] = Field(description="Largest at a false positive rate of 1 %.")
    curve: Public[tuple[CurvePoint, ...]] = Field(description="ε over δ; all pairs hold at once.")

    @property
    def epsilon(self) -> float:
        return self.points[0].epsilon


class Lifetime(Frozen):
    """The account over all jobs, also those of deleted data sets, as ε at the account's δ. For the owner."""

    limit: Stated
    spent: Stated = Field(description="Rounded up.")
    reserved: Stated = Field(default=0.0, description="Reserved for jobs that still run, rounded up.")
    remaining: Stated = Field(description="Rounded down.")
    delta: Stated
    linked: bool = Field(default=False, description="Whether other uploads share records with this one.")


class StatementScope(Frozen):
    """The subject of the guarantee, in plain sentences."""

    public: Public[tuple[str, ...]]
    covered: Public[tuple[str, ...]]
    not_covered: Public[tuple[str, ...]]
    released: Public[tuple[str, ...]]
    never_released: Public[tuple[str, ...]]

    @classmethod
    def from_unit(
        cls,
        unit: str,
        records_per_unit: int,
        result: str = "generator",
        public_inputs: PublicInputs = NO_PUBLIC_INPUTS,
        *,
        groups_ignored: bool = False,
    ) -> StatementScope:
        """Fill in the owner's word for one privacy unit, and the sentences about public inputs of training."""
        wording = choose_wording(result)
        used = describe_public_inputs(public_inputs) or phrases.PUBLIC[-1:]
        grouped = phrases.GROUPED if records_per_unit > 1 else ()
        ignored = phrases.GROUPS_IGNORED if groups_ignored else ()
        return cls(
            public=phrases.about((*phrases.PUBLIC[:-1], *used, *grouped), unit, records_per_unit),
            covered=phrases.about(wording.covered, unit),
            not_covered=phrases.about((*ignored, *wording.not_covered), unit),
            released=phrases.about(wording.released, unit),
            never_released=phrases.about(wording.never_released, unit),
        )


class PrivacyFigures(Frozen):
    """Figures that a statement and the document made of it have in common."""

    setting: Public[str]
    unit: Public[str]
    unit_declared_by: Public[str]
    num_units: Public[int]
    records_per_unit: Public[int] = Field(description="Most training images of one unit, declared.")
    delta: Public[Stated]
    delta_times_units: Public[Stated] = Field(description="n·δ, rounded up.")
    epsilon_limit: Public[Stated]
    limit_units: Public[int]
    headline: Public[Guarantee]
    replace_one: Public[Guarantee]
    tier: Public[Tier]
    tier_meaning: Public[str]
    spend: Public[tuple[SpendPoint, ...]] = Field(
        min_length=1, description="The account release by release, thinned out."
    )
    accountant: Public[str]
    noise: Public[str]
    scope: Public[StatementScope]
    retention: Public[str]
    lifetime: Lifetime | None = Field(
        default=None, description="Lifetime of the account, for the owner; None for a run without a service."
    )


class PrivacyStatement(PrivacyFigures):
    """Everything a reader needs to judge and to recompute the guarantee of one job."""

    releases: AllPublic[tuple[PlannedRelease, ...]]

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """Return the unit that is protected as a whole, with its word for readers."""
        return PrivacyUnit(self.unit, self.records_per_unit)

    def guarantee(self) -> str:
        """State the guarantee of the job in one sentence."""
        charge = Charge(self.headline.ledger_units, self.headline.slack)
        return job_guarantee(self.privacy_unit, self.headline.epsilon, self.delta, charge, self.replace_one.epsilon)


def privacy_statement(
    *,
    releases: Sequence[PlannedRelease],
    charged_units: int,
    slack_charged: int = 0,
    epsilon_limit: float,
    limit_units: int,
    delta: float,
    num_units: int,
    unit: str,
    records_per_unit: int = 1,
    groups_ignored: bool = False,
    lifetime: Lifetime | None = None,
    result: str = "generator",
    public_inputs: PublicInputs = NO_PUBLIC_INPUTS,
) -> PrivacyStatement:
    """Build the privacy part of the report of one job.

    Args:
        releases: Releases that were made, in order.
        charged_units: Units in the ledger under zero-out; more than the releases cost if a crash lost one.
        slack_charged: Slack in the ledger, in 1e-18 of δ.
        epsilon_limit: ε that the job might spend at δ.
        limit_units: The same in ledger units.
        unit: The owner's word for one privacy unit.
        records_per_unit: Most training images of one unit, public.
        groups_ignored: True if every record is a unit although the upload said which belong together.
        public_inputs: Inputs of the result beside private records.

    Raises:
        LedgerCorrupt: Less was charged than the releases cost.
    """
    deltas, word = _deltas(delta, num_units), PrivacyUnit(unit, records_per_unit).word
    charged = Charge(charged_units, slack_charged)
    headline = _guarantee(_ZERO_OUT, charged, deltas, word)
    replace_one = Charge(_replace_one_ledger_units(releases, charged_units), slack_charged)
    tier = classify_epsilon(headline.epsilon)
    return PrivacyStatement(
        setting=phrases.SETTING,
        unit=unit,
        unit_declared_by="owner",
        num_units=num_units,
        records_per_unit=records_per_unit,
        delta=delta,
        delta_times_units=math.ceil(Fraction(repr(delta)) * num_units * 10**6) / 10**6,
        epsilon_limit=epsilon_limit,
        limit_units=limit_units,
        headline=headline,
        replace_one=_guarantee(_REPLACE_ONE, replace_one, deltas, word),
        tier=tier,
        tier_meaning=phrases.TIERS[tier],
        releases=tuple(releases),
        spend=spend_path(releases, charged, delta),
        accountant=_accountant(releases, slack_charged),
        noise=phrases.DIRECTIONS_NOISE if has_directions(releases) else phrases.NOISE,
        scope=StatementScope.from_unit(word, records_per_unit, result, public_inputs, groups_ignored=groups_ignored),
        retention=phrases.RETENTION,
        lifetime=lifetime,
    )


def describe_public_inputs(inputs: PublicInputs) -> tuple[str, ...]:
    """Describe each public input that there is: images, an encoder, a generator."""
    about_images = () if inputs.images is None else (_describe_source(inputs.images),)
    encoder, generator = inputs.encoder, inputs.generator
    described = "" if encoder is None else encoder.describe().translate(_NO_BRACES)
    about_encoder = () if encoder is None else (phrases.PUBLIC_ENCODER.format(described=described),)
    return (*about_images, *about_encoder, *(() if generator is None else (_describe_generator(generator),)))


def _describe_generator(generator: PublicGenerator) -> str:
    said = phrases.RENDERED if generator.untrained else phrases.PUBLIC_GENERATOR
    said += phrases.HASHED_GENERATOR if generator.sha256 else ""
    return said.format(**dict(generator))


def _describe_source(source: PublicSource) -> str:
    name = f" of the data set “{source.name}”" if source.name else ""
    said = phrases.LABELLED_PUBLIC if source.verbatim else phrases.BESIDE_PUBLIC
    said += phrases.HELD_PUBLIC if source.held and not source.verbatim else ""
    return said.format(
        source=describe_public_images(f"{source.images:,} images{name}", source.license).translate(_NO_BRACES),
        classes=", ".join(source.class_names).translate(_NO_BRACES),
        sha256=source.sha256,
    )


def has_directions(releases: Sequence[PlannedRelease]) -> bool:
    """Tell whether noise is on directions, where it is not exact."""
    return any(isinstance(release.mechanism, VonMisesFisherSum) for release in releases)


def has_sampling(releases: Sequence[PlannedRelease]) -> bool:
    """Tell whether batches are sampled, so that coins are secret as noise is."""
    return any(isinstance(release.mechanism.block(), PoissonSampling) for release in releases)


def _accountant(releases: Sequence[PlannedRelease], slack_charged: int) -> str:
    if has_directions(releases):
        return phrases.DIRECTIONS_ACCOUNTANT
    return phrases.SAMPLED_ACCOUNTANT if slack_charged else phrases.ACCOUNTANT


def first_releases(releases: Sequence[PlannedRelease], steps: int) -> tuple[PlannedRelease, ...]:
    """Return the part of a plan that was carried out: its first `steps` releases."""
    made = []
    for release in releases:
        count = min(release.count, steps)
        if count:
            made.append(release.model_copy(update={"count": count}))
        steps -= count
    return tuple(made)


def classify_epsilon(epsilon: float) -> Tier:
    """Return the tier of ε by Ponomareva et al. 2023, “How to DP-fy ML”, section 5.2."""
    if epsilon <= _TIER_1:
        return "tier_1"
    return "tier_2" if epsilon <= _TIER_2 else "tier_3"


def true_positive_rate(mu: float, false_positive_rate: float, slack: float = 0.0) -> float:
    """Return the largest true positive rate of any membership attack on a μ-GDP release, rounded up to four digits.

    Dong, Roth & Su 2022, Section 2: the Gaussian trade-off curve, Φ(Φ⁻¹(FPR) + μ); a slack adds to it.
    """
    return min(1.0, round_up(float(ndtr(ndtri(false_positive_rate) + mu)) + slack, 4))


def _deltas(requested: float, num_units: int) -> dict[float, str]:
    """Return every δ of interest, with the reason for it; δ may have been requested to be one of the others."""
    below_small = round_down_significant(num_units**-1.1)
    reasons = {requested: "requested"}
    reasons.setdefault(_SMALL_DELTA, "one in a million")
    reasons.setdefault(below_small, "n^-1.1, rounded down")
    return reasons


def _guarantee(relation: NeighboringRelation, charge: Charge, deltas: dict[float, str], word: str) -> Guarantee:
    mu = stated_mu(charge.ledger_units)
    slack = charge.slack / SLACK_UNITS_PER_DELTA
    return Guarantee(
        relation=relation,
        meaning=phrases.RELATIONS[relation].replace("{unit}", word),
        ledger_units=charge.ledger_units,
        slack=charge.slack,
        mu=mu,
        points=tuple(
            Point(chosen=chosen, delta=delta, epsilon=stated_epsilon(charge, delta))
            for delta, chosen in deltas.items()
            # Below the slack there is no ε.
            if delta_beside(charge.slack, delta) > 0
        ),
        membership_advantage=membership_advantage(mu, slack),
        true_positive_rate_at_0_1_percent=true_positive_rate(mu, 0.001, slack),
        true_positive_rate_at_1_percent=true_positive_rate(mu, 0.01, slack),
        curve=curve(charge),
    )


def _replace_one_ledger_units(releases: Sequence[PlannedRelease], charged_units: int) -> int:
    """Return the units under replace-one; a lost release is taken at the worst factor of any release."""
    costs = [(release.cost(), release.cost(_REPLACE_ONE)) for release in releases]
    lost = charged_units - sum(zero_out for zero_out, _ in costs)
    if lost < 0:
        raise LedgerCorrupt("The ledger holds less than the releases of this job cost.")
    worst = max((Fraction(replace_one, zero_out) for zero_out, replace_one in costs), default=Fraction(1))
    return sum(replace_one for _, replace_one in costs) + math.ceil(lost * worst)


_MOST_POINTS: Final = 100
# δ at half decades from a tenth down to 1e-12.
_CURVE_DELTAS: Final = tuple(float(f"{digit}e-{power}") for power in range(1, 13) for digit in (3, 1))


def spend_path(releases: Sequence[PlannedRelease], charged: Charge, delta: float) -> tuple[SpendPoint, ...]:
    """Return the account of a job after each release: about a hundred points at most, the last with everything charged.

    Args:
        releases: In order.
        charged: The charge in the ledger; more than the releases cost if a crash lost one.
    """
    total = sum(release.count for release in releases)
    every = max(1, total // _MOST_POINTS)
    steps = [(made, label, spent) for made, label, spent in _walked(releases) if made % every == 0 or made == total]
    points = [_point(0, "before the first release", Charge(0), delta), *(_point(*step, delta) for step in steps)]
    if points[-1].ledger_units < charged.ledger_units:
        points.append(_point(total, "charged again after a crash", charged, delta))
    return tuple(points)


def curve(charged: Charge) -> tuple[CurvePoint, ...]:
    """Return ε over δ of everything charged; all pairs hold at once. Below the slack there is no ε."""
    return tuple(
        CurvePoint(delta=delta, epsilon=stated_epsilon(charged, delta))
        for delta in _CURVE_DELTAS
        if delta_beside(charged.slack, delta) > 0
    )


def _walked(releases: Sequence[PlannedRelease]) -> Iterator[tuple[int, str, Charge]]:
    before, ledger_units, slack = 0, 0, 0
    for release in releases:
        for made in range(1, release.count + 1):
            spent = release.charge_after(made)
            yield before + made, release.label, Charge(ledger_units + spent.ledger_units, slack + spent.slack)
        whole = release.charge_after(release.count)
        before, ledger_units, slack = before + release.count, ledger_units + whole.ledger_units, slack + whole.slack


def _point(made: int, label: str, charged: Charge, delta: float) -> SpendPoint:
    return SpendPoint(
        releases=made,
        release=label,
        ledger_units=charged.ledger_units,
        mu=stated_mu(charged.ledger_units),
        epsilon=stated_epsilon(charged, delta),
    )
