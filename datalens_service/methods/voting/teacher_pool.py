"""The teachers of one process: they train on their shards and on proposed images, and vote.

Everything here is private, but for the settings.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from datalens_service.data.dataset import Dataset, Labels, Schema
from datalens_service.data.partition import assign_shards, members
from datalens_service.mechanisms import DistributedGradients, PartialGradients, VoteMechanism
from datalens_service.methods.base import ExecutionOptions
from datalens_service.methods.voting.teachers import TeacherRequest
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.teachers.base import TeacherBackend
from datalens_service.models.teachers.batches import ShardSampler
from datalens_service.models.teachers.partitions import TeacherPartition, partition_teachers, partitions_for_rank
from datalens_service.privacy.randomness import TrainingRandomness

PRIVATE_READS = ("training",)

State = dict[str, np.ndarray]


class Proposal(NamedTuple):
    """Synthetic images, all of them released."""

    images: torch.Tensor
    """float32 (images, d)."""
    labels: torch.Tensor
    """int64 (images,)."""


class TeacherPool:
    """Teachers with their shards.

    Args:
        dataset: Of which records are kept that are dealt to them.
        randomness: Seeds.
    """

    def __init__(
        self,
        parameters: VotingMethod,
        votes: VoteMechanism,
        dataset: Dataset,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters, self._votes, self._randomness = parameters, votes, randomness
        self._group, self._class_groups = options.group, votes.classes_voted_apart
        device = options.group.local_device(options.device)
        partitions = partitions_for_rank(
            options.group.rank,
            options.group.world_size,
            partition_teachers(parameters.num_teachers, self._class_groups),
        )
        self._sampler = self._shards(dataset, device, range(partitions[0].start, partitions[-1].stop))
        self._basis = dct_basis(dataset.schema, votes.dimensions) if parameters.vote_basis == "dct" else None
        self._teachers = self._ensemble(dataset.schema, device, partitions, options)
        self._steps = 0

    def train(self, proposal: Proposal, *, first: bool) -> None:
        """The optimiser steps before a vote.

        Args:
            proposal: With class-pure shards, as many images of each class, in class order.
            first: Whether it is the first vote.
        """
        if not self._teachers.trained:
            return
        images, labels = proposal
        if self._class_groups > 1:
            images = images.reshape(self._class_groups, -1, images.shape[-1])
            labels = labels.reshape(self._class_groups, -1)
        for _ in range(self._parameters.teacher.steps_before_vote(first=first)):
            batch = self._sampler.batch(self._steps)
            self._teachers.train_step(batch.images, batch.labels, images, labels)
            self._steps += 1

    def mechanism(self, step: int) -> VoteMechanism:
        """The vote with the coins of a step."""
        return self._votes.model_copy(update={"seed": self._randomness.seed("signs", step)})

    def votes(self, proposal: Proposal) -> DistributedGradients:
        """What the mechanism sums, here and on all other ranks."""
        return DistributedGradients(self.gradients(proposal), self._teachers.local.start, self._group.all_reduce)

    def gradients(self, proposal: Proposal) -> Iterator[torch.Tensor | PartialGradients]:
        """Blocks of gradients (teachers, images, coordinates); with class-pure shards on the images of one class.

        Scores instead, (teachers, images, 1), where the mechanism reads scores.
        """
        images, labels = proposal
        answers = self._teachers.scores if self._votes.reads_scores else self._teachers.image_gradients
        group_images = len(images) // self._class_groups
        group_teachers = self._parameters.num_teachers // self._class_groups
        for group in range(self._class_groups):
            rows = slice(group * group_images, (group + 1) * group_images)
            teachers = slice(group * group_teachers, (group + 1) * group_teachers)
            for block in answers(images[rows], labels[rows], teachers):
                votes = self._in_basis(block)
                yield votes if self._class_groups == 1 else PartialGradients(votes, rows)

    def state(self) -> State:
        """Teachers and their steps; empty if that is too large to be kept, or not all of them.

        A job is resumed without it: teachers are trained again while the stored sums are replayed.
        """
        if not self._steps or self._teachers.large or self._group.world_size > 1:
            return {}
        return self._teachers.state() | {"teacher_steps": np.array(self._steps)}

    def restore(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            CheckpointMismatch: It belongs to other teachers.
        """
        self._teachers.restore({name: value for name, value in state.items() if name != "teacher_steps"})
        self._steps = int(state["teacher_steps"])

    def _in_basis(self, gradients: torch.Tensor) -> torch.Tensor:
        """Coordinates of a block."""
        if self._basis is None or self._teachers.in_basis:
            return gradients
        return gradients @ torch.from_numpy(self._basis).to(gradients.device)

    def _ensemble(
        self, schema: Schema, device: str, partitions: list[TeacherPartition], options: ExecutionOptions
    ) -> TeacherBackend:
        request = TeacherRequest(
            num_teachers=self._parameters.num_teachers,
            schema=schema,
            device=device,
            seed=self._randomness.seed("teachers"),
            active=self._sampler.active,
            partitions=partitions,
            folder=options.folder,
            basis=None if self._basis is None else torch.from_numpy(self._basis),
            records=lambda: self._sampler.batch(0),
        )
        return self._parameters.teacher.build(request)

    def _shards(self, dataset: Dataset, device: str, local: range) -> ShardSampler:
        apart: Labels | None = dataset.train.labels if self._class_groups > 1 else None
        count = self._parameters.num_teachers
        shards = assign_shards(dataset.partition_key, dataset.train.unit_ids, count, apart, self._class_groups)
        return ShardSampler(
            dataset.train.images,
            dataset.train.labels,
            members(shards, count),
            self._parameters.teacher.batch,
            self._randomness.seed("batches"),
            device,
            local,
        )
