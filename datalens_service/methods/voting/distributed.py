"""Teachers of one job in several processes.

Rank 0 leads: it sends a command before each step of its own teachers. The others run `run_follower` and have no
account, no student and no source of noise.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from datalens_service.data.dataset import Dataset, Upload
from datalens_service.errors import InvalidInput
from datalens_service.mechanisms import DistributedGradients, VoteMechanism
from datalens_service.methods.base import ExecutionOptions
from datalens_service.methods.voting.teacher_pool import Proposal, TeacherPool
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.privacy.randomness import TrainingRandomness
from datalens_service.process_group import ProcessGroup

PRIVATE_READS = ("training",)


class _CreatePool(NamedTuple):
    """Command to create a pool in place of the one before."""

    parameters: VotingMethod
    votes: VoteMechanism
    randomness: TrainingRandomness
    device: str
    partition_key: bytes
    digest: bytes


class _Train(NamedTuple):
    """Command to train on a proposal."""

    images: np.ndarray
    labels: np.ndarray
    first: bool


class _Vote(NamedTuple):
    """Command to vote on the proposal trained on last."""

    step: int


class LeaderTeacherPool(TeacherPool):
    """The pool of rank 0, which sends its commands to all others."""

    def __init__(
        self,
        parameters: VotingMethod,
        votes: VoteMechanism,
        dataset: Dataset,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        if options.group.world_size > 1:
            digest = _digest(dataset)
            options.group.broadcast(
                _CreatePool(parameters, votes, randomness, options.device, dataset.partition_key, digest)
            )
        super().__init__(parameters, votes, dataset, randomness, options)

    def train(self, proposal: Proposal, *, first: bool) -> None:
        """As all ranks do."""
        if self._group.world_size > 1:
            self._group.broadcast(_Train(proposal.images.cpu().numpy(), proposal.labels.cpu().numpy(), first))
        super().train(proposal, first=first)

    def request_votes(self, step: int, proposal: Proposal) -> DistributedGradients:
        """`votes`, to be summed at once: all other ranks sum theirs."""
        self._group.broadcast(_Vote(step))
        return self.votes(proposal)


def run_follower(group: ProcessGroup, upload: Upload, folder: Path | None = None) -> None:
    """Obey the commands of rank 0 until it shuts the group down.

    Args:
        group: This rank's.
        upload: The same records as those of rank 0.
        folder: For teachers beyond the limit of memory.

    Raises:
        RankLost: Another rank ended or was silent for too long.
        InvalidInput: The records are not those of rank 0.
    """
    pool: TeacherPool | None = None
    proposal: Proposal | None = None
    while (command := group.receive()) is not None:
        if isinstance(command, _CreatePool):
            pool = _create_pool(command, upload, ExecutionOptions(command.device, folder, group))
        elif pool is not None and isinstance(command, _Train):
            proposal = Proposal(torch.from_numpy(command.images), torch.from_numpy(command.labels))
            pool.train(proposal, first=command.first)
        elif pool is not None and proposal is not None:
            # The sum belongs to rank 0.
            pool.mechanism(command.step).exact_sum(pool.votes(proposal))


def _create_pool(command: _CreatePool, upload: Upload, options: ExecutionOptions) -> TeacherPool:
    dataset = Dataset(*upload, partition_key=command.partition_key)
    if _digest(dataset) != command.digest:
        raise InvalidInput("This rank reads other records than rank 0: give all the same file.")
    return TeacherPool(command.parameters, command.votes, dataset, command.randomness, options)


def _digest(dataset: Dataset) -> bytes:
    """Of the records; private, it goes to other ranks only."""
    digest = hashlib.sha256(dataset.schema.model_dump_json().encode())
    for array in (dataset.train.images, dataset.train.labels, dataset.train.unit_ids):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
