"""Small schemas and batches."""

import numpy as np
import torch
from torch import Tensor

from datalens_service.data.dataset import Schema
from datalens_service.models.teachers.ensemble import TeacherEnsemble

Tensors = dict[str, np.ndarray]
Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def schema_of(channels: int, height: int, width: int, classes: int = 3) -> Schema:
    names = tuple(f"class {number}" for number in range(classes))
    return Schema(channels=channels, height=height, width=width, class_names=names, num_units=100)


class ThreePerBlock(TeacherEnsemble):
    """Several teachers in a block, and several blocks, the last one not full."""

    def teachers_per_block(self, images: int) -> int:
        return 3


def random_batches(schema: Schema, teachers: int, steps: int, real: int = 4, synthetic: int = 6) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    d, classes = schema.dimensions, schema.num_classes
    return [
        (
            torch.rand(teachers, real, d, generator=generator),
            torch.randint(classes, (teachers, real), generator=generator),
            torch.rand(synthetic, d, generator=generator),
            torch.randint(classes, (synthetic,), generator=generator),
        )
        for _ in range(steps)
    ]


def gradients(ensemble: TeacherEnsemble, batch: Batch) -> Tensor:
    return torch.cat(list(ensemble.image_gradients(batch[2], batch[3]))).cpu()
