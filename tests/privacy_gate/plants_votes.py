"""Bugs in what is summed and in the sensitivity that is claimed for it."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from datalens_service.mechanisms import (
    AccuracyCount,
    CrossProductSum,
    OuterProductSum,
    TopAgg,
    VectorSum,
    VoteMechanism,
    count_sketch,
    cross_product,
    klevel,
    moments,
    topagg,
)
from datalens_service.mechanisms.count_sketch import CountSketch
from datalens_service.mechanisms.klevel import KLevel
from datalens_service.mechanisms.moments import BoundedSum
from datalens_service.methods import DataLens, Moments
from datalens_service.privacy.accounting import NeighboringRelation

from .plant import Change, around, plant, replaces

UNGUARDED = Change(VoteMechanism, "zero_out_of_bound_rows", lambda self, votes: votes)
"""Without the row guard, which would stop some of the plants."""


@replaces("row guard lets everything through", "R5", VoteMechanism, "zero_out_of_bound_rows")
def guard_lets_all_through(self, votes):
    """The row guard returns what it was given."""
    return votes


@replaces("row guard overflows", "R5", VoteMechanism, "zero_out_of_bound_rows")
def guard_counts_in_narrow_integers(self, votes):
    """Squares overflow, so that a long row looks short."""
    squared = votes.to(torch.int8).square().sum(dim=-1, keepdim=True, dtype=torch.int8)
    return votes * (squared <= self.row_bound_squared)


@around("top-(k+1)", "R6", topagg, "sign_votes", beside=UNGUARDED)
def one_more_coordinate(sign_votes, gradients, top_k, *others):
    """Off by one in the selection, and no guard behind it."""
    return sign_votes(gradients, top_k + 1, *others)


@replaces("all ties at the k-th coordinate are kept", "R6", topagg, "_largest", beside=UNGUARDED)
def all_that_are_as_large_as_the_kth(magnitudes, count):
    """Ties at the bar are all kept, and no guard behind it."""
    return magnitudes >= magnitudes.topk(min(count, magnitudes.shape[-1]), dim=-1).values[..., -1:]


@replaces("values instead of signs", "R6", TopAgg, "encode", beside=UNGUARDED)
def values_instead_of_signs(self, gradients, generator):
    """Votes keep the gradient's size, and no guard behind it."""
    return (1000 * topagg.zero_rows_that_are_not_finite(gradients)).to(torch.int64)


@replaces("NaN passed through", "B24", (topagg, klevel), "zero_rows_that_are_not_finite")
def not_a_number_votes(gradients):
    """NaN is the largest of all, and gets a sign."""
    return gradients


@replaces("infinite gradients vote", "B24", (topagg, klevel), "zero_rows_that_are_not_finite")
def infinities_vote(gradients):
    """Only NaN is looked for; a diverged teacher votes with its infinities."""
    return torch.where(gradients.isnan().any(dim=-1, keepdim=True), 0.0, gradients)


@around("rows normalised by the largest of all teachers", "R6", topagg, "zero_rows_that_are_not_finite")
def normalised_by_the_largest_of_all(zero_rows, gradients):
    """The scale of a row is taken from the whole block: one teacher silences the others."""
    finite = zero_rows(gradients)
    return (finite / finite.abs().max().clamp_min(1e-30)).mul(1e3).round()


@around("top-k after the sum", "B10", VoteMechanism, "exact_sum")
def top_k_after_the_sum(total, self, contributions):
    """Dense signs are summed and the largest sums kept: one teacher moves the selection."""
    sums = total(self, contributions)
    bar = np.sort(np.abs(sums), axis=-1)[:, -min(8, sums.shape[-1])][:, None]
    return np.where(np.abs(sums) >= bar, sums, 0)


@around("threshold applied before the noise", "R6", VoteMechanism, "exact_sum")
def threshold_before_the_noise(total, self, contributions):
    """The decision falls on the exact sum: one vote moves whole coordinates from 0 to N."""
    sums = total(self, contributions)
    return self.num_teachers * np.sign(sums) * (np.abs(sums) >= self.num_teachers // 4)


@replaces("sketches longer than charged for", "R6", count_sketch, "_truncate", beside=UNGUARDED)
def sketches_are_not_truncated(tables, bound):
    """Collisions lengthen tables beyond √(rows·k), and no guard behind it."""
    return tables


@replaces("sketches charged like one row", "B10", CountSketch, "row_bound_squared", beside=UNGUARDED)
def sketches_cost_one_row(self):
    """The published 2√k for a table of several rows."""
    return self.top_k


@replaces("row norm of k-level votes not enforced", "R6", KLevel, "_shorten", beside=UNGUARDED)
def levels_without_a_row_norm(self, rows):
    """The smaller norm is charged for and not enforced."""
    return rows


@replaces("long records summed without clipping", "R6", BoundedSum, "on_grid")
def long_records_are_summed(self, values):
    """The sensitivity of clipped records, the sum of raw ones."""
    return np.rint(np.nan_to_num(values) * self.grid)


@plant("rounding to the grid left out of the radius", "R6")
def rounding_is_forgotten(patch):
    """Records on the grid can be longer than the ball they were clipped to; the radius ignores it."""
    patch.setattr(BoundedSum, "radius", property(lambda self: self.grid - 3))
    on_grid = BoundedSum.on_grid

    def unguarded(self: BoundedSum, values: np.ndarray) -> np.ndarray:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(BoundedSum, "radius", property(lambda bounded: 2 * bounded.grid))
            return on_grid(self, values)

    patch.setattr(BoundedSum, "on_grid", unguarded)


@replaces("class counts released for free", "R17", VectorSum, "sensitivity_squared")
def counts_are_free(self, relation):
    """The class count is released with the sum and not charged for."""
    return Fraction((4 if relation is NeighboringRelation.REPLACE_ONE else 1) * self.radius**2)


@plant("replace-one figure equal to zero-out for sums", "R6")
def replaced_like_emptied(patch):
    """The zero-out figure is shown as the replace-one figure."""
    patch.setattr(OuterProductSum, "sensitivity_squared", lambda self, relation: Fraction(self.radius**4))
    patch.setattr(
        VectorSum, "sensitivity_squared", lambda self, relation: Fraction(self.radius**2 + self.count_weight**2)
    )


@around("weights of a triangle are free", "R6", OuterProductSum, "sensitivity_squared")
def weights_of_a_triangle_are_free(sensitivity, self, relation):
    """Entries of outer products count five and seven times, at the price of one."""
    return sensitivity(self.model_copy(update={"weights": (1, 1)}), relation)


@replaces("sensitivity √k instead of 2√k", "R6", VoteMechanism, "sensitivity_squared")
def sensitivity_is_root_k(self, relation):
    """√k instead of 2√k: as if a vote could only vanish, not turn."""
    return Fraction(self.row_bound_squared)


@replaces("mixed shards charged like class-pure ones", "R6", VoteMechanism, "queries_per_unit")
def mixed_shards_at_the_price_of_pure_ones(self, relation):
    """A step costs one image although every teacher votes on all."""
    return 1


@replaces("relabelled unit charged for one teacher", "R6", VoteMechanism, "queries_per_unit")
def relabelled_units_count_once(self, relation):
    """With class-pure shards a relabelled unit leaves one teacher and enters another."""
    return self.images_per_teacher


@around(
    "units of several records charged like one record",
    "R2",
    (VectorSum, OuterProductSum, CrossProductSum),
    "sensitivity_squared",
)
def units_cost_like_records(sensitivity, self, relation):
    """Sums are charged for one record of a unit, however many it may have."""
    return sensitivity(self.model_copy(update={"records_per_unit": 1}), relation)


@replaces("units summed with more records than declared", "R2", (moments, cross_product), "position_in_unit")
def units_hold_more_than_declared(units):
    """All records of a unit are summed, however many were declared."""
    return np.zeros(len(units), dtype=np.int64)


@around("one factor of a gradient not clipped", "R6", CrossProductSum, "on_grid")
def one_factor_is_not_clipped(on_grid, self, values):
    """Only the features of a gradient are clipped, not the errors: no bound of their product."""
    if values.shape[1] == self.left_dimensions:
        return on_grid(self, values)
    return np.rint(np.nan_to_num(values) * self.grid)


@replaces("gradients charged for one factor", "R6", CrossProductSum, "sensitivity_squared")
def one_factor_is_free(self, relation):
    """The sensitivity of a product is taken for that of one factor."""
    return Fraction(self.radius(self.left_dimensions) ** 2)


@around("units of several classes charged for one teacher", "R2", VoteMechanism, "queries_per_unit")
def units_of_many_classes_count_once(queries, self, relation):
    """With class-pure shards a unit has a teacher in every class it has records of; one is charged."""
    return queries(self.model_copy(update={"classes_per_unit": 1}), relation)


@around("plans forget the classes of a unit", "R2", DataLens, "_mechanism")
def plans_forget_the_classes_of_a_unit(mechanism, self, schema):
    """The mechanism knows the price of several classes; the plan does not tell it that there are any."""
    return mechanism(self, schema).model_copy(update={"classes_per_unit": 1})


@around("plans forget the records of a unit", "R2", Moments, "plan")
def plans_forget_the_records_of_a_unit(plan, self, schema, units):
    """The same for sums."""
    return plan(self, schema.model_copy(update={"records_per_unit": 1}), units)


@replaces("accuracy counts images instead of units", "R26", AccuracyCount, "exact_sum")
def every_image_counts(self, contributions):
    """Images are counted instead of units: somebody with many images moves the accuracy by as many."""
    return np.array([np.count_nonzero(contributions.right)], dtype=np.int64)


@replaces("accuracy priced as a share", "R26", AccuracyCount, "sensitivity_squared")
def accuracy_is_a_share_already(self, relation):
    """The sensitivity of a share, 1/n, for a count."""
    return Fraction(1, self.num_units**2)
