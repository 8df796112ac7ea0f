"""Fidelity of samples on a benchmark set: by its fixed extractor, and under the random convolutions of reports."""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.environment import require_test_split
from benchmarks.fixed_extractor import fixed_extractor, train_extractor
from benchmarks.metrics import Metrics
from datalens_service.data.dataset import Dataset
from datalens_service.evaluation.metrics.fidelity import compare
from datalens_service.evaluation.metrics.reference import Reference

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

_COMPARED: Final = 2_000
"""Samples that the random convolutions see at most."""
_AVERAGES: Final = 10_000


class Fidelity:
    """Compares samples with the test images of a benchmark set.

    Args:
        name: Of the set.
        data: With test images.
        held_out: Whether the test images are training images left out, which the fixed extractor has seen.
    """

    def __init__(self, name: str, data: Dataset, held_out: bool) -> None:
        self._name, self._data, self._held_out = name, data, held_out

    def of(self, images: Images, labels: Labels) -> dict[str, Any]:
        """Figures of samples by name, with the beginning of the extractor's SHA-256.

        Args:
            images: uint8 (n, height, width, 1).
            labels: int64 (n,).
        """
        metrics, digest = self._metrics
        return {**metrics.fidelity(images, labels), **digest, **self._by_random_convolutions(images)}

    def of_class_averages(self) -> dict[str, Any]:
        """Of the average training image of each class, without noise: no released average looks better."""
        train, classes = self._data.train, self._data.schema.num_classes
        averages = np.stack([train.images[train.labels == label].mean(axis=0) for label in range(classes)])
        labels = np.arange(_AVERAGES, dtype=np.int64) % classes
        return self.of(np.rint(averages).astype(np.uint8)[labels], labels)

    def of_real_images(self) -> dict[str, Any]:
        """Of the training images."""
        return self.of(self._data.train.images, self._data.train.labels)

    @cached_property
    def _metrics(self) -> tuple[Metrics, dict[str, str]]:
        if self._held_out:
            return Metrics(self._data, train_extractor(self._data)), {}
        network, digest = fixed_extractor(self._name)
        return Metrics(self._data, network), {"extractor": digest}

    def _by_random_convolutions(self, images: Images) -> dict[str, float]:
        """FID and KID as a report has them."""
        reference = Reference(require_test_split(self._data), "public", "test images")
        with tempfile.TemporaryDirectory() as folder:
            compared = compare(
                "random", images, reference, self._data.schema.num_classes,
                most_images=_COMPARED, folder=Path(folder), inception_weights=None, device="cpu",
            )  # fmt: skip
        return {f"random_{name}": round(compared.synthetic.figures[name], 4) for name in ("fid", "kid")}
