"""Teachers in closed form: discriminators that are not trained, because the best one is known.

Teacher i measures how far its shard and the proposed images of the same class are apart by the energy distance
(Székely and Rizzo 2013; a maximum mean discrepancy with the kernel −|x − y|). The discriminator that tells them apart
best is the witness function of that distance (Gretton et al. 2012), and its gradient at image x is

    mean over the shard's records y of (y − x)/|y − x|   −   mean over the other images x' of (x' − x)/|x' − x|

towards the records, and away from the other images, so that they do not become one. Everything here is private
until a mechanism has released a noisy sum of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.data.dataset import Schema
from datalens_service.models.acceleration import block_bytes as usual_block_bytes
from datalens_service.models.acceleration import coarse_products
from datalens_service.models.runs import blocks_of, runs_of

_NEAREST: Final = 1e-2
"""Distance below which two images count as this far apart: the gradient of a distance has no value at 0."""


class KernelTeachers:
    """N witness functions; what `TeacherEnsemble` is for networks.

    Formal guarantee: gradients of teacher i are a function of its own batch, of the proposed images and of public
    numbers. No operation mixes entries of the first axis.

    Args:
        num_teachers: N, of all ranks together.
        schema: Of the images.
        device: "cpu" or "cuda".
        basis: (d, K) whose columns gradients are expressed in, independent of records; None for pixels.
        active: (held,) False for a teacher whose shard is empty: its gradients are 0.
        runs: Of the teachers that are held here, one after another; None holds all.
        block_bytes: Memory for the teachers handled at once; None chooses by device. It changes speed, and results
            by rounding only.

    Attributes:
        held: Numbers of the teachers that are here.
        large: False: nothing is kept but one batch.
        on_disk: False.
    """

    large: Final = False
    on_disk: Final = False

    def __init__(
        self,
        num_teachers: int,
        schema: Schema,
        device: str,
        *,
        basis: Tensor | None = None,
        active: Tensor | None = None,
        runs: Sequence[range] | None = None,
        block_bytes: int | None = None,
    ) -> None:
        self.num_teachers = num_teachers
        self._runs = runs_of(num_teachers) if runs is None else runs
        self.held = range(self._runs[0].start, self._runs[-1].stop)
        self.device = torch.device(device)
        self._dimensions = schema.dimensions
        self._basis = basis if basis is None else basis.to(self.device)
        self._active = torch.ones(len(self.held)) if active is None else active
        self._block_bytes = block_bytes or usual_block_bytes(self.device)
        self._records = torch.zeros(len(self.held), 1, schema.dimensions)
        self._labels = torch.zeros(len(self.held), 1, dtype=torch.int64)

    def train_step(
        self, real_images: Tensor, real_labels: Tensor, synthetic_images: Tensor, synthetic_labels: Tensor
    ) -> None:
        """Take the batch that the next votes are about; there is nothing to learn.

        Args:
            real_images: (held, B, d), uint8 in 0..255 or float32 in [0, 1].
            real_labels: int64 (held, B).
            synthetic_images: Not looked at: a vote gets the images it is about.
            synthetic_labels: Not looked at.
        """
        self._records, self._labels = real_images, real_labels

    def image_gradients(
        self, synthetic_images: Tensor, synthetic_labels: Tensor, teachers: slice = slice(None)
    ) -> Iterator[Tensor]:
        """Every teacher's own direction for every image: the gradient of its witness function.

        Args:
            synthetic_images: float32 (images, d).
            synthetic_labels: int64 (images,); a teacher compares images and records of one class.
            teachers: Which ones of all N, without gaps; those held elsewhere are left out.

        Yields:
            (teachers of a block, images, d or K) in the order of the teachers. Rows are 0 where a teacher has no
            record of the image's class.
        """
        images, labels = synthetic_images.to(self.device), synthetic_labels.to(self.device)
        others, places = self._expressed(_away_from_others(images, labels)), self._expressed(images)
        wanted = range(*teachers.indices(self.num_teachers))
        for block in blocks_of(self._runs, self.held, wanted, self.teachers_per_block(len(images))):
            with coarse_products(self.device):
                records, weights, known = self._weighed(block, images, labels)
                towards = self._expressed(torch.bmm(weights, records))
            pushed = places * weights.sum(dim=-1, keepdim=True) + others * known
            yield towards.sub_(pushed)

    def teachers_per_block(self, images: int) -> int:
        """How many teachers are handled at once when each sees `images` images."""
        return max(1, self._block_bytes // (4 * self._dimensions * (self._records.shape[1] + 2 * images)))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Empty: a teacher is its records."""
        return {}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Nothing to restore."""

    def _weighed(self, block: slice, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Records (n, B, d), their weights (n, images, B), and 1 where a teacher knows the class, (n, images, 1)."""
        records = self._records[block].to(self.device)
        records = records.float().div_(255) if records.dtype == torch.uint8 else records
        active = self._active[block].to(self.device)
        same = (self._labels[block].to(self.device)[:, None, :] == labels[:, None]) & active.bool()[:, None, None]
        counts = same.sum(dim=-1, keepdim=True)
        weights = same / (_distances(records, images).mT * counts.clamp_min(1))
        return records, weights, (counts > 0).float()

    def _expressed(self, vectors: Tensor) -> Tensor:
        return vectors if self._basis is None else vectors @ self._basis


def _distances(records: Tensor, images: Tensor) -> Tensor:
    """(n, B, images)."""
    squares = torch.linalg.vector_norm(records, dim=-1).square_()[..., None] + torch.linalg.vecdot(images, images)
    products = (records.flatten(0, 1) @ images.T).view_as(squares)
    squared: Tensor = squares - 2 * products
    return squared.clamp_min_(_NEAREST**2).sqrt_()


def _away_from_others(images: Tensor, labels: Tensor) -> Tensor:
    """(images, d): mean unit vector towards the other images of the same class; released images alone."""
    same = (labels[:, None] == labels).fill_diagonal_(False)
    weights = same / (_distances(images[None], images)[0] * same.sum(dim=1, keepdim=True).clamp_min(1))
    return weights @ images - images * weights.sum(dim=1, keepdim=True)
