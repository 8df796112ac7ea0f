"""Descriptions of public inputs: images that a model started from or hands out, an encoder, a generator."""

import operator
from typing import Final

from pydantic import Field

from datalens_service.base.fields import Frozen
from datalens_service.data.intake.sandbox.encoder_label import EncoderLabel


class PublicSource(Frozen):
    """Images that their owner declared public; the guarantee does not cover them."""

    name: str = Field(default="", description="Name that the owner gave the set; empty for a run without a service.")
    images: int = Field(ge=1, description="Number of public images.")
    class_names: tuple[str, ...] = Field(
        description="Classes of the public set; one class stands for images without labels."
    )
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the pixels and labels, in their order.")
    license: str = Field(
        default="",
        exclude_if=operator.not_,
        description="Licence as the owner declared it, in words; empty if none was declared.",
    )
    verbatim: bool = Field(
        default=False, exclude_if=operator.not_, description="Whether these, or parts of them, are what is released."
    )
    held: bool = Field(
        default=False, exclude_if=operator.not_, description="Whether the released model holds some of them, unchanged."
    )


class PublicEncoder(EncoderLabel):
    """An encoder that was trained on other images; the guarantee does not cover these."""

    name: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file with its weights.")

    def describe(self) -> str:
        """Return its name, and what its owner stated: “onnx “ours”, licence Apache-2.0, made from weights …”."""
        title = f" “{self.title}”" if self.title else ""
        license = f", licence {self.license}" if self.license else ""
        weights = f", made from a file of SHA-256 {self.weights_sha256}" if self.weights_sha256 else ""
        return f"{self.name}{title} (SHA-256 of its weights {self.sha256}{weights}{license})"


class PublicGenerator(Frozen):
    """A generator that the operator installed, or the one that draws by rules; the guarantee covers neither."""

    name: str
    distribution: str
    version: str
    sha256: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        exclude_if=operator.not_,
        description="SHA-256 over the hashes of all files of its folder; empty for one without a folder.",
    )
    untrained: bool = Field(
        default=False,
        exclude_if=operator.not_,
        description="Whether it draws by rules alone, so that no images and no weights went into it.",
    )


class PublicInputs(Frozen):
    """Everything beside private records on which a result rests; the guarantee covers none of it."""

    images: PublicSource | None = Field(default=None, description="That training started from, or that are released.")
    encoder: PublicEncoder | None = Field(default=None, description="Through which images are seen.")
    generator: PublicGenerator | None = Field(default=None, description="Of whose images the result is made.")

    @property
    def has_weights(self) -> bool:
        """Tell whether something was trained before, on other images."""
        return self.encoder is not None or (self.generator is not None and not self.generator.untrained)


NO_PUBLIC_INPUTS: Final = PublicInputs()
