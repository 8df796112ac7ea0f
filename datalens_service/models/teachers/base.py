"""The interface of the teachers of a rank, be they networks or known in closed form, and their tuning.

All tuning for graphics processors is here, and nothing of it changes the guarantee: teachers are private and their
votes are integers of bounded length however they were computed, so their products may be rounded as coarsely as pays.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, device

from datalens_service.base.errors import InvalidSpec


class TeacherBackend(ABC):
    """The teachers of one rank; everything here is private.

    Formal guarantee, of every subclass: the answer of teacher i is a function of its own records, of the synthetic
    images and of public numbers.

    Attributes:
        num_teachers: N, of all ranks together.
        local: Numbers of this rank's teachers.
        large: True if `state` is too large to be kept between steps.
        in_basis: True if answers are in the coordinates of the votes themselves, instead of in pixels.
    """

    num_teachers: int
    device: device
    local: range
    large: bool = False
    in_basis: bool

    @abstractmethod
    def train_step(
        self, real_images: Tensor, real_labels: Tensor, synthetic_images: Tensor, synthetic_labels: Tensor
    ) -> None:
        """Train every teacher for one step; nothing for those that are not trained.

        Args:
            synthetic_images: (S, d) for all teachers, or (groups, S, d) for as many equal groups of teachers.
            synthetic_labels: (S,) or (groups, S).
        """

    @abstractmethod
    def image_gradients(
        self, synthetic_images: Tensor, synthetic_labels: Tensor, teachers: slice = slice(None)
    ) -> Iterator[Tensor]:
        """Yield every teacher's own direction for every image: blocks (teachers, images, coordinates), in their order.

        Args:
            teachers: Range among all N, without gaps; those of other ranks are left out.
        """

    def scores(
        self, synthetic_images: Tensor, synthetic_labels: Tensor, teachers: slice = slice(None)
    ) -> Iterator[Tensor]:
        """Yield logits of "this image is real", blocks (teachers, images, 1); arguments as of `image_gradients`.

        Raises:
            InvalidSpec: These teachers judge no images.
        """
        raise InvalidSpec("Teachers of this kind do not say whether an image is real: choose dense or conv.")

    @abstractmethod
    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all that training changed."""

    @abstractmethod
    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Continue from a copy that `state` returned."""


# A block that fits the processor's cache is fastest.
_CACHED_BYTES: Final = 2**25
# One block takes this part of a graphics processor's memory: launches then take no time, and teachers have room.
_SHARE: Final = 16


def block_bytes(device: torch.device) -> int:
    """Return the default memory for activations and gradients of the teachers handled at once."""
    if device.type != "cuda":
        return _CACHED_BYTES
    total: int = torch.cuda.get_device_properties(device).total_memory
    return total // _SHARE


@contextmanager
def reduced_precision_products(device: torch.device, enabled: bool = True) -> Iterator[None]:
    """Let matrix products on a graphics processor use TF32: 10 bits of a factor's mantissa, sums in 23.

    The setting belongs to the process and is restored afterwards.
    """
    if device.type != "cuda" or not enabled:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
