"""One output format: what it is called, what its files are, and who writes them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Labels, Schema

SoftLabels = NDArray[np.float32]
"""(n, classes) probabilities of every class."""


class WrittenImages(NamedTuple):
    """What a file is made of; all of it public."""

    images: Images
    labels: Labels
    schema: Schema
    card: dict[str, Any]
    soft_labels: SoftLabels | None = None


class ArchivePlace(NamedTuple):
    """Where a release archive holds the images of a format."""

    name: str
    media_type: str


@dataclass(frozen=True)
class Writer:
    """One output format.

    Attributes:
        name: Key in `WRITERS`, and the value of `format` in the REST API: lower-case letters and digits.
        suffix: Of files, without the dot.
        write: Makes a file that states whether it is synthetic; equal input gives equal bytes. It is not atomic.
        archived_as: Its place in a release archive; None: `data/synthetic.<suffix>`, with the media type of a download.
    """

    name: str
    title: str
    suffix: str
    media_type: str
    write: Callable[[Path, WrittenImages], None]
    archived_as: ArchivePlace | None = None

    @property
    def archive_place(self) -> ArchivePlace:
        """Its place in a release archive."""
        return self.archived_as or ArchivePlace(f"data/synthetic.{self.suffix}", self.media_type)
