"""Detectors on noisy directions: what they cost, the law they are drawn from, and who takes part how often."""

import contextlib
import itertools
import math
from collections.abc import Iterable
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from datalens_service.data.dataset import Schema, Split
from datalens_service.mechanisms import GradientChunk, VonMisesFisherSum
from datalens_service.mechanisms.von_mises_fisher import GRID
from datalens_service.methods import DpSgd
from datalens_service.methods.descent import noisy_directions
from datalens_service.methods.descent.noisy_directions import PartitionedRun
from datalens_service.privacy.accounting import NeighboringRelation, epsilon_of_ledger_units, mu_of_ledger_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.randomness import Booleans, NoiseSource
from tests.stepped_runs import SteppedRun

from .alarm import expect
from .detect_noise import _frozen_entropy, gdp_lower_bound
from .detect_release import Forgetful
from .replay import neighbor

_UNITS, _BATCHES, _PASSES, _DIMENSIONS = 24, 4, 2, 40
_METHOD = DpSgd(
    architecture="linear", steps=8, sampling="partition", batch=6, noise="von_mises_fisher", momentum=0.0, averaging=0.0
)


def directions_cost_the_golden_numbers(_rng: np.random.Generator) -> None:
    """R10: LeNet on 60,000 records, 30 passes at kappa = 5: ε by composing the law of the cosine is 0.809."""
    schema = Schema(channels=1, height=28, width=28, class_names=("a", "b"), num_units=60_000)
    plan = PartitionedRun(schema, 61_706, 600, 3000).plan(5.0, 10**18)
    replaced, emptied = (plan.cost(relation) for relation in reversed(NeighboringRelation))
    expect(0.80 < epsilon_of_ledger_units(replaced, 1e-5) < 0.82, "replacing a unit costs the golden number")
    expect(abs(replaced / emptied - 4) < 1e-6, "emptying a unit moves it half as far")
    summary = noisy_directions.summarize_directions(plan)
    expect(summary is not None and summary.passes == 30, "every pass over the units is counted")
    expect(summary is not None and 299.9 < summary.pure_epsilon_replace_one < 300.1, "pure ε is 2·kappa for each pass")
    mechanism = plan.releases[0].mechanism
    kappa = mechanism.kappa if isinstance(mechanism, VonMisesFisherSum) else math.inf
    expect(4.99 < kappa <= 5.0, "the concentration is the one that was asked for")


def directions_have_their_law(_rng: np.random.Generator) -> None:
    """R7: mean and variance of the cosine, uniform without a direction, and nothing in float32."""
    rows, dimensions, kappa = 20_000, 50, 30.0
    means = np.zeros((rows, dimensions))
    means[:, 3] = 1
    drawn = NoiseSource().directions(means, kappa)
    cosines, expected = drawn[:, 3], 0.470_527_6
    expect(abs(np.linalg.norm(drawn, axis=1) - 1).max() < 1e-12, "directions have length 1")
    expect(abs(cosines.mean() - expected) < 6 * cosines.std() / math.sqrt(rows), "the mean cosine is that of kappa")
    variance = 1 - expected**2 - (dimensions - 1) * expected / kappa
    expect(abs(cosines.var() / variance - 1) < 6 * math.sqrt(2 / rows), "so is its variance")
    beside = np.delete(drawn, 3, axis=1)
    expect(abs(beside.mean()) < 6 * beside.std() / math.sqrt(beside.size), "the rest points nowhere")
    correlations = np.corrcoef(beside[:200])[np.triu_indices(200, 1)]
    expect(np.abs(correlations).max() < 7 / math.sqrt(dimensions), "two draws share no noise")
    nowhere = NoiseSource().directions(np.zeros((rows, dimensions)), kappa)
    expect(np.abs(nowhere.mean(axis=0)).max() < 7 / math.sqrt(dimensions * rows), "no direction is a uniform one")


def an_audit_of_directions_finds_what_was_charged(_rng: np.random.Generator) -> None:
    """R34: whoever knows x tells a unit that points there from an emptied one; 0.9 to 1.0 of the price of a pass."""
    rows, dimensions = 20_000, 400
    schema = Schema(channels=1, height=6, width=6, class_names=("a", "b"), num_units=_UNITS)
    plan = PartitionedRun(schema, dimensions, _UNITS, 1).plan(40.0, 10**18)
    mechanism = plan.releases[0].mechanism
    kappa = mechanism.kappa if isinstance(mechanism, VonMisesFisherSum) else 0.0
    declared = mu_of_ledger_units(plan.cost())
    nowhere = np.zeros((rows, dimensions))
    there = nowhere.copy()
    there[:, 7] = 1
    # Each row is what a release adds for its unit, on the grid.
    high, low = (np.rint(GRID * NoiseSource().directions(means, kappa)[:, 7]) for means in (there, nowhere))
    found = gdp_lower_bound(high, low)
    expect(found <= declared, f"the audit of directions finds {found:.3f}, charged were {declared:.3f}")
    expect(found >= 0.9 * declared, f"the audit of directions has power ({found:.3f} of {declared:.3f})")


def directions_come_from_the_operating_system(_rng: np.random.Generator) -> None:
    """R7: same entropy, same noise; fresh entropy, fresh noise."""
    draws = []
    for _ in range(2):
        with _frozen_entropy():
            draws.append(_draw(_UNITS, NoiseSource()))
    expect(np.array_equal(*draws), "directions are a function of the system's entropy alone")
    expect(not np.array_equal(draws[0], _draw(_UNITS, NoiseSource())), "fresh entropy draws other directions")


def every_unit_of_a_batch_has_noise_of_its_own(_rng: np.random.Generator) -> None:
    """R7: as many draws as the batch has units, whether or not they have records; the spread of a sum shows it."""
    for present in (_UNITS, 5, 0):
        noise = _Counted()
        _draw(present, noise)
        expect(noise.rows == _UNITS, "every unit of a batch adds one direction, also one without records")
    sums = np.array([_draw(_UNITS, NoiseSource()) for _ in range(300)])
    across = sums[:, 1:].var()
    expect(abs(across * _DIMENSIONS / _UNITS - 1) < 0.15, "noise is on every unit, not on their sum")


def units_take_part_once_in_a_pass(_rng: np.random.Generator) -> None:
    """R41: also where a crash loses draws: a batch that may have been drawn is never drawn again."""
    part = np.zeros(_UNITS, dtype=int)
    account = Forgetful(10**18)
    mechanism = _mechanism(_BATCHES)
    block = mechanism.block()

    def summed(batch: Booleans) -> list[GradientChunk]:
        part[:] += batch
        return []

    for _ in range(block.draws):
        with contextlib.suppress(ConnectionError):
            mechanism.release(summed, step=0, account=account, noise=NoiseSource())
    expect(bool((part == block.passes).all()), "every unit takes part once in each pass")
    expect(
        sorted(itertools.chain(*_batches(range(_UNITS)))) == list(range(_UNITS)), "a pass computes every gradient once"
    )


def batches_do_not_depend_on_who_has_records(_rng: np.random.Generator) -> None:
    """R6: a unit without records moves nobody to another batch."""
    everybody, others = _batches(range(_UNITS)), _batches([unit for unit in range(_UNITS) if unit != 3])
    for first, second in zip(everybody, others, strict=True):
        expect([unit for unit in first if unit != 3] == second, "an emptied unit moves no other")


class _Counted(NoiseSource):  # type: ignore[misc]
    """How many directions were drawn."""

    rows = 0

    def directions(self, means: NDArray[np.float64], kappa: float) -> NDArray[np.float64]:
        self.rows += len(means)
        return super().directions(means, kappa)


def _mechanism(batches: int) -> VonMisesFisherSum:
    price = PartitionedPasses(
        num_units=_UNITS, batches=batches, passes=_PASSES, ledger_units_zero_out=1, ledger_units_replace_one=1
    )  # fmt: skip
    mechanism = VonMisesFisherSum(dimensions=_DIMENSIONS, partition=price, noise_stddev=10**6)
    priced = PartitionedPasses.priced(
        mechanism.noise_multiplier(), num_units=_UNITS, batches=batches, passes=_PASSES
    )  # fmt: skip
    return mechanism.model_copy(update={"partition": priced})


def _draw(present: int, noise: NoiseSource) -> NDArray[np.float64]:
    """A release of one batch of all units, of which some have records."""
    rows = torch.zeros(present, _DIMENSIONS)
    rows[:, 0] = 1
    chunk = GradientChunk(rows, torch.arange(present))
    return _mechanism(1).release(lambda _batch: [chunk], step=0, account=MemoryAccount(10**18), noise=noise)


def _batches(present: Iterable[int]) -> list[list[int]]:
    """Units whose gradients a pass computed, step by step, of records that only some units have."""
    units = np.array(list(present), dtype=np.int64)
    images = np.full((len(units), 6, 6, 1), 9, dtype=np.uint8)
    schema = Schema(channels=1, height=6, width=6, class_names=("a", "b"), num_units=_UNITS)
    data = neighbor(schema, Split(images, np.zeros(len(units), dtype=np.int64), units), b"k" * 32)
    plan = _METHOD.plan_within(schema, 20.0, 1e-4)
    training_run = SteppedRun(_METHOD, plan, data)
    batches: list[list[int]] = []
    noisy_sum = VonMisesFisherSum.noisy_sum

    def noted(self: VonMisesFisherSum, contributions: Any, batch: Booleans, noise: NoiseSource) -> Any:
        chunks = list(contributions)
        batches.append([unit for chunk in chunks for unit in chunk.units.tolist()])
        return noisy_sum(self, chunks, batch, noise)

    account = MemoryAccount(plan.cost())
    with mock.patch.object(VonMisesFisherSum, "noisy_sum", noted):
        for step in range(_BATCHES):
            training_run.step(step, account, NoiseSource())
    return batches
