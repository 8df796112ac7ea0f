"""Exact sums of whole numbers: the only place where rows of contributions are added up.

A sum of floats depends on the order of its terms and loses small ones, so a row of another unit could move what it says
of a unit. Rows are whole numbers one by one before they are added, and a sum that could leave the range in which its
arithmetic is exact is refused before it is made. That depends on how many rows there are, and on nothing they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidInput
from datalens_service.mechanisms.confined import refused
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch

LARGEST_SUM: Final = 2**62
"""The largest magnitude of a sum, beside which noise of the largest stddev still fits into 63 bits."""
_EXACT: Final = {"float32": 2**24, "float64": 2**53}
"""Every whole number up to this is a float, so sums whose parts stay below it are exact in any order."""


class ExactSum:
    """A private int64 sum of whole numbers.

    Args:
        shape: Shape of the sum.
        largest: Public bound of the magnitude that one row adds to one number of the sum.
    """

    def __init__(self, shape: tuple[int, ...], largest: int) -> None:
        self._largest, self._rows = largest, 0
        self._sum = np.zeros(shape, dtype=np.int64)

    @property
    def total(self) -> Integers:
        return self._sum

    def add(self, rows: NDArray[Any] | torch.Tensor, place: Any = ...) -> None:
        """Add rows (n, …) to the numbers at a place.

        Raises:
            ContributionFailed: The sum might not be exact, or the rows are not whole numbers within the bound.
        """
        self._count(len(rows))
        kind = str(rows.dtype).removeprefix("torch.")
        if kind in _EXACT:
            # Sums of floats stay exact while this product fits into the mantissa, which depends on no value.
            _check_exact(len(rows) * self._largest, kind)
        elif not kind.startswith("int"):
            raise refused(f"Rows of {kind} have no exact sum.")
        if isinstance(rows, np.ndarray):
            self._check(rows, np.rint)
            self._sum[place] += rows.sum(axis=0).astype(np.int64)
        else:
            import torch

            self._check(rows, torch.round)
            whole = rows.sum(dim=0).to(torch.int64) if kind in _EXACT else rows.sum(dim=0, dtype=torch.int64)
            self._sum[place] += whole.cpu().numpy()

    def add_products(self, left: NDArray[Any], right: NDArray[Any], place: Any = ...) -> None:
        """Add Σ x·yᵀ over rows of whole numbers (n, p) and (n, q); `largest` bounds the products as it bounds one row.

        Raises:
            ContributionFailed: The sum might not be exact, or the products are not whole numbers within the bound.
        """
        self._count(len(left))
        _check_exact(len(left) * self._largest, "float64")
        wide = [part.astype(np.float64, copy=False) for part in (left, right)]
        for part in wide:
            _check_whole(part, np.rint)
        longest = [int(np.abs(part).max(initial=0)) for part in wide]
        # No product of two entries is larger than that of the largest entries.
        self._check_bound(longest[0] * longest[1])
        self._sum[place] += (wide[0].T @ wide[1]).astype(np.int64)

    def add_at(self, places: NDArray[np.int64], values: Integers | int) -> None:
        """Add whole numbers (n,) to the numbers at `places` (n,) of a sum with one axis.

        Raises:
            ContributionFailed: The sum might not be exact, or the values are not whole numbers within the bound.
        """
        self._count(len(places))
        added = np.broadcast_to(np.asarray(values), places.shape)
        if added.dtype.kind != "i":
            raise refused("Only whole numbers have an exact sum.")
        self._check(added, np.rint)
        np.add.at(self._sum, places, added)

    def _count(self, rows: int) -> None:
        self._rows += rows
        # The number of rows may be private, so the error does not name it.
        if self._rows * self._largest > LARGEST_SUM:
            raise refused("There are more records than a sum of 63 bits holds.")

    def _check(self, rows: Any, rounded: Any) -> None:
        if not len(rows):
            return
        if "float" in str(rows.dtype):
            _check_whole(rows, rounded)
        # By both ends, since the least integer of a type has no positive counterpart.
        self._check_bound(max(int(rows.max()), -int(rows.min())))

    def _check_bound(self, found: int) -> None:
        if found > self._largest:
            raise refused("A row is longer than the bound of its sum.")


def check_range(rows: int, largest: int) -> None:
    """Refuse a sum over so many rows that it might leave 63 bits.

    Raises:
        InvalidInput: The sum might leave 63 bits.
    """
    if rows * largest > LARGEST_SUM:
        raise InvalidInput("There are more records than a sum of 63 bits holds.")


def _check_exact(most: int, kind: str) -> None:
    if most > _EXACT[kind]:
        raise refused(f"There are more rows than {kind} adds up exactly: take fewer at once.")


def _check_whole(rows: Any, rounded: Any) -> None:
    # A number that is not finite minus itself is NaN, not 0, so it is refused, too.
    with np.errstate(invalid="ignore"):
        whole = bool((rounded(rows) - rows == 0).all())
    if not whole:
        raise refused("Rows are rounded one by one before they are added.")
