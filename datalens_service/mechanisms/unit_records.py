"""The wall, unit by unit: rows that are too many to be held at once, and batches that nobody sees.

`UnitRecords` answer the question of `PrivateRecords` for mechanisms that sum one row of every unit. A contribution gets
copies of whole units on a device, and yields their rows chunk by chunk. The mechanism draws who is in a batch, between
charge and noise, and nothing outside this module learns it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidInput, InvalidSpec
from datalens_service.data.dataset import UnitIds
from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.mechanisms.gradient_sum import GradientChunk
from datalens_service.mechanisms.private_records import PrivateRecords, Rows, Vault, WallBroken, check_function
from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.randomness import Booleans, NoiseSource

if TYPE_CHECKING:
    import torch

Released = TypeVar("Released")


class UnitRows(NamedTuple):
    """Private: records on a device, those of a unit side by side, units ascending."""

    images: torch.Tensor
    """uint8 (records, channels, height, width)."""
    labels: torch.Tensor
    """int64 (records,) class of each record."""
    units: torch.Tensor
    """int64 (records,) identity of each record's unit."""


UnitContribution = Callable[[UnitRows, Any], Any]
"""Yields tensors (units, …), one row for every unit in its order, or returns at once what a mechanism sums."""


class UnitRecords:
    """A handle of records behind the wall, whose units are read on a device."""

    def __init__(self, records: PrivateRecords, device: str) -> None:
        self.records, self.device = records, device


class UnitVault:
    """Rows that are read while a question is open.

    Args:
        source: The vault of the records.
        device: Device on which contributions get the rows.
    """

    def __init__(self, source: Vault, device: str) -> None:
        self._source, self._num_units, self._device = source, source.schema.num_units, device
        self._kept: tuple[UnitRows, UnitIds, NDArray[np.int64]] | None = None

    def release(
        self,
        mechanism: Mechanism[Any, Released],
        contribution: UnitContribution,
        released: object,
        *,
        step: int,
        account: Account,
        noise: NoiseSource,
    ) -> Released:
        """Release the charged, noisy sum like `Vault.release`, over the units of a batch if the mechanism draws one.

        Raises:
            InvalidSpec: The mechanism draws batches by position, and units have none.
        """
        check_function(contribution)
        block = mechanism.block()
        if isinstance(block, PartitionedPasses) and block.batches > 1:
            self.check_positions()
        answer = partial(self.answer, contribution, copy.deepcopy(released))
        return mechanism.release(answer, step=step, account=account, noise=noise)

    def answer(self, function: UnitContribution, released: object, batch: Booleans | None = None) -> Any:
        """Compute a contribution on the units of a batch, bool (num_units,), or on all units."""
        chunks = self._chunks(function, released, batch)
        # The mechanism pulls the chunks one by one, so that the rows of all units are never in memory at once.
        if isgeneratorfunction(function):
            return chunks
        (made,) = chunks
        return made

    def check_positions(self) -> None:
        """Refuse units whose identities are no positions: one more unit would move others to other batches."""
        with self._source.opened():
            if self._source.rows().units.max(initial=0) >= self._num_units:
                raise InvalidSpec("Batches of a partition are drawn by the position of single records.")

    def _chunks(self, function: UnitContribution, released: object, batch: Booleans | None) -> Iterator[Any]:
        import torch

        with self._source.opened():
            rows, units = self._of(batch)
            calls, start = self._source.calls, 0
            many = isgeneratorfunction(function)
            made = calls.items(function, rows, released) if many else [calls.call(function, rows, released)]
            for chunk in made:
                tensor = isinstance(chunk, torch.Tensor)
                # The units of the vault, whatever a contribution returns beside its rows.
                some = units[start : start + len(chunk if tensor else chunk[0])]
                yield GradientChunk(chunk, torch.from_numpy(some)) if tensor else chunk._replace(units=some)
                start += len(chunk if tensor else chunk[0])
            if start != len(units):
                raise WallBroken("A contribution has one row for every unit.")

    def _of(self, batch: Booleans | None) -> tuple[UnitRows, UnitIds]:
        import torch

        source = self._source.rows()
        # Sorted and on the device once; a batch is a selection of these rows.
        if self._kept is None:
            units = np.sort(source.units)
            self._kept = as_tensors(source, self._device), units, number_coins(units, self._num_units)
        rows, units, coins = self._kept
        chosen = np.arange(len(units)) if batch is None else np.flatnonzero(batch[coins])
        places = torch.from_numpy(chosen).to(self._device)
        # Indexing copies: a contribution that writes to its rows changes no record.
        return UnitRows(*(values[places] for values in rows)), np.unique(units[chosen])


def as_tensors(rows: Rows, device: str) -> UnitRows:
    """Bring records into the form in which contributions get them."""
    import torch

    order = np.argsort(rows.units, kind="stable")
    images = np.ascontiguousarray(rows.values[order].transpose(0, 3, 1, 2))
    arrays = (images, rows.labels[order], rows.units[order])
    return UnitRows(*(torch.from_numpy(array).to(device) for array in arrays))


def number_coins(units: UnitIds, num_units: int) -> NDArray[np.int64]:
    """Assign a coin to each record, the same for all records of a unit. Coins are alike, so any assignment will do."""
    if units.max(initial=0) < num_units:
        return units
    names, numbers = np.unique(units, return_inverse=True)
    if len(names) > num_units:
        raise InvalidInput("There are more units than coins.")
    return np.asarray(numbers, dtype=np.int64)
