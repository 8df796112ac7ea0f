"""The released artefact: a function from labels to images, stored as safetensors with its settings.

A generator holds released numbers only. Drawing from it is post-processing: free, and repeatable by seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.models.generators import pool
from datalens_service.models.generators.class_shares import ClassShares, take_turns
from datalens_service.models.generators.gaussian import gaussian, mixture
from datalens_service.models.released import ReleasedFile, load_model, save_model

Tensors = dict[str, NDArray[Any]]
Draw = Callable[[Tensors, dict[str, Any], Schema, Labels, np.random.Generator], NDArray[np.float32]]

Observe = Callable[[int, int], None]

_BATCH: Final = 2048
# Rejected proposals make a batch slow: whoever waits hears something every few seconds.
_BATCHES: Final = {"rejection": 500, "diffusion": 500}
_REMEMBERED_BYTES: Final = 2**26
_BLOCK: Final = 256
"""Images that are rounded to bytes at once."""


def _deferred(module: str) -> Draw:
    """Return `draw` of a module of this folder that needs torch or SciPy, which are imported only where one is used."""

    def draw(*arguments: Any) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = import_module(f"{__package__}.{module}").draw(*arguments)
        return drawn

    return draw


KINDS: dict[str, Draw] = {
    "gaussian": gaussian.draw,
    "mixture": mixture.draw,
    "pool": pool.draw,
    "evolved": pool.draw,
    "network": _deferred("networks"),
    "guided": _deferred("gaussian.guided"),
    "labelled": _deferred("gaussian.labelled"),
    "shapes": _deferred("level_sets.shapes"),
    "rejection": _deferred("level_sets.rejection"),
    "diffusion": _deferred("denoiser.diffusion"),
}


@dataclass(frozen=True)
class Generator:
    """A released generator.

    Attributes:
        kind: Key of `KINDS`.
        schema: Public schema of the data set it imitates.
        settings: JSON-compatible architecture settings; `class_shares`, if it is there, concerns every kind.
    """

    result: ClassVar[str] = "generator"
    evaluations: ClassVar[tuple[str, ...]] = ("images",)

    kind: str
    schema: Schema
    settings: dict[str, Any]
    tensors: Tensors
    _remembered: dict[tuple[int, int], Images] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Whole batches by seed and first image, up to 64 MiB: a job packs, measures and shows the same images."""

    @property
    def class_shares(self) -> ClassShares | None:
        """Return how frequent classes are in draws that name none; None if they take turns."""
        shares = self.settings.get("class_shares")
        return None if shares is None else tuple(shares)

    def with_class_shares(self, shares: ClassShares | None) -> Self:
        """Return the same model with these shares of classes in draws that name none; None lets classes take turns."""
        others = {name: value for name, value in self.settings.items() if name != "class_shares"}
        return replace(self, settings=others if shares is None else others | {"class_shares": list(shares)})

    def to_learn_from(self) -> Self:
        """Return the same model for a method that starts from it: classes in turn, and no edges for the eye."""
        plain = {name: value for name, value in self.settings.items() if name not in ("class_shares", "edges")}
        return replace(self, settings=plain)

    def _list_usual_labels(self, n: int) -> Labels:
        return take_turns(n, self.class_shares or (1.0,) * self.schema.num_classes)

    def sample(
        self, n: int, *, labels: Labels | None = None, seed: int = 0, observe: Observe | None = None
    ) -> tuple[Images, Labels]:
        """Draw synthetic images.

        Args:
            n: Number of images, at least 1.
            labels: (n,) wanted classes; by default as frequent as declared or as noisy counts that were released say,
                else in turn.
            seed: Repeats the draw.
            observe: Called with the number of images drawn, and n, after each batch; may raise to stop.

        Returns:
            uint8 images (n, height, width, channels) and int64 labels (n,).
        """
        usual = labels is None
        labels = self._list_usual_labels(max(n, 0)) if labels is None else labels
        if n < 1 or len(labels) != n or labels.min() < 0 or labels.max() >= self.schema.num_classes:
            raise InvalidInput("Ask for at least one image and give one declared class for each.")
        batch = _BATCHES.get(self.kind, _BATCH)
        images: Images = np.empty((n, self.schema.height, self.schema.width, self.schema.channels), dtype=np.uint8)
        for start in range(0, n, batch):
            images[start : start + batch] = self._recall(seed, start, labels[start : start + batch], usual=usual)
            if observe is not None:
                observe(min(start + batch, n), n)
        return images, labels

    def draw_training_set(
        self, n: int, *, seed: int = 0, observe: Observe | None = None
    ) -> tuple[Images, Labels | NDArray[np.float32]]:
        """Draw images for a classifier to learn from, with soft labels if the model has some; arguments as `sample`."""
        images, labels = self.sample(n, seed=seed, observe=observe)
        soft = self.soft_labels(n, seed=seed)
        return images, labels if soft is None else soft

    @property
    def verbatim(self) -> bool:
        """Tell whether its images are public ones or parts of them, and no model made them."""
        return self.kind == "pool"

    def soft_labels(self, n: int, *, labels: Labels | None = None, seed: int = 0) -> NDArray[np.float32] | None:
        """Return soft labels (n, classes) of the images that `sample` draws with the same arguments.

        The result is None where a model knows nothing more of an image than its class.
        """
        is_finished = self.kind == "diffusion" and self.settings["start"]["kind"] == "labelled"
        if self.kind == "labelled" or is_finished:
            module = "denoiser.diffusion" if is_finished else "gaussian.labelled"
            label_softly = import_module(f"{__package__}.{module}").label_softly
            said: NDArray[np.float32] = label_softly(
                self.tensors, self.settings, self.schema, *self.sample(n, labels=labels, seed=seed)
            )
            return said
        if not self.verbatim:
            return None
        labels = self._list_usual_labels(n) if labels is None else labels
        parts = [
            pool.draw_soft_labels(self.tensors, labels[start : start + _BATCH], np.random.default_rng([seed, start]))
            for start in range(0, n, _BATCH)
        ]
        return np.concatenate(parts)

    def _recall(self, seed: int, start: int, labels: Labels, *, usual: bool) -> Images:
        """Return a remembered batch, or draw it; only whole ones with the usual classes are remembered."""
        usual = usual and len(labels) == _BATCHES.get(self.kind, _BATCH)
        if usual and (seed, start) in self._remembered:
            return self._remembered[seed, start]
        images = self._draw(seed, start, labels)
        if usual and (len(self._remembered) + 1) * images.nbytes <= _REMEMBERED_BYTES:
            images.setflags(write=False)
            self._remembered[seed, start] = images
        return images

    def _draw(self, seed: int, start: int, labels: Labels) -> Images:
        """Draw from one stream per batch, so that the first images do not depend on how many follow."""
        rng = np.random.default_rng([seed, start])
        pixels = KINDS[self.kind](self.tensors, self.settings, self.schema, labels, rng)
        blocks = np.split(pixels, range(_BLOCK, len(pixels), _BLOCK))
        rounded = np.concatenate([np.rint(block.clip(0, 1) * 255).astype(np.uint8) for block in blocks])
        planes = rounded.reshape(-1, self.schema.channels, self.schema.height, self.schema.width)
        return planes.transpose(0, 2, 3, 1)

    def save(self, path: Path) -> None:
        """Write safetensors with kind, schema and settings in the header."""
        save_model(path, self.kind, self.schema, self.settings, self.tensors)

    def files(self) -> tuple[ReleasedFile, ...]:
        return (ReleasedFile("generator.safetensors", "application/octet-stream", self.save),)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; no code is executed from the file."""
        return cls(*load_model(path, KINDS, "generator"))
