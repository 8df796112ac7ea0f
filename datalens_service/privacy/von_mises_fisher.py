"""Sampler of the von Mises-Fisher law on a sphere: density ∝ exp(κ·xᵀy) at y, for a mean direction x.

The cosine t = xᵀy is drawn by rejection (Wood 1994, "Simulation of the von Mises Fisher distribution"), the rest of y
is uniform among the directions orthogonal to x. All of it in float64: the sampler is exact in real arithmetic, which
the guarantee assumes (docs/mechanisms/von_mises_fisher.md). In float32 cosines are visibly biased.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.special import betaincinv

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import InvalidInput

Uniforms = Callable[[int], Floats]
"""Returns so many independent uniform numbers in (0, 1), from the operating system's entropy."""

SMALLEST_DIMENSIONS: Final = 3
_LENGTH_TOLERANCE: Final = 1e-9


def draw_directions(means: Floats, kappa: float, uniforms: Uniforms) -> Floats:
    """Draw one direction of length 1 for each mean direction, float64 (rows, d).

    Args:
        means: (rows, d) float64 of length 1, or of length 0: then the direction is uniform. d ≥ 3.
        kappa: Concentration, at least 0.

    Raises:
        InvalidInput: The means have another type, shape or length.
    """
    lengths = _check(means, kappa)
    rows, dimensions = means.shape
    normals = draw_normals(rows * dimensions, uniforms).reshape(rows, dimensions)
    pointed = lengths > 0
    tangents = normals - np.einsum("ij,ij->i", normals, means)[:, None] * means
    tangents /= np.linalg.norm(tangents, axis=1, keepdims=True)
    cosines = np.zeros(rows)
    cosines[pointed] = draw_cosines(int(pointed.sum()), dimensions, kappa, uniforms)
    # Without a mean direction the tangent is the whole, and the cosine is 0.
    return np.asarray(cosines[:, None] * means + np.sqrt((1 - cosines) * (1 + cosines))[:, None] * tangents)


def draw_cosines(count: int, dimensions: int, kappa: float, uniforms: Uniforms) -> Floats:
    """Draw numbers (count,) of density ∝ (1 − t²)^((d−3)/2)·exp(κt) on [−1, 1]."""
    free = dimensions - 1
    # Wood's b, without the cancellation of its first form.
    slope = free / (2 * kappa + math.hypot(2 * kappa, free))
    center = (1 - slope) / (1 + slope)
    offset = kappa * center + free * math.log1p(-(center**2))
    accepted, missing = [np.empty(0)], count
    while missing:
        proposals = missing + missing // 2 + 8
        beta = betaincinv(free / 2, free / 2, uniforms(proposals))
        cosines = (1 - (1 + slope) * beta) / (1 - (1 - slope) * beta)
        height = kappa * cosines + free * np.log1p(-center * cosines) - offset
        drawn = cosines[height >= np.log(uniforms(proposals))][:missing]
        accepted.append(drawn)
        missing -= len(drawn)
    return np.concatenate(accepted)


def draw_normals(count: int, uniforms: Uniforms) -> Floats:
    """Draw standard normal numbers (count,) in pairs (Box & Muller 1958)."""
    pairs = (count + 1) // 2
    radii = np.sqrt(-2 * np.log(uniforms(pairs)))
    angles = 2 * math.pi * uniforms(pairs)
    return np.concatenate([radii * np.cos(angles), radii * np.sin(angles)])[:count]


def _check(means: Floats, kappa: float) -> Floats:
    if means.dtype != np.float64:
        raise InvalidInput("Directions are drawn in float64: in float32 their cosines are biased.")
    if means.ndim != 2 or means.shape[1] < SMALLEST_DIMENSIONS:
        raise InvalidInput(f"Mean directions are rows of at least {SMALLEST_DIMENSIONS} numbers.")
    if not (kappa >= 0 and math.isfinite(kappa)):
        raise InvalidInput("κ must be a finite number of at least 0.")
    lengths = np.asarray(np.linalg.norm(means, axis=1))
    if not np.all((lengths == 0) | (np.abs(lengths - 1) < _LENGTH_TOLERANCE)):
        raise InvalidInput("A mean direction has length 1, or 0 for none.")
    return lengths
