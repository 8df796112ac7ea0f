"""Votes for public cells: every unit says next to which public images its records lie, and noise is added.

Lin et al. 2024, "Differentially private synthetic data via foundation model APIs 1: images", vote for the nearest
generated image; here cells are public, and a unit of several records has no more weight than one of a single record.
Claim, proof and tests: docs/mechanisms/cell_votes.md.
"""

from fractions import Fraction
from typing import ClassVar, Final, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.mechanisms.base import Example, Mechanism
from datalens_service.mechanisms.exact_sum import ExactSum
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import Integers

# Square roots are taken of whole numbers that many binary places longer.
_ROOT_PLACES: Final = 10
_MOST_RECORDS: Final = 2**21
"""More records of a unit count as this many, so that squares with `_ROOT_PLACES` more places fit into 63 bits."""


class Votes(NamedTuple):
    """Private contributions: one vote per record."""

    cells: Integers
    """(records,) the record's cell, in [0, cells); any other number is no vote."""
    groups: Integers
    """(records,) class of each record, in [0, num_groups)."""
    units: Integers
    """(records,) identity of each record's unit."""


@final
class CellVotes(Mechanism[Votes, NDArray[np.float64]]):
    """Noisy number of votes per class and cell.

    Formal guarantee: a unit adds a vector of whole numbers, none below 0, that is at most `grid` long, however many
    records it has. Zero-out: Δ² = grid². Replace-one: two such vectors are never more than a right angle apart,
    Δ² = 2·grid², attained where they share no cell.
    """

    ledger_label: ClassVar[str] = "votes.cells"
    name: Literal["cell_votes"] = "cell_votes"
    num_groups: int = Field(ge=1, description="Classes, which are counted apart.")
    cells: int = Field(ge=1, le=2**16, description="Public cells.")
    grid: int = Field(default=1024, ge=1, le=2**16, description="Grid steps of one vote.")

    @classmethod
    def example_contributions(cls) -> Example:
        cells, units = np.array([1, 1, -1, 9]), np.array([0, 0, 1, 2])
        pair, none, lost = (Votes(cells[:n], np.zeros(n, np.int64), units[:n]) for n in (2, 0, 4))
        return Example(cls(num_groups=2, cells=3, noise_stddev=10_000), pair, none, lost)

    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        return True

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        return Fraction((2 if relation == NeighboringRelation.REPLACE_ONE else 1) * self.grid**2)

    def exact_sum(self, contributions: Votes) -> Integers:
        """Sum the units' vectors, as int64 (num_groups, cells)."""
        cells, groups, units = contributions
        there = (cells >= 0) & (cells < self.cells)
        places = groups[there] * self.cells + cells[there]
        pairs, counts = np.unique(np.stack([units[there], places]), axis=1, return_counts=True)
        exact = ExactSum((self.num_groups * self.cells,), self.grid)
        exact.add_at(pairs[1], self._shares(pairs[0], counts.astype(np.int64)))
        return exact.total.reshape(self.num_groups, self.cells)

    def decode(self, noisy: Integers) -> NDArray[np.float64]:
        """Return the noisy numbers of votes (num_groups, cells), which may be negative."""
        return np.asarray(noisy / self.grid)

    def _shares(self, units: Integers, counts: Integers) -> Integers:
        """Divide each cell's count by the length of all counts of its unit, rounded down."""
        _, of_unit = np.unique(units, return_inverse=True)
        records, squares = np.zeros((2, of_unit.max(initial=-1) + 1), dtype=np.int64)
        np.add.at(records, of_unit, counts)
        counts = counts * _MOST_RECORDS // np.maximum(records[of_unit], _MOST_RECORDS)
        np.add.at(squares, of_unit, counts**2)
        scaled = squares << (2 * _ROOT_PLACES)
        lengths = np.sqrt(scaled.astype(np.float64)).astype(np.int64)
        # The proof does not trust floating point: a length is a whole number whose square is not below the sum.
        lengths += lengths**2 < scaled
        return np.asarray(((self.grid * counts) << _ROOT_PLACES) // lengths[of_unit])
