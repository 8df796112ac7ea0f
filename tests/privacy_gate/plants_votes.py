"""Bugs in what is summed and in the sensitivity that is claimed for it."""

from fractions import Fraction
from typing import Any

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
from datalens_service.mechanisms.accuracy import Answers
from datalens_service.mechanisms.count_sketch import CountSketch
from datalens_service.mechanisms.klevel import KLevel
from datalens_service.mechanisms.moments import BoundedSum
from datalens_service.methods import DataLens, Moments
from datalens_service.privacy.accounting import NeighboringRelation

from .plant import Plant


def guard_lets_all_through(patch: pytest.MonkeyPatch) -> None:
    """The row guard returns what it was given."""
    patch.setattr(VoteMechanism, "zero_out_of_bound_rows", lambda self, votes: votes)


def guard_counts_in_narrow_integers(patch: pytest.MonkeyPatch) -> None:
    """Squares overflow, so that a long row looks short."""

    def narrow(self: VoteMechanism, votes: torch.Tensor) -> torch.Tensor:
        squared = votes.to(torch.int8).square().sum(dim=-1, keepdim=True, dtype=torch.int8)
        return votes * (squared <= self.row_bound_squared)

    patch.setattr(VoteMechanism, "zero_out_of_bound_rows", narrow)


def one_more_coordinate(patch: pytest.MonkeyPatch) -> None:
    """Off by one in the selection, and no guard behind it."""
    guard_lets_all_through(patch)
    sign_votes = topagg.sign_votes

    def longer(gradients: torch.Tensor, top_k: int, *others: Any) -> torch.Tensor:
        return sign_votes(gradients, top_k + 1, *others)

    patch.setattr(topagg, "sign_votes", longer)


def all_that_are_as_large_as_the_kth(patch: pytest.MonkeyPatch) -> None:
    """Ties at the bar are all kept, and no guard behind it."""
    guard_lets_all_through(patch)

    def largest(magnitudes: torch.Tensor, count: int) -> torch.Tensor:
        return magnitudes >= magnitudes.topk(min(count, magnitudes.shape[-1]), dim=-1).values[..., -1:]

    patch.setattr(topagg, "_largest", largest)


def values_instead_of_signs(patch: pytest.MonkeyPatch) -> None:
    """Votes keep the gradient's size, and no guard behind it."""
    guard_lets_all_through(patch)

    def values(self: TopAgg, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return (1000 * topagg.clip_and_sanitize(gradients, self.clip)).to(torch.int64)

    patch.setattr(TopAgg, "encode", values)


def not_a_number_votes(patch: pytest.MonkeyPatch) -> None:
    """NaN passes the clamp, is the largest of all, and gets a sign."""
    for module in (topagg, klevel):
        patch.setattr(module, "clip_and_sanitize", lambda gradients, clip: gradients.clamp(-clip, clip))


def infinities_vote(patch: pytest.MonkeyPatch) -> None:
    """Only NaN is looked for; a diverged teacher votes with its infinities."""

    def nan_only(gradients: torch.Tensor, clip: float) -> torch.Tensor:
        return torch.where(gradients.isnan().any(dim=-1, keepdim=True), 0.0, gradients).clamp(-clip, clip)

    for module in (topagg, klevel):
        patch.setattr(module, "clip_and_sanitize", nan_only)


def normalised_by_the_largest_of_all(patch: pytest.MonkeyPatch) -> None:
    """The scale of a row is taken from the whole block: one teacher silences the others."""
    clip_rows = topagg.clip_and_sanitize

    def scaled(gradients: torch.Tensor, clip: float) -> torch.Tensor:
        finite = clip_rows(gradients, float("inf"))
        return (finite / finite.abs().max().clamp_min(1e-30)).mul(1e3).round().clamp(-clip, clip)

    patch.setattr(topagg, "clip_and_sanitize", scaled)


def top_k_after_the_sum(patch: pytest.MonkeyPatch) -> None:
    """Dense signs are summed and the largest sums kept: one teacher moves the selection."""
    total = VoteMechanism.exact_sum

    def selected(self: VoteMechanism, contributions: Any) -> np.ndarray:
        sums = total(self, contributions)
        bar = np.sort(np.abs(sums), axis=-1)[:, -min(8, sums.shape[-1])][:, None]
        return np.where(np.abs(sums) >= bar, sums, 0)

    patch.setattr(VoteMechanism, "exact_sum", selected)


def threshold_before_the_noise(patch: pytest.MonkeyPatch) -> None:
    """The decision falls on the exact sum: one vote moves whole coordinates from 0 to N."""
    total = VoteMechanism.exact_sum

    def decided(self: VoteMechanism, contributions: Any) -> np.ndarray:
        sums = total(self, contributions)
        return self.num_teachers * np.sign(sums) * (np.abs(sums) >= self.num_teachers // 4)

    patch.setattr(VoteMechanism, "exact_sum", decided)


def sketches_are_not_truncated(patch: pytest.MonkeyPatch) -> None:
    """Collisions lengthen tables beyond √(rows·k), and no guard behind it."""
    guard_lets_all_through(patch)
    patch.setattr(count_sketch, "_truncate", lambda tables, bound: tables)


def sketches_cost_one_row(patch: pytest.MonkeyPatch) -> None:
    """The published 2√k for a table of several rows."""
    patch.setattr(CountSketch, "row_bound_squared", property(lambda self: self.top_k))
    guard_lets_all_through(patch)


def levels_without_a_row_norm(patch: pytest.MonkeyPatch) -> None:
    """The smaller norm is charged for and not enforced."""
    guard_lets_all_through(patch)
    patch.setattr(KLevel, "_shorten", lambda self, rows: rows)


def long_records_are_summed(patch: pytest.MonkeyPatch) -> None:
    """The sensitivity of clipped records, the sum of raw ones."""

    def raw(self: BoundedSum, values: np.ndarray) -> np.ndarray:
        return np.rint(np.nan_to_num(values) * self.grid)

    patch.setattr(BoundedSum, "on_grid", raw)


def rounding_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Records on the grid can be longer than the ball they were clipped to; the radius ignores it."""
    patch.setattr(BoundedSum, "radius", property(lambda self: self.grid - 3))
    on_grid = BoundedSum.on_grid

    def unguarded(self: BoundedSum, values: np.ndarray) -> np.ndarray:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(BoundedSum, "radius", property(lambda bounded: 2 * bounded.grid))
            return on_grid(self, values)

    patch.setattr(BoundedSum, "on_grid", unguarded)


def counts_are_free(patch: pytest.MonkeyPatch) -> None:
    """The class count is released with the sum and not charged for."""

    def vectors_only(self: VectorSum, relation: NeighboringRelation) -> Fraction:
        return Fraction((4 if relation is NeighboringRelation.REPLACE_ONE else 1) * self.radius**2)

    patch.setattr(VectorSum, "sensitivity_squared", vectors_only)


def replaced_like_emptied(patch: pytest.MonkeyPatch) -> None:
    """The zero-out figure is shown as the replace-one figure."""
    patch.setattr(OuterProductSum, "sensitivity_squared", lambda self, relation: Fraction(self.radius**4))
    patch.setattr(
        VectorSum, "sensitivity_squared", lambda self, relation: Fraction(self.radius**2 + self.count_weight**2)
    )


def weights_of_a_triangle_are_free(patch: pytest.MonkeyPatch) -> None:
    """Entries of outer products count five and seven times, at the price of one."""
    sensitivity = OuterProductSum.sensitivity_squared

    def of_weight_one(self: Any, relation: NeighboringRelation) -> Fraction:
        return sensitivity(self.model_copy(update={"weights": (1, 1)}), relation)

    patch.setattr(OuterProductSum, "sensitivity_squared", of_weight_one)


def sensitivity_is_root_k(patch: pytest.MonkeyPatch) -> None:
    """√k instead of 2√k: as if a vote could only vanish, not turn."""
    patch.setattr(VoteMechanism, "sensitivity_squared", lambda self, relation: Fraction(self.row_bound_squared))


def mixed_shards_at_the_price_of_pure_ones(patch: pytest.MonkeyPatch) -> None:
    """A step costs one image although every teacher votes on all."""
    patch.setattr(VoteMechanism, "queries_per_unit", lambda self, relation: 1)


def relabelled_units_count_once(patch: pytest.MonkeyPatch) -> None:
    """With class-pure shards a relabelled unit leaves one teacher and enters another."""
    patch.setattr(VoteMechanism, "queries_per_unit", lambda self, relation: self.images_per_teacher)


def units_cost_like_records(patch: pytest.MonkeyPatch) -> None:
    """Sums are charged for one record of a unit, however many it may have."""
    for kind in (VectorSum, OuterProductSum, CrossProductSum):
        sensitivity = kind.sensitivity_squared

        def of_one_record(self: Any, relation: NeighboringRelation, sensitivity: Any = sensitivity) -> Fraction:
            return sensitivity(self.model_copy(update={"records_per_unit": 1}), relation)

        patch.setattr(kind, "sensitivity_squared", of_one_record)


def units_hold_more_than_declared(patch: pytest.MonkeyPatch) -> None:
    """All records of a unit are summed, however many were declared."""
    for room in (moments, cross_product):
        patch.setattr(room, "position_in_unit", lambda units: np.zeros(len(units), dtype=np.int64))


def one_factor_is_not_clipped(patch: pytest.MonkeyPatch) -> None:
    """Only the features of a gradient are clipped, not the errors: no bound of their product."""
    on_grid = CrossProductSum.on_grid

    def left_only(self: CrossProductSum, values: np.ndarray) -> np.ndarray:
        if values.shape[1] == self.left_dimensions:
            return on_grid(self, values)
        return np.rint(np.nan_to_num(values) * self.grid)

    patch.setattr(CrossProductSum, "on_grid", left_only)


def one_factor_is_free(patch: pytest.MonkeyPatch) -> None:
    """The sensitivity of a product is taken for that of one factor."""
    patch.setattr(
        CrossProductSum, "sensitivity_squared", lambda self, relation: Fraction(self.radius(self.left_dimensions) ** 2)
    )


def units_of_many_classes_count_once(patch: pytest.MonkeyPatch) -> None:
    """With class-pure shards a unit has a teacher in every class it has records of; one is charged."""
    queries = VoteMechanism.queries_per_unit
    patch.setattr(
        VoteMechanism,
        "queries_per_unit",
        lambda self, relation: queries(self.model_copy(update={"classes_per_unit": 1}), relation),
    )


def plans_forget_the_classes_of_a_unit(patch: pytest.MonkeyPatch) -> None:
    """The mechanism knows the price of several classes; the plan does not tell it that there are any."""
    mechanism = DataLens._mechanism
    patch.setattr(
        DataLens, "_mechanism", lambda self, schema: mechanism(self, schema).model_copy(update={"classes_per_unit": 1})
    )


def plans_forget_the_records_of_a_unit(patch: pytest.MonkeyPatch) -> None:
    """The same for sums."""
    plan = Moments.plan
    single = {"records_per_unit": 1}
    patch.setattr(Moments, "plan", lambda self, schema, units: plan(self, schema.model_copy(update=single), units))


def every_image_counts(patch: pytest.MonkeyPatch) -> None:
    """Images are counted instead of units: somebody with many images moves the accuracy by as many."""

    def images(self: AccuracyCount, contributions: Answers) -> np.ndarray:
        return np.array([np.count_nonzero(contributions.right)], dtype=np.int64)

    patch.setattr(AccuracyCount, "exact_sum", images)


def accuracy_is_a_share_already(patch: pytest.MonkeyPatch) -> None:
    """The sensitivity of a share, 1/n, for a count."""
    patch.setattr(AccuracyCount, "sensitivity_squared", lambda self, relation: Fraction(1, self.num_units**2))


PLANTS = (
    Plant("row guard lets everything through", "R5", guard_lets_all_through),
    Plant("row guard overflows", "R5", guard_counts_in_narrow_integers),
    Plant("top-(k+1)", "R6", one_more_coordinate),
    Plant("all ties at the k-th coordinate are kept", "R6", all_that_are_as_large_as_the_kth),
    Plant("values instead of signs", "R6", values_instead_of_signs),
    Plant("NaN passed through", "B24", not_a_number_votes),
    Plant("infinite gradients vote", "B24", infinities_vote),
    Plant("rows normalised by the largest of all teachers", "R6", normalised_by_the_largest_of_all),
    Plant("top-k after the sum", "B10", top_k_after_the_sum),
    Plant("threshold applied before the noise", "R6", threshold_before_the_noise),
    Plant("accuracy counts images instead of units", "R26", every_image_counts),
    Plant("accuracy priced as a share", "R26", accuracy_is_a_share_already),
    Plant("sketches longer than charged for", "R6", sketches_are_not_truncated),
    Plant("sketches charged like one row", "B10", sketches_cost_one_row),
    Plant("row norm of k-level votes not enforced", "R6", levels_without_a_row_norm),
    Plant("long records summed without clipping", "R6", long_records_are_summed),
    Plant("one factor of a gradient not clipped", "R6", one_factor_is_not_clipped),
    Plant("gradients charged for one factor", "R6", one_factor_is_free),
    Plant("rounding to the grid left out of the radius", "R6", rounding_is_forgotten),
    Plant("class counts released for free", "R17", counts_are_free),
    Plant("replace-one figure equal to zero-out for sums", "R6", replaced_like_emptied),
    Plant("weights of a triangle are free", "R6", weights_of_a_triangle_are_free),
    Plant("sensitivity √k instead of 2√k", "R6", sensitivity_is_root_k),
    Plant("mixed shards charged like class-pure ones", "R6", mixed_shards_at_the_price_of_pure_ones),
    Plant("relabelled unit charged for one teacher", "R6", relabelled_units_count_once),
    Plant("units of several records charged like one record", "R2", units_cost_like_records),
    Plant("units summed with more records than declared", "R2", units_hold_more_than_declared),
    Plant("units of several classes charged for one teacher", "R2", units_of_many_classes_count_once),
    Plant("plans forget the classes of a unit", "R2", plans_forget_the_classes_of_a_unit),
    Plant("plans forget the records of a unit", "R2", plans_forget_the_records_of_a_unit),
)
