"""A block: Poisson-sampled releases that are charged as one, before the first coin of the first.

Its price is what `dominance.py` computes from q, σ, the number of draws and the slack. It is stated in the plan, so
that every process books the same integers, and recomputed before the first charge and by `datalens verify`. Claim and
proof: docs/mechanisms/poisson_sampling.md.
"""

import functools
import math
from fractions import Fraction
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.base.errors import InvalidSpec
from datalens_service.privacy.accounting import SLACK_UNITS_PER_DELTA, SMOOTHING_VARIANCE, Charge, NeighboringRelation
from datalens_service.privacy.dominance import dominating_ledger_units, poisson_gaussian_curve
from datalens_service.privacy.randomness import COIN_BITS, Booleans, NoiseSource
from datalens_service.privacy.sampled import poisson_sampled_epsilon

LARGEST_UNITS: Final = 2**63 - 1
_MOST_DRAWS: Final = 100_000
# Relative. Other processors add up floats in another order: a recomputed price differs far less than this.
_PRICE_MARGIN: Final = Fraction(1, 10**6)
_ULPS: Final = 1e-15


class PoissonSampling(BaseModel):
    """The way the batches of a block are drawn, and the cost of all of them together.

    Formal guarantee: at most `draws` sums, each over a batch that every unit enters by its own coin, with noise whose
    multiplier the price was computed for, are a post-processing of a Gaussian release of `ledger_units` up to `slack`
    in total variation.

    Attributes:
        num_units: Coins of a draw: one for each privacy unit, public.
        numerator: Probability of a coin in 2^-53.
        draws: Releases that are paid for, spare ones included; no more are made.
        slack: In 1e-18 of δ.
        ledger_units_zero_out: Ledger units of all draws when a unit is emptied.
        ledger_units_replace_one: The same when a unit is replaced by another.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, validate_by_name=True)

    num_units: int = Field(ge=1, description="Coins of a draw, one for each privacy unit.")
    numerator: int = Field(ge=1, le=2**COIN_BITS, description="Each is true with this probability, in 2^-53.")
    draws: int = Field(ge=1, le=_MOST_DRAWS, description="Releases that are paid for, spare ones included.")
    slack: int = Field(ge=1, lt=SLACK_UNITS_PER_DELTA, description="Charged beside the units, in 1e-18 of δ.")
    ledger_units_zero_out: int = Field(
        alias="units_zero_out", ge=1, le=LARGEST_UNITS, description="Cost of all draws, in 1e-15 of μ²."
    )
    ledger_units_replace_one: int = Field(
        alias="units_replace_one", ge=1, le=LARGEST_UNITS, description="The same when a unit is replaced."
    )

    @classmethod
    def priced(cls, noise_multiplier: float, *, num_units: int, numerator: int, draws: int, slack: int) -> Self:
        """Return the block with its price.

        Raises:
            InfeasiblePlan: No Gaussian covers the run up to so small a slack.
            InvalidSpec: An argument is out of its range.
        """
        prices = [
            block_ledger_units(noise_multiplier, numerator, draws, slack, relation) for relation in NeighboringRelation
        ]
        return cls(
            num_units=num_units,
            numerator=numerator,
            draws=draws,
            slack=slack,
            ledger_units_zero_out=prices[0],
            ledger_units_replace_one=prices[1],
        )

    @property
    def probability(self) -> float:
        return float(Fraction(self.numerator, 2**COIN_BITS))

    @property
    def batch(self) -> float:
        """Return the expected number of units in a batch, the divisor of a mean."""
        return self.probability * self.num_units

    def draw_batch(self, _draw: int, noise: NoiseSource) -> Booleans:
        """Draw private coins, bool (num_units,), fresh for every draw."""
        return noise.coins(self.num_units, self.numerator)

    def charge(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> Charge:
        """Return the charge for all draws together."""
        zero_out = relation == NeighboringRelation.ZERO_OUT
        return Charge(self.ledger_units_zero_out if zero_out else self.ledger_units_replace_one, self.slack)

    def check_price(self, noise_multiplier: float) -> None:
        """Compute the price anew.

        Raises:
            InvalidSpec: The stated price is less than the draws cost.
        """
        for relation in NeighboringRelation:
            ledger_units = dominated_ledger_units(noise_multiplier, self.numerator, self.draws, self.slack, relation)
            if self.charge(relation).ledger_units < ledger_units:
                raise InvalidSpec(
                    f"{self.draws:,} sampled draws cost {ledger_units:,} ledger units; "
                    f"{self.charge(relation).ledger_units:,} are stated."
                )

    def recompute_price(self, noise_multiplier: float) -> None:
        """Refuse a stated price that is not that of these draws: neither less, nor more than rounding explains.

        Raises:
            InvalidSpec: The stated price is another one.
        """
        self.check_price(noise_multiplier)
        for relation in NeighboringRelation:
            ledger_units = block_ledger_units(noise_multiplier, self.numerator, self.draws, self.slack, relation)
            if self.charge(relation).ledger_units > math.ceil(ledger_units * (1 + _PRICE_MARGIN)):
                raise InvalidSpec(
                    f"{self.draws:,} sampled draws cost {ledger_units:,} ledger units; "
                    f"{self.charge(relation).ledger_units:,} are stated."
                )

    def epsilon_alone(
        self, noise_multiplier: float, delta: float, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT
    ) -> float:
        """Return ε at δ of the block without the detour over a Gaussian, rounded up: an account states more."""
        return poisson_sampled_epsilon(noise_multiplier, self.probability, self.draws, delta, relation)


def choose_numerator(batch: int, num_units: int) -> int:
    """Return the probability batch / num_units in 2^-53, rounded down.

    Raises:
        InvalidSpec: The batch has more than all units, or less than one in 2^53.
    """
    if not 1 <= batch <= num_units:
        raise InvalidSpec(f"⟦method.batch⟧ must lie between 1 and the number of privacy units, {num_units:,}.")
    # With a power of two below, the coin that is tossed has exactly the probability that is priced.
    return (batch << COIN_BITS) // num_units


def continuous_multiplier(sensitivity_squared: Fraction, noise_stddev: int) -> float:
    """Return σ/C of the continuous noise that discrete noise is a post-processing of, rounded down.

    Args:
        sensitivity_squared: C², for one unit that is emptied.
        noise_stddev: σ of the discrete Gaussian, at least 100.
    """
    # Down by the errors of a float: a multiplier that came out larger would price the noise too low.
    return math.sqrt((noise_stddev**2 - SMOOTHING_VARIANCE) / sensitivity_squared) * (1 - _ULPS)


def block_ledger_units(
    noise_multiplier: float, numerator: int, draws: int, slack: int, relation: NeighboringRelation
) -> int:
    """Return the ledger units to state for a block: its cost, and a margin for processors that round otherwise."""
    ledger_units = dominated_ledger_units(noise_multiplier, numerator, draws, slack, relation)
    return math.ceil(ledger_units * (1 + _PRICE_MARGIN))


@functools.lru_cache(maxsize=1024)
def dominated_ledger_units(
    noise_multiplier: float, numerator: int, draws: int, slack: int, relation: NeighboringRelation
) -> int:
    """Return the ledger units of a block as this processor computes them; takes about a second.

    Raises:
        InfeasiblePlan: No Gaussian covers the run up to so small a slack.
    """
    curve = poisson_gaussian_curve(noise_multiplier, numerator / 2**COIN_BITS, draws, relation)
    return dominating_ledger_units(curve, Fraction(slack, SLACK_UNITS_PER_DELTA))
