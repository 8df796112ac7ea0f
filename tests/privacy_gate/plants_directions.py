"""Bugs of noisy directions (specification of private classifiers, section 8.4)."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from datalens_service.mechanisms import VonMisesFisherSum, unit_records
from datalens_service.methods.descent import noisy_directions
from datalens_service.privacy import partitioned_passes, randomness
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.randomness import Booleans, Integers, NoiseSource

from .plant import Plant

_kappa = VonMisesFisherSum.kappa
_partition_units = partitioned_passes.partition_units


def kappa_is_the_epsilon_that_is_named(patch: pytest.MonkeyPatch) -> None:
    """Noise of twice the concentration: κ = ε instead of κ = ε/2."""
    patch.setattr(VonMisesFisherSum, "kappa", property(lambda self: 2 * _kappa.fget(self)))


def passes_are_priced_as_one(patch: pytest.MonkeyPatch) -> None:
    """Parallel composition over batches is taken for one over passes."""

    def of_one(multiplier: float, _passes: int, relation: NeighboringRelation) -> int:
        return _partition_units(multiplier, 1, relation)

    patch.setattr(partitioned_passes, "partition_units", of_one)


def replacing_a_unit_costs_as_much_as_emptying_it(patch: pytest.MonkeyPatch) -> None:
    """Two directions lie up to 2 apart, not 1."""

    def emptied(multiplier: float, passes: int, _relation: NeighboringRelation) -> int:
        return _partition_units(multiplier, passes, NeighboringRelation.ZERO_OUT)

    patch.setattr(partitioned_passes, "partition_units", emptied)


def pure_epsilon_forgets_the_passes(patch: pytest.MonkeyPatch) -> None:
    """What is called ε of the training is that of one pass."""
    summarize = noisy_directions.summarize_directions

    def of_one_pass(plan: Any) -> Any:
        summary = summarize(plan)
        pure = summary.pure_epsilon_replace_one / summary.passes
        return summary.model_copy(update={"pure_epsilon_replace_one": pure})

    patch.setattr(noisy_directions, "summarize_directions", of_one_pass)


def noise_is_on_the_mean(patch: pytest.MonkeyPatch) -> None:
    """One draw for a batch, priced as one for each unit."""

    def once(self: VonMisesFisherSum, contributions: Iterable[Any], batch: Booleans, noise: NoiseSource) -> Integers:
        total = self.exact_sum(contributions) / 2**16
        length = float(np.linalg.norm(total)) or 1.0
        drawn = noise.directions((total / length)[None].astype(np.float64), self.kappa)[0]
        return np.rint(drawn * length * 2**16).astype(np.int64)

    patch.setattr(VonMisesFisherSum, "noisy_sum", once)


def every_unit_is_priced_as_part_of_a_mean(patch: pytest.MonkeyPatch) -> None:
    """Noise is on each unit's direction, and the price is that of noise on the mean, which one unit hardly moves."""
    sensitivity_squared = VonMisesFisherSum.sensitivity_squared

    def of_mean(self: VonMisesFisherSum, relation: NeighboringRelation) -> Fraction:
        return sensitivity_squared(self, relation) / round(self.partition.batch) ** 2

    patch.setattr(VonMisesFisherSum, "sensitivity_squared", of_mean)


def units_without_records_add_nothing(patch: pytest.MonkeyPatch) -> None:
    """The number of terms of a sum tells who was there."""
    noisy_sum = VonMisesFisherSum.noisy_sum

    def without(self: VonMisesFisherSum, contributions: Iterable[Any], batch: Booleans, noise: NoiseSource) -> Integers:
        chunks = list(contributions)
        present = sum(len(chunk.units.unique()) for chunk in chunks)
        return noisy_sum(self, chunks, np.ones(present, dtype=bool), noise)

    patch.setattr(VonMisesFisherSum, "noisy_sum", without)


def units_without_a_direction_point_at_the_pole(patch: pytest.MonkeyPatch) -> None:
    """An emptied unit gets noise around a fixed direction instead of a uniform one."""
    directions = NoiseSource.directions

    def pointed(self: NoiseSource, means: NDArray[np.float64], kappa: float) -> NDArray[np.float64]:
        named = means.copy()
        named[~means.any(axis=1), 0] = 1.0
        return directions(self, named, kappa)

    patch.setattr(NoiseSource, "directions", pointed)


def cosines_are_not_drawn(patch: pytest.MonkeyPatch) -> None:
    """Every direction lies at the mean angle."""
    from datalens_service.privacy import von_mises_fisher

    draw_cosines = von_mises_fisher.draw_cosines

    def mean(count: int, *arguments: Any) -> NDArray[np.float64]:
        return np.full(count, draw_cosines(1000, *arguments).mean())

    patch.setattr(von_mises_fisher, "draw_cosines", mean)


def a_lost_batch_is_drawn_again(patch: pytest.MonkeyPatch) -> None:
    """A draw that a crash lost does not count: its units take part once more."""
    draw_batch = PartitionedPasses.draw_batch
    patch.setattr(PartitionedPasses, "draw_batch", lambda self, draw, noise: draw_batch(self, max(0, draw - 1), noise))


def batches_are_drawn_afresh(patch: pytest.MonkeyPatch) -> None:
    """Every batch is a random subset: some units take part more often than a pass allows."""

    def random(self: PartitionedPasses, draw: int, _noise: NoiseSource) -> Booleans:
        order = np.random.default_rng(draw).permutation(self.num_units)
        return np.asarray(order < self.num_units // self.batches)

    patch.setattr(PartitionedPasses, "draw_batch", random)


def positions_are_those_of_the_units_that_have_records(patch: pytest.MonkeyPatch) -> None:
    """Units are numbered anew without the empty ones, so who is missing moves others to other batches."""
    patch.setattr(
        unit_records, "number_coins", lambda unit_ids, _num_units: np.unique(unit_ids, return_inverse=True)[1]
    )


def directions_are_seeded(patch: pytest.MonkeyPatch) -> None:
    """Noise follows from a seed."""
    rng = np.random.default_rng(0)
    patch.setattr(randomness, "_uniforms", lambda size: rng.random(size) + 1e-300)


PLANTS = (
    Plant("noisy directions with κ = ε instead of ε/2", "R10", kappa_is_the_epsilon_that_is_named),
    Plant("passes of noisy directions priced as one", "R10", passes_are_priced_as_one),
    Plant("a replaced direction priced like an emptied one", "R10", replacing_a_unit_costs_as_much_as_emptying_it),
    Plant("pure ε of directions without the passes", "R10", pure_epsilon_forgets_the_passes),
    Plant("directional noise on the mean, priced for each unit", "R7", noise_is_on_the_mean),
    Plant("directional noise on each unit, priced for the mean", "R10", every_unit_is_priced_as_part_of_a_mean),
    Plant("units without records leave their noise out", "R7", units_without_records_add_nothing),
    Plant("units without a direction point somewhere", "R7", units_without_a_direction_point_at_the_pole),
    Plant("cosines of directions at their mean", "R7", cosines_are_not_drawn),
    Plant("a batch of a partition drawn twice after a crash", "R41", a_lost_batch_is_drawn_again),
    Plant("batches of a partition drawn afresh", "R41", batches_are_drawn_afresh),
    Plant("batches by positions among units with records", "R6", positions_are_those_of_the_units_that_have_records),
    Plant("noisy directions from a seed", "R7", directions_are_seeded),
)
