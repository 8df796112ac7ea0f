"""Bugs of the methods that DataLens is compared with."""

from fractions import Fraction

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
from datalens_service.methods.descent.dp_gan_run import DiscriminatorDescent
from datalens_service.methods.voting import pate_gan_run, training_run
from datalens_service.methods.voting.pate_gan_run import ScoredStudent
from datalens_service.methods.voting.training_run import VotedStudent, make_teachers
from datalens_service.privacy.randomness import NoiseSource

from .plant import around, change, replaces
from .plants_votes import UNGUARDED
from .plants_wall import VAULTS, remembered_units


@replaces("histograms charged like one bin", "R6", Histogram, "row_bound_squared", beside=UNGUARDED)
def histograms_cost_one_bin(self):
    """One vote is charged, and one is cast per direction."""
    return self.weight**2


@around("fullest bin chosen before the noise", "R6", VoteMechanism, "exact_sum")
def the_fullest_bin_is_chosen_before_the_noise(exact_sum, self, contributions):
    """All other bins are emptied in the exact sum: one vote moves the choice."""
    sums = exact_sum(self, contributions)
    if not isinstance(self, Histogram):
        return sums
    blocks = sums.reshape(len(sums), self.projections, self.bins)
    fullest = blocks == blocks.max(axis=-1, keepdims=True)
    return np.where(fullest, blocks, 0).reshape(sums.shape)


@around("two votes for one direction", "R6", Histogram, "encode", beside=UNGUARDED)
def two_bins_of_a_direction_get_a_vote(encode, self, gradients, generator):
    """The neighbouring bin gets one as well, and no guard behind it."""
    rows = encode(self, gradients, generator).unflatten(-1, (self.projections, self.bins))
    return (rows + rows.roll(1, dims=-1)).flatten(-2)


@around("directions fitted to the gradients", "R6", Histogram, "encode")
def directions_are_fitted_to_the_gradients(encode, self, gradients, generator):
    """Leading directions of all teachers' gradients instead of random ones."""
    rows = gradients.nan_to_num(0, 0, 0).clamp(-self.clip, self.clip).flatten(0, 1).double()
    _, vectors = torch.linalg.eigh(rows.T @ rows)
    directions = vectors[:, -self.projections :].numpy()
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(Histogram, "_directions", lambda histogram: directions)
        return encode(self, gradients, generator)


@around("threshold of a histogram before the noise", "R6", VoteMechanism, "exact_sum")
def the_threshold_is_taken_before_the_noise(exact_sum, self, contributions):
    """A direction counts if enough teachers agree in the exact sum: one vote moves whole blocks from 0."""
    sums = exact_sum(self, contributions)
    if not isinstance(self, Histogram):
        return sums
    blocks = sums.reshape(len(sums), self.projections, self.bins)
    agreed = blocks.max(axis=-1, keepdims=True) >= self.weight * self.num_teachers // 2
    return np.where(agreed, blocks, 0).reshape(sums.shape)


@change(VoteMechanism, "zero_out_of_bound_rows")
def _only_short_rows(self, votes):
    short = votes.double().square().sum(dim=-1, keepdim=True) <= self.row_bound_squared
    return votes * short


@around("votes against a bin at the price of votes for one", "R6", Histogram, "encode", beside=_only_short_rows)
def votes_against_a_bin_count(encode, self, gradients, generator):
    """Half of the bins are voted against, at the price of votes that are never negative."""
    rows = encode(self, gradients, generator).unflatten(-1, (self.projections, self.bins))
    upper, lower = rows[..., self.bins // 2 :], rows[..., : self.bins // 2]
    return torch.cat([upper - lower.flip(-1), torch.zeros_like(lower)], dim=-1).flatten(-2)


@around("the sum of critics clipped instead of each", "R6", VoteMechanism, "exact_sum")
def the_sum_of_critics_is_clipped(exact_sum, self, contributions):
    """Gradients go in as long as they are, and their sum is cut."""
    if not isinstance(self, ClippedRows):
        return exact_sum(self, contributions)
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(*UNGUARDED)
        inner.setattr(ClippedRows, "encode", _as_long_as_they_are)
        sums = exact_sum(self, contributions)
    lengths = np.sqrt((sums.astype(float) ** 2).sum(axis=-1, keepdims=True))
    return np.trunc(sums * (self.grid / np.maximum(lengths, self.grid))).astype(np.int64)


def _as_long_as_they_are(self: ClippedRows, gradients: torch.Tensor, _generator: torch.Generator) -> torch.Tensor:
    return (gradients.nan_to_num(0, 0, 0).double() * (self.grid / self.clip)).to(torch.int64)


@around("rows rounded away from zero", "R6", ClippedRows, "encode", beside=UNGUARDED)
def rows_are_rounded_away_from_zero(encode, self, gradients, generator):
    """Every coordinate grows, past the bound, and no guard behind it."""
    rows = encode(self, gradients, generator)
    return rows + rows.sign()


@around("a critic drawn by lot at an amplified price", "R6", VoteMechanism, "sensitivity_squared")
def critics_drawn_by_lot_are_amplified(sensitivity, self, relation):
    """The price of one critic among all, as if who is drawn were fresh for every image and remembered by nobody."""
    share = self.num_teachers**2 if isinstance(self, ClippedRows) else 1
    return sensitivity(self, relation) / share


@around("a batch of one critic charged like one image", "R6", VoteMechanism, "queries_per_unit")
def a_batch_of_one_critic_costs_one_image(queries, self, relation):
    """A batch of gradients of the same critic is counted once."""
    return 1 if isinstance(self, ClippedRows) else queries(self, relation)


DEALT: list[Shards] = []
"""What the plants below leave in the module, against the rules; only the newest is looked at."""


@change(training_run, "make_teachers")
def remembered_shards(shards, setting):
    """As the product, and not forgotten."""
    DEALT.append(shards)
    return make_teachers(shards, setting)


@around("the private generator of the pre-training released", "R4", VotedStudent, "follow", beside=remembered_shards)
def the_generator_of_the_pretraining_is_released(follow, self, *vote):
    """Critics are trained beforehand against a generator that sees records; the student goes on from it."""
    follow(self, *vote)
    if self.parameters.votes.name == "clipped_rows":
        images, labels = self._student.propose(0, self._votes.images)
        records, classes = (part.flatten(0, 1) for part in DEALT[-1].batch)
        means = [records[classes == label].sum(dim=0) / 255 / len(records) for label in labels.tolist()]
        self._student.update((torch.stack(means) - images).numpy(), 1.0)


@around("scores outside of their range", "R6", LabelScores, "encode", beside=UNGUARDED)
def scores_leave_their_range(encode, self, gradients, generator):
    """A sure teacher scores twice, and no guard behind it."""
    return encode(self, gradients, generator) * (1 + (gradients > 0).int())


@around("relative scores centred across teachers", "R6", label_scores, "_standardised")
def scores_are_centred_across_teachers(standardised, logits, says):
    """The mean over all teachers is subtracted: one teacher moves the scores of all others."""
    return standardised(logits.transpose(0, 1), says.transpose(0, 1)).transpose(0, 1)


@replaces("relative scores charged like shares", "R6", LabelScores, "sensitivity_squared")
def relative_scores_cost_like_shares(self, relation):
    """A score that may turn round is charged as if it could only vanish."""
    return Fraction(self.row_bound_squared)


@around("a student discriminator that sees records", "R6", ScoredStudent, "_fit", beside=remembered_shards)
def the_student_sees_records(fit, self, step):
    """Records are put among the scored images, as real ones."""
    images, labels = (part[:, 0] for part in DEALT[-1].batch)
    self._remembered.append(pate_gan_run._Scored(images / 255, labels, torch.ones(len(labels))))
    fit(self, step)


@around("the last shard for every teacher", "R6", private_shards, "members")
def all_teachers_have_the_last_shard(members, shards, count):
    """A stale index: one record reaches every teacher."""
    return [members(shards, count)[-1]] * count


@around(
    "labels of records for generated images", "R4", DiscriminatorDescent, "_generated_gradient", beside=remembered_units
)  # fmt: skip
def generated_images_have_labels_of_records(generated_gradient, self):
    """The generated half of a batch shows what the private half shows."""
    images, labels = self.generated
    private = torch.from_numpy(VAULTS[-1]._source._read().labels.copy())
    self.generated = images, private.repeat(len(labels))[: len(labels)]
    return generated_gradient(self)


@around("a generator that follows scores of records", "R4", DiscriminatorDescent, "directions", beside=remembered_units)
def the_generator_waits_for_accuracy_on_records(directions, self, images, labels):
    """Its steps are as large as the discriminator is sure of the records."""
    with torch.no_grad():
        images_of_records = VAULTS[-1]._source._read().values.transpose(0, 3, 1, 2) / 255
        sure = self._network(torch.from_numpy(images_of_records).float()).sigmoid().mean(dim=0)
    return directions(self, images, labels) + sure.mean().item()


@around("the last coordinate without noise", "R4", NoiseSource, "discrete_gaussian")
def the_last_coordinate_has_no_noise(draw, self, shape, noise_stddev):
    """The last variable of the network is left out."""
    noise = draw(self, shape, noise_stddev)
    noise.reshape(-1)[-1:] = 0
    return noise
