"""A class-conditional Gaussian in a linear subspace: what the moments method releases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Labels, Schema


def draw(
    tensors: dict[str, NDArray[np.float32]],
    settings: dict[str, Any],
    schema: Schema,
    labels: Labels,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Images basis·(mean_y + factor_y·z) with z ~ N(0, I), clipped to [0, 1].

    Args:
        tensors: `basis` (d, q), `means` (classes, q), `factors` (classes, q, q).
        settings: Unused; a Gaussian has none.
        schema: Of the images.
        labels: (n,) classes.
        rng: For z.

    Returns:
        float32 (n, d) with d in channel, height, width order.
    """
    basis, means, factors = tensors["basis"], tensors["means"], tensors["factors"]
    noise = rng.standard_normal((len(labels), basis.shape[1]), dtype=np.float32)
    points = np.empty_like(noise)
    for label in np.unique(labels):
        rows = labels == label
        points[rows] = means[label] + noise[rows] @ factors[label].T
    return np.clip(points @ basis.T, 0.0, 1.0)
