"""What an encoder is: a public function from an image to a vector, the same for everybody.

Nothing in it follows private records, so what an image becomes says something of that image alone. Importing this needs
no torch: requests are checked where none is installed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from datalens_service.base.fields import Frozen
from datalens_service.data.dataset import Schema
from datalens_service.models.public_source import PublicEncoder

if TYPE_CHECKING:
    from datalens_service.models.encoders.network import EncoderNetwork


class Encoder(Frozen, ABC):
    """Which encoder a request names; frozen, part of the spec, public.

    Those with weights name the SHA-256 of their file, too.
    """

    name: str

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Refuse images that it cannot encode.

        Raises:
            InvalidSpec: They have a number of channels that it does not take, or its weights are not installed.
        """

    @abstractmethod
    def dimensions(self, schema: Schema) -> int:
        """Length of the vector of one image."""

    def source(self) -> PublicEncoder | None:
        """What is said of its weights wherever the result goes; None without any."""
        return None

    @abstractmethod
    def architecture(self, schema: Schema) -> EncoderNetwork:
        """The network, with no weights of its own yet."""

    def load(self, schema: Schema, file: Path | None = None) -> EncoderNetwork:
        """The network with its public weights.

        Args:
            file: Of an encoder of the owner's own.

        Raises:
            WorkerUnavailable: They are not here, or are others than the spec names.
        """
        return self.architecture(schema)
