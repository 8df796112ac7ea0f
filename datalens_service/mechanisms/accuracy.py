"""Accuracy on private images, as a noisy count: how many units of a hold-out a public classifier labels correctly.

A unit counts once, whatever it holds: by its first record. Claim, proof and tests: docs/mechanisms/accuracy.md.
"""

from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.mechanisms.base import Example, Mechanism
from datalens_service.mechanisms.exact_sum import ExactSum
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import Integers

DEFAULT_NOISE_STDDEV = 100
"""Enough for ±1 point on 10,000 images, at 0.14 % of a budget of ε = 1 and δ = 1e-5."""


class Answers(NamedTuple):
    """Private contributions: the public classifier's answer for every record."""

    right: NDArray[np.bool_]
    """(records,) whether the classifier found the label."""
    units: Integers
    """(records,) identity of each record's unit."""


@final
class AccuracyCount(Mechanism[Answers, float]):
    """Noisy number of units whose first record is labelled correctly.

    Formal guarantee: a unit adds 0 or 1, so emptying it or replacing it moves the count by at most 1: Δ² = 1
    under both relations. The classifier must not depend on the hold-out; it is a function of what was released.
    """

    ledger_label: ClassVar[str] = "holdout.accuracy"
    name: Literal["accuracy_count"] = "accuracy_count"
    num_units: int = Field(ge=1, description="n of the hold-out, public: what the count is a share of.")

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        return Fraction(1)

    @classmethod
    def example_contributions(cls) -> Example:
        # No label is right for an image that is not finite.
        answers = Answers(np.array([True, True, False]), np.array([0, 0, 1]))
        one, none = (Answers(answers.right[:records], answers.units[:records]) for records in (2, 0))
        return Example(cls(num_units=3, noise_stddev=100), one, none, answers)

    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        return True

    def exact_sum(self, contributions: Answers) -> Integers:
        """Count the units whose first record is right, as int64 (1,)."""
        _, first = np.unique(contributions.units, return_index=True)
        exact = ExactSum((1,), 1)
        exact.add(contributions.right[first, None].astype(np.int64))
        return exact.total

    def decode(self, noisy: Integers) -> float:
        """Return the share of all units in percent, clipped to 0 … 100."""
        return float(np.clip(100 * int(noisy[0]) / self.num_units, 0.0, 100.0))
