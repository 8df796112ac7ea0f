"""Batches for teachers, each from its own shard only."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.data.dataset import Images, Labels


class ShardBatch(NamedTuple):
    """Private records, one batch per teacher; the rows of a teacher without records are all 0."""

    images: Tensor
    """uint8 (N, B, d) in channel, height, width order."""
    labels: Tensor
    """int64 (N, B), the classes of the images."""


class ShardSampler:
    """Draws B consecutive records of every shard, from a random start and around its end.

    A batch as long as the shard is the whole shard. The rows that teacher i gets are a function of its own rows
    and of random numbers that depend on (seed, step) alone.

    Args:
        shards: Row numbers of each teacher's shard; may be empty.
        seed: Public.
        local: Shards of this rank's teachers, without gaps; None for all. Records of others are not kept.

    Attributes:
        active: bool (local,), False where a shard is empty. Private.
    """

    def __init__(
        self,
        images: Images,
        labels: Labels,
        shards: Sequence[NDArray[np.int64]],
        batch_size: int,
        seed: int,
        device: str = "cpu",
        local: range | None = None,
    ) -> None:
        self._local = range(len(shards)) if local is None else local
        self._shards = len(shards)
        rows = _shuffled(shards, self._local, seed)
        # A copy, shard by shard: a batch then lies close together.
        pixels = np.ascontiguousarray(images[rows].transpose(0, 3, 1, 2)).reshape(len(rows), -1)
        self._images = torch.from_numpy(pixels).to(device)
        self._labels = torch.from_numpy(np.array(labels[rows])).to(device)
        sizes = np.array([len(shards[number]) for number in self._local], dtype=np.int64)
        self._sizes = torch.from_numpy(sizes).to(device)
        self._starts = torch.from_numpy(np.cumsum(sizes) - sizes).to(device)
        self._batch_size = batch_size
        self._seed = seed
        self.active = self._sizes > 0

    def batch(self, step: int) -> ShardBatch:
        """Return the batches of optimiser step `step`; the same step gives the same batches."""
        rows = self._draw(step)
        idle = torch.nonzero(~self.active)[:, 0]
        images, labels = self._images[rows], self._labels[rows]
        return ShardBatch(images.index_fill_(0, idle, 0), labels.index_fill_(0, idle, 0))

    def _draw(self, step: int) -> Tensor:
        """Draw rows of records (local, B); those of an empty shard are any record's and must not be used."""
        numbers = np.random.default_rng([self._seed, step]).random(self._shards)[self._local.start : self._local.stop]
        uniform = torch.from_numpy(numbers).to(self._sizes.device)
        sizes = self._sizes.clamp_min(1)
        first = (uniform * sizes).to(torch.int64)
        turns = torch.arange(self._batch_size, device=sizes.device)
        rows = self._starts[:, None] + (first[:, None] + turns) % sizes[:, None]
        return rows.clamp_max(len(self._images) - 1)


def _shuffled(shards: Sequence[NDArray[np.int64]], local: range, seed: int) -> NDArray[np.int64]:
    """List the rows of the local shards, each shard in a random order of its own, then one row more.

    An upload sorted by class would otherwise give batches of one class. Every shard has its own stream and
    permutes positions, not row numbers: a record more or less elsewhere shifts row numbers, and changes nothing here.
    """
    ordered = [
        shards[shard][np.random.default_rng([seed, 1, shard]).permutation(len(shards[shard]))] for shard in local
    ]
    return np.concatenate([*ordered, np.zeros(1, dtype=np.int64)])
