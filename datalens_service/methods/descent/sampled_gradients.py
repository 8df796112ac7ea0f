"""Plans of Poisson-sampled gradients: one block with the least noise that fits into ε and δ.

The cost of a plan follows from public numbers alone: n, the expected batch, the number of steps, ε and δ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.base.errors import InfeasiblePlan
from datalens_service.base.fields import Stated
from datalens_service.mechanisms import GradientSum, PlannedRelease
from datalens_service.methods.base import Plan
from datalens_service.privacy.accounting import (
    LEDGER_UNITS_PER_MU_SQUARED,
    MINIMUM_NOISE_STDDEV,
    SLACK_UNITS_PER_DELTA,
    NeighboringRelation,
    compute_slack,
    delta_beside,
    limit_units,
    round_up,
    stated_epsilon,
)
from datalens_service.privacy.poisson_sampling import (
    PoissonSampling,
    block_ledger_units,
    choose_numerator,
    continuous_multiplier,
)
from datalens_service.privacy.randomness import COIN_BITS, MAXIMUM_NOISE_STDDEV

SPARE_SHARE: Final = 100
"""One spare step for so many: a step that was drawn and lost in a crash uses one up."""

_FEWEST_SPARE: Final = 2
_COARSEST_GRID: Final = 64
# The noise found is within a factor 1 + 2^-13 of the smallest.
_PRECISION_BITS: Final = 13
_LARGEST_SURPLUS: Final = 0.03


@dataclass(frozen=True)
class SampledRun:
    """The request for a run: batches, steps and units.

    Attributes:
        batch: Expected number of units in a batch.
        slack_share: Part of δ that is charged as slack.
    """

    num_units: int
    batch: int
    steps: int
    slack_share: float

    @property
    def numerator(self) -> int:
        """Return the probability of a coin in 2^-53, rounded down."""
        return choose_numerator(self.batch, self.num_units)

    @property
    def draws(self) -> int:
        """Return the number of steps and spare ones."""
        return self.steps + max(_FEWEST_SPARE, math.ceil(self.steps / SPARE_SHARE))

    def plan(
        self,
        mechanism: GradientSum,
        noise_multiplier: float | None,
        epsilon: float,
        delta: float,
        other_ledger_units: int = 0,
    ) -> Plan:
        """Plan the block with the noise that is named, or with the smallest that fits.

        Args:
            mechanism: The release of gradients, whose noise is replaced.
            noise_multiplier: σ over the largest contribution; None calibrates it.
            other_ledger_units: Ledger units that other releases of the job cost.

        Raises:
            InfeasiblePlan: The block does not fit into ε at δ, or the noise would be larger than the sampler can draw.
            InvalidSpec: The batch is larger than the data set.
            WorkerUnavailable: dp_accounting is not installed.
        """
        slack = compute_slack(delta, self.slack_share)
        limit = limit_units(epsilon, delta_beside(slack, delta)) - other_ledger_units
        if limit <= 0:
            raise InfeasiblePlan("ε does not pay for the other releases of the job: raise ⟦spec.epsilon⟧.")
        if noise_multiplier is None:
            mechanism = self._calibrated(mechanism, slack, limit)
        else:
            stddev = max(MINIMUM_NOISE_STDDEV, math.ceil(noise_multiplier * mechanism.radius))
            if stddev > MAXIMUM_NOISE_STDDEV:
                raise InfeasiblePlan("⟦method.noise_multiplier⟧ is larger than the sampler can draw.")
            mechanism = mechanism.model_copy(update={"noise_stddev": stddev})
        block = PoissonSampling.priced(
            mechanism.noise_multiplier(), num_units=self.num_units, numerator=self.numerator, draws=self.draws,
            slack=slack,
        )  # fmt: skip
        if block.charge().ledger_units > limit:
            raise InfeasiblePlan(
                "ε does not pay for the steps: raise ⟦spec.epsilon⟧ or ⟦method.noise_multiplier⟧, lower ⟦method.steps⟧."
            )
        sampled = mechanism.model_copy(update={"sampling": block})
        return Plan(releases=(PlannedRelease(mechanism=sampled, count=self.steps),))

    def _calibrated(self, mechanism: GradientSum, slack: int, limit: int) -> GradientSum:
        """Calibrate the noise on the finest grid for which it can be drawn."""
        probability = self.numerator / 2**COIN_BITS
        mu_squared = limit / LEDGER_UNITS_PER_MU_SQUARED
        # The limit of many steps (Bu, Dong, Long & Su 2020): μ² = T·q²·(e^{1/σ²} − 1).
        guess = 1 / math.sqrt(math.log1p(mu_squared / (self.draws * probability**2)))
        # A finer grid needs larger noise in its steps, which has to stay within what the sampler draws.
        while mechanism.grid > _COARSEST_GRID and 2 * guess * mechanism.radius > MAXIMUM_NOISE_STDDEV:
            mechanism = mechanism.model_copy(update={"grid": mechanism.grid // 2})

        def price(stddev: int) -> int | None:
            sensitivity_squared = mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT)
            multiplier = continuous_multiplier(Fraction(sensitivity_squared), stddev)
            try:
                return block_ledger_units(multiplier, self.numerator, self.draws, slack, NeighboringRelation.ZERO_OUT)
            except InfeasiblePlan:
                return None

        stddev = smallest_stddev(price, limit, math.ceil(guess * mechanism.radius))
        return mechanism.model_copy(update={"noise_stddev": stddev})


def smallest_stddev(price: Callable[[int], int | None], limit: int, guess: int) -> int:
    """Find the smallest σ, but for a factor 1 + 2^-13, whose price is at most `limit`.

    Args:
        price: Ledger units by σ; falls as σ rises. None where they are beyond counting.
        limit: Ledger units.
        guess: The σ to try first.

    Raises:
        InfeasiblePlan: Not even the largest σ will do.
    """
    low, high, stddev = MINIMUM_NOISE_STDDEV - 1, MAXIMUM_NOISE_STDDEV + 1, guess
    line = _PriceLine()
    while high - low > max(1, low >> _PRECISION_BITS):
        # Between the largest σ known to be too small and the smallest known to fit, whatever was guessed.
        stddev = min(max(stddev, low + 1), high - 1)
        ledger_units = price(stddev)
        fits = ledger_units is not None and ledger_units <= limit
        low, high = (low, stddev) if fits else (stddev, high)
        # Without a price there is no slope to follow, so σ doubles.
        target = (
            min((low + high) // 2, 2 * stddev) if ledger_units is None else line.through(stddev, ledger_units / limit)
        )
        stddev = target if low < target < high else (low + high) // 2
    if high > MAXIMUM_NOISE_STDDEV:
        raise InfeasiblePlan("ε is too small for so many sampled steps: raise ⟦spec.epsilon⟧ or lower ⟦method.steps⟧.")
    return high


class _PriceLine:
    """Guesses the σ at which a price, nearly a power of σ, meets the limit; guesses lie on either side in turn."""

    def __init__(self) -> None:
        self._slope = -2.5
        self._last: tuple[float, float] | None = None

    def through(self, stddev: int, ratio: float) -> int:
        """Return the σ to try next.

        Args:
            stddev: The σ tried last.
            ratio: Its price over the limit.
        """
        at, height = math.log(stddev), math.log(ratio)
        if self._last is not None and at != self._last[0]:
            self._slope = min(-0.1, (height - self._last[1]) / (at - self._last[0]))
        self._last = at, height
        # A little beyond, so that both sides close in.
        beyond = 2.0 ** -(_PRECISION_BITS + 2)
        return round(math.exp(at - height / self._slope + (beyond if height > 0 else -beyond)))


class SamplingSummary(BaseModel):
    """Cost of a plan with sampled batches; ε and slack are rounded up."""

    model_config = ConfigDict(frozen=True)

    sampling_probability: float = Field(description="q: every unit enters every batch by its own coin.")
    noise_multiplier: float = Field(description="σ of the noise over the largest contribution of a unit, rounded down.")
    slack: Stated = Field(description="Part of δ that is charged beside μ².")
    expected_passes: float = Field(description="How often a unit is in a batch on average.")
    spare_steps: int = Field(description="Paid for, and made only where a crash lost a step.")
    epsilon_by_ledger: Stated = Field(description="ε at δ as the account adds it up.")
    epsilon_alone: Stated = Field(description="The same of this run alone, from its privacy loss distribution.")
    epsilon_replace_one_by_ledger: Stated
    epsilon_replace_one_alone: Stated

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warn if the account charges much more than the run costs alone."""
        # With loud noise a run may cost no ε at all beside δ.
        if not self.epsilon_alone or self.epsilon_by_ledger <= (1 + _LARGEST_SURPLUS) * self.epsilon_alone:
            return ()
        surplus = self.epsilon_by_ledger / self.epsilon_alone - 1
        return (
            f"The account charges {100 * surplus:.0f} % more ε than the run costs alone. More noise, a smaller batch "
            "or more steps lower this.",
        )


def summarize_sampling(plan: Plan, delta: float) -> SamplingSummary | None:
    """Summarize the sampled releases of a plan; None if it has none."""
    for release in plan.all_releases():
        block = release.mechanism.block()
        if isinstance(block, PoissonSampling):
            return _summary(release, block, delta)
    return None


def _summary(release: PlannedRelease, block: PoissonSampling, delta: float) -> SamplingSummary:
    multiplier = release.mechanism.noise_multiplier()
    by_ledger, alone = {}, {}
    for relation in NeighboringRelation:
        by_ledger[relation] = stated_epsilon(block.charge(relation), delta)
        alone[relation] = round_up(block.epsilon_alone(multiplier, delta, relation))
    zero_out, replace_one = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE
    return SamplingSummary(
        sampling_probability=block.probability,
        noise_multiplier=multiplier,
        slack=round_up(block.slack / SLACK_UNITS_PER_DELTA, 18),
        expected_passes=block.probability * release.count,
        spare_steps=block.draws - release.count,
        epsilon_by_ledger=by_ledger[zero_out],
        epsilon_alone=alone[zero_out],
        epsilon_replace_one_by_ledger=by_ledger[replace_one],
        epsilon_replace_one_alone=alone[replace_one],
    )
