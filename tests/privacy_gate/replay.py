"""Record and replay: a run on neighbouring records that meets the noisy sums of the run before it.

Whatever the product releases is then the same in both runs, so any difference between them is one that private records
made without a charge.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from datalens_service.data import dataset as datasets
from datalens_service.data.dataset import Dataset, Schema, Split, Upload
from datalens_service.mechanisms import DistributedGradients, GradientChunk, Mechanism, PartialGradients
from datalens_service.mechanisms.accuracy import Answers
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.mechanisms.cross_product import OuterProductFactors
from datalens_service.mechanisms.individual_histogram import IndividualEpsilons
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.von_mises_fisher import GRID
from datalens_service.methods import ExecutionOptions
from datalens_service.models.generators.denoiser import public_denoiser
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import Booleans, Integers, NoiseSource
from datalens_service.spec import TrainingSpec
from datalens_service.training import Result, run
from tests.models.onnx_files import stored_encoder

from .alarm import Alarm

OWN_ENCODER, _FILE = stored_encoder(side=6)
"""Its layers look across the images of a batch."""
_OPTIONS = ExecutionOptions(encoder=_FILE)

ROWS = (GroupedVectors, OuterProductFactors, Answers, Votes, IndividualEpsilons)
"""Contributions of rows, each of one record."""


@dataclass(frozen=True)
class Step:
    """One release as it was computed.

    Attributes:
        mechanism: With the coins of this step.
        contributions: What it summed, as copies: one of `ROWS`, a list of gradient chunks, or
            `DistributedGradients` with a list of blocks.
        exact: The sum without noise.
        coins: Who was in the batch; None where nobody is drawn.
    """

    mechanism: Mechanism
    contributions: Any
    exact: Integers
    coins: Booleans | None = None


@dataclass(frozen=True)
class Recording:
    """A run: its releases, its account, and what it handed out."""

    steps: list[Step]
    account: MemoryAccount
    result: Result


def record(spec: TrainingSpec, dataset: Dataset, earlier: Recording | None = None, *, apart: bool = False) -> Recording:
    """Run a job and note what every release was made of.

    Args:
        spec: Of the job.
        dataset: Its records.
        earlier: Whose noisy sums releases hand out, and whose coins fall again; None: those of this run itself.
        apart: Whether contributions are computed in processes of their own.
    """
    account = _CompleteAccount(spec.limit_units(dataset.schema), (spec.epsilon, spec.delta))
    steps: list[Step] = []
    coins = {} if earlier is None else dict(enumerate(step.coins for step in earlier.steps))
    release = _recording_release(steps, account if earlier is None else earlier.account, coins, draws=earlier is None)
    # How much public images teach does not matter here.
    with mock.patch.object(Mechanism, "release", release), mock.patch.object(public_denoiser, "_STEPS", 4):
        public = _pool(spec, dataset.schema)
        options = replace(_OPTIONS, apart=apart)
        return Recording(steps, account, run(spec, dataset, account=account, public=public, options=options))


def _pool(spec: TrainingSpec, schema: Schema) -> Upload | None:
    """Public images without labels, always the same, for a job that names some."""
    if spec.public_data is None:
        return None
    public = schema.model_copy(update={"class_names": ("thing",), "num_units": 30, "records_are_public": True})
    shape = (30, schema.height, schema.width, schema.channels)
    images = np.random.default_rng(7).integers(0, 256, shape).astype(np.uint8)
    return Upload(public, Split(images, np.zeros(len(images), dtype=np.int64)), None)


def neighbor(schema: Schema, split: Split, key: bytes) -> Dataset:
    """A data set of the same public schema, also with an empty unit, or one with more records than are declared."""
    with mock.patch.object(datasets, "check_units"):
        return Dataset(schema, split, None, key)


class _CompleteAccount(MemoryAccount):
    """Sums stay when a state takes their place: a neighbour meets every one of them."""

    def advance(self, step: int, state: dict[str, NDArray[Any]], iterates: NDArray[np.float32] | None = None) -> None:
        sums = dict(self._stored)
        super().advance(step, state, iterates)
        self._stored = sums


class _Drawn(NoiseSource):  # type: ignore[misc]
    """Noise that is remembered; none at all for a run whose noisy sums nobody sees."""

    def __init__(self, draws: bool, coins: Booleans | None) -> None:
        self._draws = draws
        self.noise: list[Integers] = []
        self.fallen = coins

    def coins(self, count: int, numerator: int) -> Booleans:
        """The same for neighbours, so that they can be compared."""
        if self.fallen is None:
            self.fallen = super().coins(count, numerator)
        return self.fallen

    def directions(self, means: NDArray[np.float64], kappa: float) -> NDArray[np.float64]:
        """As they are, on the grid of the exact sum: noise of this kind cannot be taken off again."""
        return np.rint(means * GRID) / GRID

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> Integers:
        zero = np.zeros(shape, dtype=np.int64)
        self.noise.append(super().discrete_gaussian(shape, noise_stddev) if self._draws else zero)
        return self.noise[-1]


def _recording_release(
    steps: list[Step], answers: MemoryAccount, coins: dict[int, Booleans | None], *, draws: bool
) -> Callable[..., Any]:
    release = Mechanism.release

    def recorded(
        mechanism: Mechanism,
        contributions: Callable[..., Any],
        *,
        step: int,
        account: MemoryAccount,
        noise: NoiseSource,
    ) -> Any:
        copies: list[Any] = []

        def copied(*coins: Booleans) -> Any:
            copies.append(_copied(contributions(*coins)))
            return copies[-1]

        # Of the job: a run may count its steps from a later one.
        number = len(steps)
        drawn = _Drawn(draws, coins.get(number))
        release(mechanism, copied, step=step, account=account, noise=drawn)
        exact = account.replay(step) - sum(drawn.noise)
        steps.append(Step(mechanism, copies[-1], exact, drawn.fallen))
        return release(mechanism, _unreadable, step=number, account=answers, noise=noise)

    return recorded


def _copied(contributions: Any) -> Any:
    """Blocks of teachers are made one after another in the same memory."""
    if isinstance(contributions, ROWS):
        return type(contributions)(*(np.array(array) for array in contributions))
    if isinstance(contributions, Iterator):
        return [GradientChunk(chunk.gradients.clone(), chunk.units.clone()) for chunk in contributions]
    if not isinstance(contributions, DistributedGradients):
        raise TypeError(f"say how {type(contributions).__name__} of other units are compared")
    return replace(contributions, blocks=[_cloned(block) for block in contributions.blocks])


def _cloned(block: torch.Tensor | PartialGradients) -> torch.Tensor | PartialGradients:
    return block._replace(gradients=block.gradients.clone()) if isinstance(block, PartialGradients) else block.clone()


def _unreadable(*_coins: Booleans) -> Any:
    raise Alarm("a step that is stored reads no record")
