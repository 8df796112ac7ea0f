"""Teachers in closed form: the best discriminator of a kernel, which needs no training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from datalens_service.data.dataset import Schema
from datalens_service.methods.voting.teachers.base import Setting, TeacherParameters

if TYPE_CHECKING:
    from datalens_service.mechanisms.private_shards import Shards
    from datalens_service.models.teachers.base import TeacherBackend


class KernelTeacher(TeacherParameters):
    """Compares synthetic images with the records of its shard."""

    name: Literal["kernel"] = "kernel"

    def count_weights(self, schema: Schema) -> int:
        return 0

    def build(self, setting: Setting, shards: Shards) -> TeacherBackend:
        from datalens_service.models.teachers.kernel import KernelTeachers

        return KernelTeachers(
            setting.num_teachers,
            shards.batch,
            shards.device,
            basis=setting.basis,
            active=shards.active,
            partitions=shards.parts,
        )
