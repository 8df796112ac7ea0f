"""The facts that a method states; plans, names of jobs, help and the API's description are made of them.

Nothing else lists methods by name: one that lacks a fact does not import, be it of this product or a plug-in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from datalens_service.data.dataset import Schema

PublicUse = Literal["start", "finish", "material"]
"""Training starts from public images; or a denoiser of them finishes what is drawn; or results are made of them."""

LEAST_EVIDENCE: Final = 10.0
"""μ times the units of a class below which no method was of use: about 40 records of a class at ε = 1."""


class Levels(NamedTuple):
    """The evidence that images need: μ times the privacy units of a class, read off pictures.

    Attributes:
        soft: From here on they are more than noise.
        recognisable: From here on outlines of small grey images are recognisable.
        textured: True if noise is drawn over them on purpose.
    """

    soft: float
    recognisable: float = float("inf")
    textured: bool = False


WITHOUT_A_START: Final = Levels(5000)
"""Levels of a generator that noisy votes or gradients train from nothing."""


class WorkingMemory(NamedTuple):
    """Memory of networks, or of vectors of images, beside program and records: GiB, and bytes per number."""

    gib: float
    bytes_per_number: float

    def at(self, schema: Schema) -> float:
        """Return the bytes for images of this size."""
        return self.gib * 2**30 + self.bytes_per_number * schema.dimensions


# Read off `python -m benchmarks.memory`, and `benchmarks.images` of commit 31652610.
NEXT_TO_NONE: Final = WorkingMemory(0.0, 0.0)
SMALL_NETWORKS: Final = WorkingMemory(0.2, 8e4)
SAMPLES_AND_NETWORKS: Final = WorkingMemory(0.4, 1.7e5)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about a method; all of them are public, and none has a default.

    Attributes:
        title: Names its jobs until their owner does; no other method has it.
        summary: One line of help on what it releases, without a full stop.
        result: Kind of released model that it makes.
        public_images: Use of images that were declared public; None: it takes none.
        levels: Evidence at which its images show something; None for a classifier, or where nobody knows.
        memory: Memory of its networks, or of vectors of images.
        measured_as: The method whose measured jobs predict the duration of its own: itself, if it was measured, or one
            that does most of what it does. Where the table has none, time is guessed from the number of images.
        image_seconds: Time of one core to draw an image of 28×28 pixels; 0 for a classifier.
    """

    title: str
    summary: str
    result: Literal["generator", "classifier"]
    public_images: PublicUse | None
    levels: Levels | None
    memory: WorkingMemory
    measured_as: str
    image_seconds: float
