"""Bugs of noisy directions (specification of private classifiers, section 8.4)."""

import numpy as np

from datalens_service.mechanisms import VonMisesFisherSum, unit_records
from datalens_service.methods.descent import noisy_directions
from datalens_service.privacy import partitioned_passes, randomness, von_mises_fisher
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.randomness import NoiseSource

from .plant import around, plant, replaces


@around("noisy directions with κ = ε instead of ε/2", "R10", VonMisesFisherSum, "kappa")
def kappa_is_the_epsilon_that_is_named(kappa, self):
    """Noise of twice the concentration: κ = ε instead of κ = ε/2."""
    return 2 * kappa(self)


@around("passes of noisy directions priced as one", "R10", partitioned_passes, "partition_ledger_units")
def passes_are_priced_as_one(partition_ledger_units, multiplier, _passes, relation):
    """Parallel composition over batches is taken for one over passes."""
    return partition_ledger_units(multiplier, 1, relation)


@around("a replaced direction priced like an emptied one", "R10", partitioned_passes, "partition_ledger_units")
def replacing_a_unit_costs_as_much_as_emptying_it(partition_ledger_units, multiplier, passes, _relation):
    """Two directions lie up to 2 apart, not 1."""
    return partition_ledger_units(multiplier, passes, NeighboringRelation.ZERO_OUT)


@around("pure ε of directions without the passes", "R10", noisy_directions, "summarize_directions")
def pure_epsilon_forgets_the_passes(summarize, plan):
    """What is called ε of the training is that of one pass."""
    summary = summarize(plan)
    pure = summary.pure_epsilon_replace_one / summary.passes
    return summary.model_copy(update={"pure_epsilon_replace_one": pure})


@replaces("directional noise on the mean, priced for each unit", "R7", VonMisesFisherSum, "noisy_sum")
def noise_is_on_the_mean(self, contributions, batch, noise):
    """One draw for a batch, priced as one for each unit."""
    total = self.exact_sum(contributions) / 2**16
    length = float(np.linalg.norm(total)) or 1.0
    drawn = noise.directions((total / length)[None].astype(np.float64), self.kappa)[0]
    return np.rint(drawn * length * 2**16).astype(np.int64)


@around("directional noise on each unit, priced for the mean", "R10", VonMisesFisherSum, "sensitivity_squared")
def every_unit_is_priced_as_part_of_a_mean(sensitivity_squared, self, relation):
    """Noise is on each unit's direction, and the price is that of noise on the mean, which one unit hardly moves."""
    return sensitivity_squared(self, relation) / round(self.partition.batch) ** 2


@around("units without records leave their noise out", "R7", VonMisesFisherSum, "noisy_sum")
def units_without_records_add_nothing(noisy_sum, self, contributions, batch, noise):
    """The number of terms of a sum tells who was there."""
    chunks = list(contributions)
    present = sum(len(chunk.units.unique()) for chunk in chunks)
    return noisy_sum(self, chunks, np.ones(present, dtype=bool), noise)


@around("units without a direction point somewhere", "R7", NoiseSource, "directions")
def units_without_a_direction_point_at_the_pole(directions, self, means, kappa):
    """An emptied unit gets noise around a fixed direction instead of a uniform one."""
    named = means.copy()
    named[~means.any(axis=1), 0] = 1.0
    return directions(self, named, kappa)


@around("cosines of directions at their mean", "R7", von_mises_fisher, "draw_cosines")
def cosines_are_not_drawn(draw_cosines, count, *arguments):
    """Every direction lies at the mean angle."""
    return np.full(count, draw_cosines(1000, *arguments).mean())


@around("a batch of a partition drawn twice after a crash", "R41", PartitionedPasses, "draw_batch")
def a_lost_batch_is_drawn_again(draw_batch, self, draw, noise):
    """A draw that a crash lost does not count: its units take part once more."""
    return draw_batch(self, max(0, draw - 1), noise)


@replaces("batches of a partition drawn afresh", "R41", PartitionedPasses, "draw_batch")
def batches_are_drawn_afresh(self, draw, _noise):
    """Every batch is a random subset: some units take part more often than a pass allows."""
    order = np.random.default_rng(draw).permutation(self.num_units)
    return np.asarray(order < self.num_units // self.batches)


@replaces("batches by positions among units with records", "R6", unit_records, "number_coins")
def positions_are_those_of_the_units_that_have_records(unit_ids, _num_units):
    """Units are numbered anew without the empty ones, so who is missing moves others to other batches."""
    return np.unique(unit_ids, return_inverse=True)[1]


@plant("noisy directions from a seed", "R7")
def directions_are_seeded(patch):
    """Noise follows from a seed."""
    rng = np.random.default_rng(0)
    patch.setattr(randomness, "_uniforms", lambda size: rng.random(size) + 1e-300)
