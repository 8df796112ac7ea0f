"""A block: passes over the units in fixed batches, each unit in one batch of a pass, charged as one.

A unit takes part once in a pass, so a run costs what one release costs, times the number of passes, however many
batches there are. Batches follow from the number of the draw and public values alone. A draw that a crash lost counts:
its batch is over, and the run ends with fewer steps. Claim and proof: docs/mechanisms/von_mises_fisher.md.
"""

import math
from fractions import Fraction
from typing import Final, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from datalens_service.base.errors import InvalidSpec
from datalens_service.privacy.accounting import LEDGER_UNITS_PER_MU_SQUARED, Charge, NeighboringRelation
from datalens_service.privacy.poisson_sampling import LARGEST_UNITS, PoissonSampling
from datalens_service.privacy.randomness import Booleans, NoiseSource

_MOST_BATCHES: Final = 1_000_000
_MOST_PASSES: Final = 10_000
_ORDER_SEED: Final = 0x7061_7373


class PartitionedPasses(BaseModel):
    """The number of times every unit takes part, and its cost.

    Formal guarantee: if a release in which a unit takes part is μ-GDP for it, and one in which it does not take part
    does not depend on it, all draws together are √passes·μ-GDP. There is no slack.

    Attributes:
        num_units: Privacy units, public; their identities are 0 to num_units − 1, unless there is one batch.
        batches: Batches of one pass; their sizes differ by one at most.
        passes: Largest number of draws in which a unit takes part.
        ledger_units_zero_out: Ledger units of all draws when a unit is emptied.
        ledger_units_replace_one: The same when a unit is replaced by another.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, validate_by_name=True)

    num_units: int = Field(ge=1, description="Privacy units.")
    batches: int = Field(ge=1, le=_MOST_BATCHES, description="Batches of one pass; a unit is in one of them.")
    passes: int = Field(ge=1, le=_MOST_PASSES, description="Draws in which a unit takes part, at most.")
    ledger_units_zero_out: int = Field(
        alias="units_zero_out", ge=1, le=LARGEST_UNITS, description="Cost of all draws, in 1e-15 of μ²."
    )
    ledger_units_replace_one: int = Field(
        alias="units_replace_one", ge=1, le=LARGEST_UNITS, description="The same when a unit is replaced."
    )

    @model_validator(mode="after")
    def _batches_have_units(self) -> Self:
        if self.batches > self.num_units:
            raise ValueError("There are more batches than units.")
        return self

    @classmethod
    def priced(cls, noise_multiplier: float, *, num_units: int, batches: int, passes: int) -> Self:
        """Return the block with its price; `noise_multiplier` is 1/μ of one release, rounded down."""
        prices = [partition_ledger_units(noise_multiplier, passes, relation) for relation in NeighboringRelation]
        return cls(
            num_units=num_units,
            batches=batches,
            passes=passes,
            ledger_units_zero_out=prices[0],
            ledger_units_replace_one=prices[1],
        )

    @property
    def draws(self) -> int:
        """Return the number of releases that are paid for; there are no spare ones, which would be one more pass."""
        return self.batches * self.passes

    @property
    def slack(self) -> int:
        """Return 0, since the price is exact."""
        return 0

    @property
    def batch(self) -> float:
        """Return the number of units in a batch, the public divisor of a mean."""
        return self.num_units / self.batches

    def charge(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> Charge:
        """Return the charge for all draws together."""
        zero_out = relation == NeighboringRelation.ZERO_OUT
        return Charge(self.ledger_units_zero_out if zero_out else self.ledger_units_replace_one)

    def draw_batch(self, draw: int, _noise: NoiseSource) -> Booleans:
        """Return the units that take part in a draw, bool (num_units,).

        Args:
            draw: Its number, from 0; no two draws of a run have the same.

        Raises:
            InvalidSpec: The draw is not paid for.
        """
        if not 0 <= draw < self.draws:
            raise InvalidSpec("A draw beyond the planned passes has no batch.")
        chosen = np.zeros(self.num_units, dtype=np.bool_)
        # Public, and without any view of a record: uploads are often sorted by class, batches must not be.
        order = np.random.default_rng([_ORDER_SEED, self.num_units]).permutation(self.num_units)
        chosen[order[draw % self.batches :: self.batches]] = True
        return chosen

    def check_price(self, noise_multiplier: float) -> None:
        """Compute the price anew.

        Raises:
            InvalidSpec: The stated price is less than the passes cost.
        """
        for relation in NeighboringRelation:
            ledger_units = partition_ledger_units(noise_multiplier, self.passes, relation)
            if self.charge(relation).ledger_units < ledger_units:
                raise InvalidSpec(
                    f"{self.passes:,} passes cost {ledger_units:,} ledger units; "
                    f"{self.charge(relation).ledger_units:,} are stated."
                )

    def recompute_price(self, noise_multiplier: float) -> None:
        """Refuse a stated price that is not that of these passes, be it less or more.

        Raises:
            InvalidSpec: The stated price is another one.
        """
        priced = [partition_ledger_units(noise_multiplier, self.passes, relation) for relation in NeighboringRelation]
        if [self.ledger_units_zero_out, self.ledger_units_replace_one] != priced:
            raise InvalidSpec(
                f"{self.passes:,} passes cost {priced[0]:,} units; {self.ledger_units_zero_out:,} are stated."
            )


def partition_ledger_units(noise_multiplier: float, passes: int, relation: NeighboringRelation) -> int:
    """Return the ledger units of `passes` releases of one unit, rounded up; a replacement moves it twice as far."""
    factor = 4 if relation == NeighboringRelation.REPLACE_ONE else 1
    return math.ceil(factor * passes * LEDGER_UNITS_PER_MU_SQUARED / Fraction(noise_multiplier) ** 2)


Block = PoissonSampling | PartitionedPasses
"""The two kinds of block, told apart by their fields."""
