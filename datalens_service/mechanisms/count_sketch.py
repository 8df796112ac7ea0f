"""Count-sketch votes: top-k sign votes hashed into small tables (FetchSGD in DataLens).

DataLens (CCS 2021), appendix C.2, Algorithm 7. Unlike there, the noise is added to the summed table; what follows is
post-processing. Claim, proof and tests: docs/mechanisms/count_sketch.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from datalens_service.base.fields import Integer
from datalens_service.mechanisms.topagg import sign_votes
from datalens_service.mechanisms.votes import Directions, TopKParameters, VoteMechanism, VoteParameters
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch


class _Hashes(NamedTuple):
    """The hashes that all teachers share, made from a public seed."""

    cells: NDArray[np.int64]
    """(rows, dimensions) the cell of a coordinate, in [0, rows·columns)."""
    signs: NDArray[np.int8]
    """(rows, dimensions) the sign of a coordinate, ±1."""


@final
class CountSketch(VoteMechanism):
    """Noisy sum of count sketches of top-k sign votes.

    Formal guarantee: a teacher's table has squared length at most rows·k, so Δ² = 4·rows·k, attained by a
    table without collisions and its negative. A release is μ-GDP with μ² = `queries_per_unit` · 4·rows·k / (σ² − 9).
    """

    ledger_label: ClassVar[str] = "votes.count_sketch"
    name: Literal["count_sketch"] = "count_sketch"
    top_k: int = Field(ge=1, description="Non-zero coordinates of one vote, and of the released direction.")
    rows: int = Field(ge=1, le=64, description="Independent hash functions.")
    columns: int = Field(ge=1, description="Cells of one hash function.")

    @model_validator(mode="after")
    def _vote_fits(self) -> CountSketch:
        if self.top_k > self.dimensions:
            raise ValueError("A vote has at most as many coordinates as an image has dimensions.")
        return self

    @classmethod
    def example_parameters(cls) -> VoteParameters:
        return CountSketchParameters(top_k=4, rows=5, columns=512)

    @property
    def coordinates(self) -> int:
        return self.rows * self.columns

    @property
    def row_bound_squared(self) -> int:
        """Return the squared length of a table without collisions."""
        return self.rows * self.top_k

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Vote by TopkStoSignGrad, then sketch the vote.

        Returns:
            int16 tensor (teachers, images, rows·columns); the cells of one column lie side by side.
        """
        import torch

        votes = sign_votes(gradients, self.top_k, self.clip, generator if self.stochastic else None)
        tables = torch.zeros((*votes.shape[:-1], self.coordinates), dtype=torch.int16, device=votes.device)
        hashes = self._hashes()
        for cells, signs in zip(hashes.cells, hashes.signs, strict=True):
            signed = votes * torch.from_numpy(signs).to(votes.device)
            tables.index_add_(-1, torch.from_numpy(cells).to(votes.device), signed.to(torch.int16))
        return _truncate(tables, self.row_bound_squared)

    def decode(self, noisy: Integers) -> Directions:
        """Direction per image with at most `top_k` coordinates: float32 array (images, dimensions).

        The mean over the rows is used, not FetchSGD's median: the noise of a private table is Gaussian and
        far larger than collisions, and for it the mean has two thirds of the median's variance.
        """
        hashes = self._hashes()
        estimates: NDArray[np.float64] = (noisy[:, hashes.cells] * hashes.signs).mean(axis=1)
        dropped = np.argsort(-np.abs(estimates), axis=-1, kind="stable")[:, self.top_k :]
        np.put_along_axis(estimates, dropped, 0.0, axis=-1)
        return self.direction(estimates)

    def _hashes(self) -> _Hashes:
        draw = np.random.default_rng(self.seed)
        columns = draw.integers(self.columns, size=(self.rows, self.dimensions))
        signs = 2 * draw.integers(2, size=(self.rows, self.dimensions), dtype=np.int8) - 1
        return _Hashes(columns * self.rows + np.arange(self.rows)[:, None], signs)


class CountSketchParameters(TopKParameters):
    """Parameters of the votes of FetchSGD."""

    mechanism: ClassVar[type[VoteMechanism]] = CountSketch

    name: Literal["count_sketch"] = "count_sketch"
    rows: Integer = Field(default=5, ge=1, le=64, description="Independent hash functions.")
    columns: Integer = Field(default=200, ge=1, description="Cells of one hash function.")


def _truncate(tables: torch.Tensor, bound_squared: int) -> torch.Tensor:
    """Zero the cells behind the first that would exceed the bound, in exact integers.

    Collisions lengthen about half of all tables, by a few percent. The last columns lose what is too much, the
    same in every row of the table, so that a coordinate seldom loses more than one of its cells.
    """
    import torch

    squared = tables.to(torch.int64).square().cumsum(dim=-1)
    return tables * (squared <= bound_squared)
