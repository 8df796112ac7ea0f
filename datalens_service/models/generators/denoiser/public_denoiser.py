"""Private coarse, public fine: a denoiser that learned from public images finishes images drawn from private sums.

A drawn image gets noise that hides what is finer than the sums, and follows the denoiser's path back: post-processing
of released images, at no cost. The denoiser adds the looks of public images, so these should be of the same kind and
framed alike; labels are not read. It is public itself, and kept for later runs.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from datalens_service.base.arrays import Tensors
from datalens_service.base.progress import Tell
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.generators.denoiser.denoiser import Denoiser, fit_denoiser
from datalens_service.models.generators.denoiser.denoiser_shape import DenoiserShape
from datalens_service.models.generators.denoiser.diffusion import Start, pack

_SHAPE: Final[dict[str, Any]] = {"width": 16, "blocks": 2, "largest_grid": 32}
_ONE_CLASS: Final = ("any",)
_STEPS, _BATCH = 1500, 32
# The last step goes to an image from loud noise: with less, skin is spotted.
_PATH, _END_STDDEV = 3, 0.2


@dataclass(frozen=True)
class PublicDenoiser:
    """Weights of a denoiser without classes."""

    tensors: Tensors

    @classmethod
    def from_images(cls, schema: Schema, images: Images, digest: str, folder: Path | None, tell: Tell) -> Self:
        """Return weights that were kept, or new ones: some minutes of one core.

        Args:
            digest: SHA-256 of the public images.
            folder: Folder of weights by `digest` and settings; None keeps none.
        """
        if folder is None:
            return cls(_fit(schema, images, tell))
        settings = f"{digest} {schema.height} {schema.width} {_SHAPE} {_STEPS} {_BATCH}"
        kept = folder / f"{hashlib.sha256(settings.encode()).hexdigest()}.safetensors"
        if not kept.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = kept.with_suffix(f".{os.getpid()}")
            try:
                save_file(_fit(schema, images, tell), part)
                part.replace(kept)
            finally:
                part.unlink(missing_ok=True)
        return cls(load_file(kept))

    def finish(self, coarse: Start, start_stddev: float) -> tuple[dict[str, Any], Tensors]:
        """Return settings and tensors for `diffusion.draw`, which draws from `coarse` and denoises.

        Args:
            coarse: Released.
            start_stddev: Noise on coarse pixels from −1 to 1 at which the path begins.
        """
        path = {"path": _PATH, "start_stddev": start_stddev, "end_stddev": min(_END_STDDEV, start_stddev / 2)}
        start = {"kind": coarse.kind, "settings": coarse.settings}
        settings = {**_SHAPE, "class_names": _ONE_CLASS, **path, "start": start}
        return settings, pack(self.tensors, coarse.tensors)


def _fit(schema: Schema, images: Images, tell: Tell) -> Tensors:
    network = Denoiser(DenoiserShape(schema.model_copy(update={"class_names": _ONE_CLASS}), **_SHAPE))
    network = network.to(memory_format=torch.channels_last)
    labels = np.zeros(len(images), dtype=np.int64)
    fit_denoiser(network, images, labels, steps=_STEPS, seed=0, batch=_BATCH, tell=tell)
    return {name: np.ascontiguousarray(weight.detach().numpy()) for name, weight in network.named_parameters()}
