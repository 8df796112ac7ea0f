"""Bugs of the methods that DataLens is compared with."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from datalens_service.mechanisms import (
    ClippedRows,
    Histogram,
    LabelScores,
    VoteMechanism,
    label_scores,
    private_shards,
)
from datalens_service.mechanisms.private_shards import Shards
from datalens_service.methods.descent.dp_gan_run import DiscriminatorRun, DpGanRun
from datalens_service.methods.voting import pate_gan_run, training_run
from datalens_service.methods.voting.pate_gan_run import PateGanRun
from datalens_service.methods.voting.shard_teachers import Setting, make_teachers
from datalens_service.methods.voting.training_run import DataLensRun
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import Integers, NoiseSource

from .plant import Plant
from .plants_votes import guard_lets_all_through


def histograms_cost_one_bin(patch: pytest.MonkeyPatch) -> None:
    """One vote is charged, and one is cast per direction."""
    guard_lets_all_through(patch)
    patch.setattr(Histogram, "row_bound_squared", property(lambda self: self.weight**2))


def the_fullest_bin_is_chosen_before_the_noise(patch: pytest.MonkeyPatch) -> None:
    """All other bins are emptied in the exact sum: one vote moves the choice."""
    exact_sum = VoteMechanism.exact_sum

    def chosen(self: VoteMechanism, contributions: Any) -> Integers:
        sums = exact_sum(self, contributions)
        if not isinstance(self, Histogram):
            return sums
        blocks = sums.reshape(len(sums), self.projections, self.bins)
        fullest = blocks == blocks.max(axis=-1, keepdims=True)
        return np.where(fullest, blocks, 0).reshape(sums.shape)

    patch.setattr(VoteMechanism, "exact_sum", chosen)


def two_bins_of_a_direction_get_a_vote(patch: pytest.MonkeyPatch) -> None:
    """The neighbouring bin gets one as well, and no guard behind it."""
    guard_lets_all_through(patch)
    encode = Histogram.encode

    def doubled(self: Histogram, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        rows = encode(self, gradients, generator).unflatten(-1, (self.projections, self.bins))
        return (rows + rows.roll(1, dims=-1)).flatten(-2)

    patch.setattr(Histogram, "encode", doubled)


def directions_are_fitted_to_the_gradients(patch: pytest.MonkeyPatch) -> None:
    """Leading directions of all teachers' gradients instead of random ones."""
    encode = Histogram.encode

    def fitted(self: Histogram, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        rows = gradients.nan_to_num(0, 0, 0).clamp(-self.clip, self.clip).flatten(0, 1).double()
        _, vectors = torch.linalg.eigh(rows.T @ rows)
        directions = vectors[:, -self.projections :].numpy()
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Histogram, "_directions", lambda histogram: directions)
            return encode(self, gradients, generator)

    patch.setattr(Histogram, "encode", fitted)


def the_threshold_is_taken_before_the_noise(patch: pytest.MonkeyPatch) -> None:
    """A direction counts if enough teachers agree in the exact sum: one vote moves whole blocks from 0."""
    exact_sum = VoteMechanism.exact_sum

    def decided(self: VoteMechanism, contributions: Any) -> Integers:
        sums = exact_sum(self, contributions)
        if not isinstance(self, Histogram):
            return sums
        blocks = sums.reshape(len(sums), self.projections, self.bins)
        agreed = blocks.max(axis=-1, keepdims=True) >= self.weight * self.num_teachers // 2
        return np.where(agreed, blocks, 0).reshape(sums.shape)

    patch.setattr(VoteMechanism, "exact_sum", decided)


def votes_against_a_bin_count(patch: pytest.MonkeyPatch) -> None:
    """Half of the bins are voted against, at the price of votes that are never negative."""
    encode = Histogram.encode
    patch.setattr(VoteMechanism, "zero_out_of_bound_rows", _only_short_rows)

    def signed(self: Histogram, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        rows = encode(self, gradients, generator).unflatten(-1, (self.projections, self.bins))
        upper, lower = rows[..., self.bins // 2 :], rows[..., : self.bins // 2]
        return torch.cat([upper - lower.flip(-1), torch.zeros_like(lower)], dim=-1).flatten(-2)

    patch.setattr(Histogram, "encode", signed)


def _only_short_rows(self: VoteMechanism, votes: torch.Tensor) -> torch.Tensor:
    short = votes.double().square().sum(dim=-1, keepdim=True) <= self.row_bound_squared
    return votes * short


def the_sum_of_critics_is_clipped(patch: pytest.MonkeyPatch) -> None:
    """Gradients go in as long as they are, and their sum is cut."""
    exact_sum = VoteMechanism.exact_sum

    def cut(self: VoteMechanism, contributions: Any) -> Integers:
        if not isinstance(self, ClippedRows):
            return exact_sum(self, contributions)
        with pytest.MonkeyPatch.context() as inner:
            guard_lets_all_through(inner)
            inner.setattr(ClippedRows, "encode", _as_long_as_they_are)
            sums = exact_sum(self, contributions)
        lengths = np.sqrt((sums.astype(float) ** 2).sum(axis=-1, keepdims=True))
        return np.trunc(sums * (self.grid / np.maximum(lengths, self.grid))).astype(np.int64)

    patch.setattr(VoteMechanism, "exact_sum", cut)


def _as_long_as_they_are(self: ClippedRows, gradients: torch.Tensor, _generator: torch.Generator) -> torch.Tensor:
    return (gradients.nan_to_num(0, 0, 0).double() * (self.grid / self.clip)).to(torch.int64)


def rows_are_rounded_away_from_zero(patch: pytest.MonkeyPatch) -> None:
    """Every coordinate grows, past the bound, and no guard behind it."""
    guard_lets_all_through(patch)
    encode = ClippedRows.encode

    def longer(self: ClippedRows, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        rows = encode(self, gradients, generator)
        return rows + rows.sign()

    patch.setattr(ClippedRows, "encode", longer)


def critics_drawn_by_lot_are_amplified(patch: pytest.MonkeyPatch) -> None:
    """The price of one critic among all, as if who is drawn were fresh for every image and remembered by nobody."""
    sensitivity = VoteMechanism.sensitivity_squared

    def amplified(self: VoteMechanism, relation: NeighboringRelation) -> Fraction:
        share = self.num_teachers**2 if isinstance(self, ClippedRows) else 1
        return sensitivity(self, relation) / share

    patch.setattr(VoteMechanism, "sensitivity_squared", amplified)


def a_batch_of_one_critic_costs_one_image(patch: pytest.MonkeyPatch) -> None:
    """A batch of gradients of the same critic is counted once."""
    queries = VoteMechanism.queries_per_unit
    patch.setattr(
        VoteMechanism,
        "queries_per_unit",
        lambda self, relation: 1 if isinstance(self, ClippedRows) else queries(self, relation),
    )


DEALT: list[Shards] = []
"""What the plants below leave in the module, against the rules; only the newest is looked at."""


def remembered_shards(shards: Shards, setting: Setting) -> Any:
    """As the product, and not forgotten."""
    DEALT.append(shards)
    return make_teachers(shards, setting)


def the_generator_of_the_pretraining_is_released(patch: pytest.MonkeyPatch) -> None:
    """Critics are trained beforehand against a generator that sees records; the student goes on from it."""
    init = DataLensRun.__init__

    def pretrained(self: DataLensRun, parameters: Any, *others: Any) -> None:
        init(self, parameters, *others)
        if parameters.votes.name == "clipped_rows":
            images, labels = self._student.propose(0, self._votes.images)
            records, classes = (part.flatten(0, 1) for part in DEALT[-1].batch)
            means = [records[classes == label].sum(dim=0) / 255 / len(records) for label in labels.tolist()]
            self._student.update((torch.stack(means) - images).numpy(), 1.0)

    patch.setattr(training_run, "make_teachers", remembered_shards)
    patch.setattr(DataLensRun, "__init__", pretrained)


def scores_leave_their_range(patch: pytest.MonkeyPatch) -> None:
    """A sure teacher scores twice, and no guard behind it."""
    guard_lets_all_through(patch)
    encode = LabelScores.encode

    def doubled(self: LabelScores, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return encode(self, gradients, generator) * (1 + (gradients > 0).int())

    patch.setattr(LabelScores, "encode", doubled)


def scores_are_centred_across_teachers(patch: pytest.MonkeyPatch) -> None:
    """The mean over all teachers is subtracted: one teacher moves the scores of all others."""
    standardised = label_scores._standardised

    def across(logits: torch.Tensor, says: torch.Tensor) -> torch.Tensor:
        return standardised(logits.transpose(0, 1), says.transpose(0, 1)).transpose(0, 1)

    patch.setattr(label_scores, "_standardised", across)


def relative_scores_cost_like_shares(patch: pytest.MonkeyPatch) -> None:
    """A score that may turn round is charged as if it could only vanish."""
    patch.setattr(LabelScores, "sensitivity_squared", lambda self, relation: Fraction(self.row_bound_squared))


def the_student_sees_records(patch: pytest.MonkeyPatch) -> None:
    """Records are put among the scored images, as real ones."""
    fit = PateGanRun._fit

    def fitted(self: PateGanRun, step: int) -> None:
        images, labels = (part[:, 0] for part in DEALT[-1].batch)
        self._remembered.append(pate_gan_run._Scored(images / 255, labels, torch.ones(len(labels))))
        fit(self, step)

    patch.setattr(training_run, "make_teachers", remembered_shards)
    patch.setattr(PateGanRun, "_fit", fitted)


def all_teachers_have_the_last_shard(patch: pytest.MonkeyPatch) -> None:
    """A stale index: one record reaches every teacher."""
    members = private_shards.members
    patch.setattr(private_shards, "members", lambda shards, count: [members(shards, count)[-1]] * count)


def generated_images_have_labels_of_records(patch: pytest.MonkeyPatch) -> None:
    """The generated half of a batch shows what the private half shows."""
    propose = DpGanRun._propose

    def proposed(self: DpGanRun, purpose: str, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = propose(self, purpose, step)
        private = torch.from_numpy(self._discriminator._records._vault._source._read().labels.copy())
        return images, private.repeat(len(labels))[: len(labels)]

    patch.setattr(DpGanRun, "_propose", proposed)


def the_generator_waits_for_accuracy_on_records(patch: pytest.MonkeyPatch) -> None:
    """Its steps are as large as the discriminator is sure of the records."""
    directions = DiscriminatorRun.directions

    def adapted(self: DiscriminatorRun, images: torch.Tensor, labels: torch.Tensor) -> Any:
        with torch.no_grad():
            images_of_records = self._records._vault._source._read().values.transpose(0, 3, 1, 2) / 255
            sure = self._network(torch.from_numpy(images_of_records).float()).sigmoid().mean(dim=0)
        return directions(self, images, labels) + sure.mean().item()

    patch.setattr(DiscriminatorRun, "directions", adapted)


def the_last_coordinate_has_no_noise(patch: pytest.MonkeyPatch) -> None:
    """The last variable of the network is left out."""
    draw = NoiseSource.discrete_gaussian

    def all_but_one(self: NoiseSource, shape: tuple[int, ...], noise_stddev: int) -> Integers:
        noise = draw(self, shape, noise_stddev)
        noise.reshape(-1)[-1:] = 0
        return noise

    patch.setattr(NoiseSource, "discrete_gaussian", all_but_one)


PLANTS = (
    Plant("histograms charged like one bin", "R6", histograms_cost_one_bin),
    Plant("fullest bin chosen before the noise", "R6", the_fullest_bin_is_chosen_before_the_noise),
    Plant("threshold of a histogram before the noise", "R6", the_threshold_is_taken_before_the_noise),
    Plant("two votes for one direction", "R6", two_bins_of_a_direction_get_a_vote),
    Plant("directions fitted to the gradients", "R6", directions_are_fitted_to_the_gradients),
    Plant("votes against a bin at the price of votes for one", "R6", votes_against_a_bin_count),
    Plant("the sum of critics clipped instead of each", "R6", the_sum_of_critics_is_clipped),
    Plant("rows rounded away from zero", "R6", rows_are_rounded_away_from_zero),
    Plant("a critic drawn by lot at an amplified price", "R6", critics_drawn_by_lot_are_amplified),
    Plant("the private generator of the pre-training released", "R4", the_generator_of_the_pretraining_is_released),
    Plant("labels of records for generated images", "R4", generated_images_have_labels_of_records),
    Plant("a generator that follows scores of records", "R4", the_generator_waits_for_accuracy_on_records),
    Plant("the last coordinate without noise", "R4", the_last_coordinate_has_no_noise),
    Plant("scores outside of their range", "R6", scores_leave_their_range),
    Plant("relative scores centred across teachers", "R6", scores_are_centred_across_teachers),
    Plant("relative scores charged like shares", "R6", relative_scores_cost_like_shares),
    Plant("a student discriminator that sees records", "R6", the_student_sees_records),
    Plant("the last shard for every teacher", "R6", all_teachers_have_the_last_shard),
    Plant("a batch of one critic charged like one image", "R6", a_batch_of_one_critic_costs_one_image),
)
