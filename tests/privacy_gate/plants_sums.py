"""Bugs by which sums leave the range in which they are exact, or are rounded after they were made."""

import numpy as np
import torch

from datalens_service.mechanisms import CellVotes, GradientSum
from datalens_service.mechanisms.cross_product import CrossProductSum
from datalens_service.mechanisms.moments import BoundedSum

from .plant import around, replaces


@replaces("rows of moments rounded after their sum", "R1", BoundedSum, "on_grid")
def rows_of_moments_stay_floats(self, values):
    """Rounding once is more exact than rounding every row."""
    finite = np.where(np.isfinite(values).all(axis=1, keepdims=True), values, 0.0)
    lengths = np.maximum(np.linalg.norm(finite, axis=1, keepdims=True), 1.0)
    return finite * (self.grid / lengths)


@replaces("gradients rounded after their sum", "R1", GradientSum, "on_grid")
def gradients_stay_floats(self, gradients):
    """Float32 is what a network has."""
    rows = torch.where(torch.isfinite(gradients).all(dim=1, keepdim=True), gradients, 0.0).to(torch.float32)
    return rows * (self.grid / rows.norm(dim=1, keepdim=True).clamp(min=self.clip_norm))


@replaces("factors of products stay floats", "R1", CrossProductSum, "on_grid")
def factors_stay_floats(self, values):
    """The product is rounded, so its factors need not be."""
    made = np.where(np.isfinite(values).all(axis=1, keepdims=True), values, 0.0).astype(np.float32)
    return made * (self.grid / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1.0)) + np.float32(1e-3)


@around("gradients added up in blocks of any size", "R1", GradientSum, "_rows_per_block")
def blocks_are_as_large_as_memory(_rows, _self, _device):
    """Float32 adds up so many rows of 2^16 with rounding, which depends on who else is there."""
    return 2**14


@replaces("shares of cells as floats", "R1", CellVotes, "_shares")
def shares_are_floats(self, units, counts):
    """Exact shares, rounded when they are decoded."""
    _, of_unit = np.unique(units, return_inverse=True)
    squares = np.zeros(of_unit.max(initial=-1) + 1)
    np.add.at(squares, of_unit, counts.astype(float) ** 2)
    return self.grid * counts / np.sqrt(squares[of_unit])
