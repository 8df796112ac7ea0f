"""Teachers in closed form: discriminators that are not trained, because the best one is known.

Teacher i measures how far its shard and the proposed images of the same class are apart by the energy distance
(Székely and Rizzo 2013; a maximum mean discrepancy with the kernel −|x − y|). The discriminator that tells them apart
best is the witness function of that distance (Gretton et al. 2012), and its gradient at image x is

    mean over the shard's records y of (y − x)/|y − x|   −   mean over the other images x' of (x' − x)/|x' − x|

towards the records, and away from the other images, so that they do not become one. Everything here is private
until a mechanism has released a noisy sum of it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.base.errors import CheckpointMismatch
from datalens_service.data.shard_batches import ShardBatch
from datalens_service.models.teachers.base import TeacherBackend, reduced_precision_products
from datalens_service.models.teachers.base import block_bytes as usual_block_bytes
from datalens_service.models.teachers.partitions import TeacherPartition, local_blocks, partition_teachers

_NEAREST: Final = 1e-2
"""Distance below which two images count as this far apart: the gradient of a distance has no value at 0."""


class KernelTeachers(TeacherBackend):
    """N witness functions, the closed-form counterpart of `TeacherEnsemble`.

    Formal guarantee: gradients of teacher i are a function of its own records, of the proposed images and of public
    numbers. No operation mixes entries of the first axis.

    Args:
        records: Records of this rank's teachers: images (local, B, d) as bytes, labels (local, B).
        basis: (d, K) with orthonormal columns, independent of records: teachers see images, and answer, in its
            coordinates. None for pixels.
        active: (local,) False for a teacher whose shard is empty: its gradients are 0.

    Attributes:
        in_basis: True.
    """

    in_basis = True

    def __init__(
        self,
        num_teachers: int,
        records: ShardBatch,
        device: str,
        *,
        basis: Tensor | None = None,
        active: Tensor | None = None,
        partitions: Sequence[TeacherPartition] | None = None,
        block_bytes: int | None = None,
    ) -> None:
        self.num_teachers = num_teachers
        self._partitions = partition_teachers(num_teachers) if partitions is None else partitions
        self.local = range(self._partitions[0].start, self._partitions[-1].stop)
        self.device = torch.device(device)
        self._basis = basis if basis is None else basis.to(self.device)
        self._active = torch.ones(len(self.local), dtype=torch.bool) if active is None else active.to(torch.bool)
        self._block_bytes = block_bytes or usual_block_bytes(self.device)
        self._dimensions = records.images.shape[-1]
        self._labels = records.labels.to(self.device)
        self._records = records.images if self._basis is None else self._project_all(records.images)

    def train_step(
        self, real_images: Tensor, real_labels: Tensor, synthetic_images: Tensor, synthetic_labels: Tensor
    ) -> None:
        """Do nothing: the best discriminator is known."""

    def image_gradients(
        self, synthetic_images: Tensor, synthetic_labels: Tensor, teachers: slice = slice(None)
    ) -> Iterator[Tensor]:
        """Yield every teacher's own direction for every image: the gradient of its witness function.

        Args:
            synthetic_labels: int64 (images,); a teacher compares images and records of one class.

        Yields:
            (teachers of a block, images, d or K) in the order of the teachers. Rows are 0 where a teacher has no
            record of the image's class.
        """
        images, labels = self._project(synthetic_images.to(self.device)), synthetic_labels.to(self.device)
        others = _towards_others(images, labels)
        requested = range(*teachers.indices(self.num_teachers))
        for block in local_blocks(self._partitions, requested, self.teachers_per_block(len(images))):
            with reduced_precision_products(self.device):
                yield self._towards_records(block, images, labels, others)

    def teachers_per_block(self, images: int) -> int:
        """Return how many teachers are handled at once when each sees `images` images."""
        return max(1, self._block_bytes // (4 * self._dimensions * (self._records.shape[1] + 2 * images)))

    def state(self) -> dict[str, NDArray[np.generic]]:
        return {}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Refuse any state, since these teachers leave none.

        Raises:
            CheckpointMismatch: Always.
        """
        raise CheckpointMismatch("The checkpoint holds teachers that are trained; those of this job are not.")

    def _towards_records(self, block: slice, images: Tensor, labels: Tensor, others: Tensor) -> Tensor:
        """Return the mean unit vector towards own records of the image's class, less `others`, (n, images, K)."""
        records = self._records[block]
        records = records if self._basis is not None else self._project(records.to(self.device))
        active = self._active[block].to(self.device)
        same = (self._labels[block][:, None, :] == labels[:, None]) & active[:, None, None]
        counts = same.sum(dim=-1, keepdim=True)
        weights = same / (_distances(records, images).mT * counts.clamp_min(1))
        pushed = images * weights.sum(dim=-1, keepdim=True) + others * (counts > 0)
        return torch.bmm(weights, records).sub_(pushed)

    def _project(self, images: Tensor) -> Tensor:
        """Turn bytes or numbers in [0, 1] (…, d) into the coordinates of the votes."""
        numbers = images.float().div_(255) if images.dtype == torch.uint8 else images
        return numbers if self._basis is None else numbers @ self._basis

    def _project_all(self, images: Tensor) -> Tensor:
        """Project a block at a time, since pixels as numbers are large."""
        rows = max(1, self._block_bytes // (4 * self._dimensions * images.shape[1]))
        return torch.cat([self._project(part.to(self.device)) for part in torch.split(images, rows)])


def _distances(records: Tensor, images: Tensor) -> Tensor:
    """Return distances (n, B, images)."""
    squares = torch.linalg.vector_norm(records, dim=-1).square_()[..., None] + torch.linalg.vecdot(images, images)
    products = (records.flatten(0, 1) @ images.T).view_as(squares)
    squared: Tensor = squares - 2 * products
    return squared.clamp_min_(_NEAREST**2).sqrt_()


def _towards_others(images: Tensor, labels: Tensor) -> Tensor:
    """Return the mean unit vector towards the other images of the same class, (images, d); released images alone."""
    same = (labels[:, None] == labels).fill_diagonal_(False)
    weights = same / (_distances(images[None], images)[0] * same.sum(dim=1, keepdim=True).clamp_min(1))
    return weights @ images - images * weights.sum(dim=1, keepdim=True)
