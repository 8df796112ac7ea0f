"""The interface of encoders: public functions from an image to a vector, the same for everybody.

Nothing in them follows private records, so the vector of an image reveals something of that image alone. Importing
this needs no torch: requests are checked where none is installed.
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
    """The encoder that a request names; frozen, part of the spec, public.

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
        """Return the length of the vector of one image."""

    def source(self) -> PublicEncoder | None:
        """Return the description of its weights, for every place where the result goes; None without any."""
        return None

    @abstractmethod
    def architecture(self, schema: Schema) -> EncoderNetwork:
        """Return the network, with no weights of its own yet."""

    def load(self, schema: Schema, file: Path | None = None) -> EncoderNetwork:
        """Return the network with its public weights.

        Args:
            file: The file of an encoder of the owner's own.

        Raises:
            WorkerUnavailable: The weights are missing, or others than the spec names.
        """
        return self.architecture(schema)
