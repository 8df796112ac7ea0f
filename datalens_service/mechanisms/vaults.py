"""Vaults: what handles refer to. The driver of a run has them; a script has handles that lead to nothing.

A handle is looked up by identity and by its exact type: one that a script makes itself, or of a class of its own,
leads nowhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import CheckpointMismatch
from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.mechanisms.confined import HERE, Calls
from datalens_service.mechanisms.private_records import PrivateRecords, Vault, WallBroken
from datalens_service.mechanisms.unit_records import UnitRecords, UnitVault
from datalens_service.privacy.randomness import NoiseSource

if TYPE_CHECKING:
    from datalens_service.mechanisms.private_shards import PrivateShards, ShardVault

    Handle = PrivateRecords | UnitRecords | PrivateShards


class Vaults:
    """The private records of a run, and all that is computed from them.

    Args:
        dataset: Its training records are the private ones.
        calls: Computes contributions.

    Attributes:
        records: The handle of the training records.
    """

    def __init__(self, dataset: Dataset, calls: Calls = HERE) -> None:
        self.records = PrivateRecords(dataset.schema)
        # Rows that were computed from records are forgotten with their handle.
        self._vaults: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._vaults[self.records] = Vault.from_dataset(dataset, calls)

    def release(
        self,
        handle: Handle,
        mechanism: Mechanism[Any, Any],
        contribution: Callable[..., Any],
        released: object,
        *,
        step: int,
        account: Account,
        noise: NoiseSource,
    ) -> Any:
        """Release the charged, noisy sum of a contribution of a handle's records, decoded; warnings are suppressed.

        Raises:
            WallBroken: The handle is none of this run, or the contribution could take more along than its arguments.
        """
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return self.of(handle).release(mechanism, contribution, released, step=step, account=account, noise=noise)

    def of(self, handle: Handle) -> Vault | UnitVault | ShardVault:
        """Return the vault that a handle refers to, which is made at the first question.

        Raises:
            WallBroken: The handle is none of this run.
        """
        if handle not in self._vaults:
            self._vaults[handle] = self._made(handle)
        found: Vault | UnitVault | ShardVault = self._vaults[handle]
        return found

    def state(self, handle: Handle) -> dict[str, NDArray[Any]]:
        """Return the private state of teachers; empty for records, and where nothing is worth keeping."""
        vault = self.of(handle)
        return {} if isinstance(vault, Vault | UnitVault) else vault.state()

    def restore(self, handle: Handle, state: dict[str, NDArray[Any]]) -> None:
        """Continue with teachers in this state.

        Raises:
            CheckpointMismatch: The state belongs to other teachers, or to none.
        """
        vault = self.of(handle)
        if isinstance(vault, Vault | UnitVault):
            raise CheckpointMismatch("The checkpoint holds teachers, and the run asks for none.")
        vault.restore(state)

    def _made(self, handle: Handle) -> Vault | UnitVault | ShardVault:
        # The exact type: a subclass could name another source at every question.
        if type(handle) is PrivateRecords and handle.made is not None:
            return self._records(handle.made.source).mapped(handle.made)
        if type(handle) is UnitRecords:
            return UnitVault(self._records(handle.records), handle.device)
        # Here: methods without teachers may do without torch.
        from datalens_service.mechanisms.private_shards import PrivateShards, ShardVault

        if type(handle) is PrivateShards:
            return ShardVault(self._records(handle.records), handle)
        raise WallBroken("A question names records by a handle that the run was given or made of it.")

    def _records(self, handle: PrivateRecords) -> Vault:
        vault = self.of(handle)
        if not isinstance(vault, Vault):
            raise WallBroken("Units and teachers are made of records.")
        return vault
