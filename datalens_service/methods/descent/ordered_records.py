"""Private records of a run, with those of a unit side by side; a Poisson sample of their units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Dataset
from datalens_service.errors import InvalidInput, InvalidSpec
from datalens_service.mechanisms import AnyMechanism, GradientChunk, VonMisesFisherSum
from datalens_service.methods.descent.noisy_directions import GROUPS_REFUSED
from datalens_service.privacy.randomness import Booleans

if TYPE_CHECKING:
    import torch

PRIVATE_READS = ("training",)


class Records(NamedTuple):
    """Private records, units ascending."""

    images: torch.Tensor
    """uint8 (records, channels, height, width)."""
    labels: torch.Tensor
    """int64 (records,)."""
    units: torch.Tensor
    """int64 (records,) identity of each record's unit."""


class OrderedRecords:
    """The records of a data set on a device."""

    def __init__(self, dataset: Dataset, device: str) -> None:
        import torch

        train = dataset.train
        order = np.argsort(train.unit_ids, kind="stable")
        images = np.ascontiguousarray(train.images[order].transpose(0, 3, 1, 2))
        arrays = (images, train.labels[order], train.unit_ids[order])
        self._records = Records(*(torch.from_numpy(array).to(device) for array in arrays))
        self._coin_of_record = _draw_coins(train.unit_ids[order], dataset.schema.num_units)

    def all(self) -> Records:
        """Every record."""
        return self._records

    def sampled(self, coins: Booleans) -> Records:
        """Private: the records of the units whose coin is true, and no other.

        Args:
            coins: bool (num_units,).
        """
        import torch

        chosen = torch.from_numpy(np.flatnonzero(coins[self._coin_of_record])).to(self._records.units.device)
        return Records(*(values[chosen] for values in self._records))


def _draw_coins(unit_ids: NDArray[np.int64], num_units: int) -> NDArray[np.int64]:
    """Which coin is a record's: every unit has its own. Coins are alike, so it does not matter which."""
    if unit_ids.max(initial=0) < num_units:
        return unit_ids
    units, numbers = np.unique(unit_ids, return_inverse=True)
    if len(units) > num_units:
        raise InvalidInput("There are more units than coins.")
    return np.asarray(numbers, dtype=np.int64)


def check_positions(mechanism: AnyMechanism, dataset: Dataset) -> None:
    """Refuse units whose identities are no positions, where these decide who is in a batch.

    Raises:
        InvalidSpec: One group would move others to other batches.
    """
    positions = int(dataset.train.unit_ids.max(initial=0)) < dataset.schema.num_units
    if isinstance(mechanism, VonMisesFisherSum) and mechanism.partition.batches > 1 and not positions:
        raise InvalidSpec(GROUPS_REFUSED)


def whole_units(rows: Iterable[torch.Tensor], units: torch.Tensor) -> Iterator[GradientChunk]:
    """Chunks that split no unit.

    Args:
        rows: (records, dimensions) gradients, one chunk after another.
        units: (all records,) ascending identities of their units.
    """
    import torch

    start, held = 0, None
    for chunk in rows:
        joined = chunk if held is None else torch.cat([held, chunk])
        end = start + len(joined)
        identities = units[start:end]
        # The next chunk may go on with the last unit.
        goes_on = end < len(units) and bool(units[end] == identities[-1])
        complete = int((identities != identities[-1]).sum()) if goes_on else len(joined)
        yield GradientChunk(joined[:complete], identities[:complete])
        start, held = start + complete, joined[complete:] if goes_on else None
