"""The training loop of PATE-GAN: teachers score, the student learns the scores, the generator follows the student."""

from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.mechanisms import LabelScores
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.script import RunInputs
from datalens_service.methods.voting.training_run import VotedStudent
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.models.discriminator import Discriminator


@dataclass(frozen=True)
class StudentSchedule:
    """The training schedule of a student discriminator; the fields of `PateGan` of these names.

    Attributes:
        discriminator_steps: Steps per scored batch.
        generator_steps: Steps per scored batch.
        remembered_steps: Number of scored batches that it learns from.
    """

    discriminator: str
    discriminator_steps: int
    discriminator_learning_rate: float
    generator_steps: int
    remembered_steps: int


class _Scored(NamedTuple):
    """Released: generated images and their noisy scores."""

    images: Tensor
    labels: Tensor
    scores: Tensor


class ScoredStudent(VotedStudent):
    """A generator that follows a student discriminator, which learns noisy scores of teachers.

    Teachers are behind the wall. Released: noisy scores; student discriminator, remembered batches and generator are
    functions of them. It keeps no state: stored scores are replayed, and teachers trained again meanwhile.
    """

    def __init__(
        self,
        parameters: VotingMethod,
        schedule: StudentSchedule,
        votes: LabelScores,
        records: PrivateRecords,
        inputs: RunInputs,
    ) -> None:
        super().__init__(parameters, votes, records, inputs)
        self._schedule = schedule
        self._relative, self._hard = votes.scores == "relative", votes.scores == "bit"
        self._discriminator = Discriminator(
            {"architecture": schedule.discriminator},
            self._schema,
            self._device,
            inputs.randomness.seed("discriminator"),
            schedule.discriminator_learning_rate,
        )
        self._remembered: deque[_Scored] = deque(maxlen=schedule.remembered_steps)

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def follow(self, images: Tensor, labels: Tensor, released: NDArray[Any], step: int) -> None:
        self._remembered.append(_Scored(images, labels, torch.from_numpy(released).to(images).squeeze(1)))
        self._fit(step)
        for number in range(self._schedule.generator_steps):
            images, labels = self.propose("generator", step * self._schedule.generator_steps + number)
            direction = self._discriminator.directions(images, labels)
            self._student.update(direction, self.parameters.image_step_size)

    def _fit(self, step: int) -> None:
        """Learn from batches of the remembered images, drawn by a public seed."""
        images, labels, scores = (torch.cat(parts) for parts in zip(*self._remembered, strict=True))
        rng = np.random.default_rng(self._randomness.seed("student batches", step))
        for _ in range(self._schedule.discriminator_steps):
            rows = torch.from_numpy(rng.integers(len(images), size=self._votes.images)).to(images.device)
            self._discriminator.fit(
                images[rows], labels[rows], scores[rows], hard=self._hard, bounded=not self._relative
            )
