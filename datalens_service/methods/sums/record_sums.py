"""Images as vectors, and calibrated releases, for methods of noisy sums over records."""

import math
import operator

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import InfeasiblePlan
from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Images, Schema
from datalens_service.mechanisms import (
    CellVotes,
    CrossProductSum,
    GradientSum,
    OuterProductSum,
    PlannedRelease,
    VectorSum,
)
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import Rows
from datalens_service.methods.base import Method, Plan
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.dct import LowFrequencies, count_planes
from datalens_service.models.generators.gaussian.gaussian import add_center
from datalens_service.privacy.accounting import NeighboringRelation, smallest_noise_stddev
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

GroupedSum = OuterProductSum | VectorSum

# Grid steps of one record's count: a tenth of the means' μ², as (683/2063)² ≈ 1/9 of the vectors' share.
COUNT_WEIGHT = 683

# Rounding to the grid moves a vector by √d/2 steps, which the radius pays for: a quarter of it at d = 1000.
_COARSEST_GRID = 64

# The upper triangle of a d×d matrix is released. Larger images are seen through their lowest frequencies only.
MAXIMUM_DIMENSIONS = 4096
_FREQUENCIES = 2048

# `python -m benchmarks.memory`.
_BYTES_OF_A_PRODUCT, _BYTES_OF_A_SUMMED_PIXEL = 48, 11


def summed_dimensions(schema: Schema, frequencies: int | None = None) -> int:
    """Return how many numbers of an image are summed: all of them, or its lowest frequencies."""
    if frequencies is not None:
        return min(frequencies, schema.dimensions)
    return schema.dimensions if schema.dimensions <= MAXIMUM_DIMENSIONS else _FREQUENCIES


def describe_working_size(plan: Plan, schema: Schema) -> str:
    """Describe in sentences how much of large images the sums of a plan see; empty if they see whole images."""
    summed = max((mechanism.dimensions for mechanism in list_sums(plan)), default=schema.dimensions)
    if schema.dimensions <= MAXIMUM_DIMENSIONS or summed >= schema.dimensions:
        return ""
    width, height = visible_detail(schema, summed)
    whole = MAXIMUM_DIMENSIONS // schema.channels
    limit = f" Images of at most {whole:,} pixels are summed whole." if summed == _FREQUENCIES else ""
    return (
        f"Images of this size are reduced to a working size before they are summed: {summed:,} numbers instead of "
        f"{schema.dimensions:,}, the lowest frequencies, about the detail of {width} by {height} pixels. Finer detail "
        f"of the private images does not reach the result.{limit}"
    )


def visible_detail(schema: Schema, summed: int) -> tuple[int, int]:
    """Return width and height of images that have `summed` frequencies: equal, unless one side is shorter."""
    pixels = count_planes(schema, summed)[0]
    side = math.isqrt(pixels)
    if schema.height < side:
        return pixels // schema.height, schema.height
    return (schema.width, pixels // schema.width) if schema.width < side else (side, side)


class SummedImages(Method):
    """Parameters of methods that sum images: where lengths are measured from, and how fine the detail is."""

    center: Number = Field(
        default=0.0,
        ge=0,
        le=1,
        exclude_if=operator.not_,
        description="Brightness that lengths are measured from: 0 for light strokes on black, 0.5 for photographs.",
    )
    frequencies: Integer | None = Field(
        default=None,
        ge=1,
        le=MAXIMUM_DIMENSIONS,
        exclude_if=operator.not_,
        description="Lowest cosine frequencies of an image that are summed, of all colours together: fewer are less "
        "noisy and less sharp. Left out: all pixels, or 2,048 frequencies of images of more than 4,096 numbers.",
    )

    def summed_dimensions(self, schema: Schema) -> int:
        return summed_dimensions(schema, self.frequencies)

    def bytes_of_products(self, schema: Schema, rank: int, groups: int) -> float:
        """Return the memory of the records, and of the largest sum of products while it is noised and decomposed.

        Args:
            rank: Directions of the subspace, at most.
            groups: Number of groups whose products are summed in it.
        """
        summed = self.summed_dimensions(schema)
        products = max(summed**2, groups * min(rank, summed) ** 2)
        return _BYTES_OF_A_PRODUCT * products + _BYTES_OF_A_SUMMED_PIXEL * schema.num_units * schema.dimensions

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        if schema.channels == 1 or self.center:
            return ()
        return (
            "Lengths of images are measured from black, so bright colour images come out dark: let ⟦method.center⟧ be "
            "0.5, or ⟦method.warm_start.center⟧ with a method that starts from moments.",
        )


def calibrate(mechanism: GroupedSum | CrossProductSum | GradientSum | CellVotes, ledger_units: float) -> PlannedRelease:
    """Calibrate a release to cost at most `ledger_units`, on the finest grid for which its noise can be drawn.

    Raises:
        InfeasiblePlan: On every grid the noise would be larger than the sampler can draw.
    """
    part, grid = math.floor(ledger_units), mechanism.grid
    while grid >= _COARSEST_GRID:
        candidate = mechanism.model_copy(update={"grid": grid})
        sensitivity_squared = candidate.sensitivity_squared(NeighboringRelation.ZERO_OUT)
        stddev = smallest_noise_stddev(sensitivity_squared, 1, part)
        if stddev <= MAXIMUM_NOISE_STDDEV:
            return PlannedRelease(mechanism=candidate.model_copy(update={"noise_stddev": stddev}))
        grid //= 2
    raise InfeasiblePlan("ε is too small for noisy sums of these images: raise ⟦spec.epsilon⟧.")


def list_sums(plan: Plan) -> list[GroupedSum]:
    """List its releases of sums of records, one by one; votes are left out."""
    mechanisms = [release.mechanism for release in plan.all_releases() for _ in range(release.count)]
    return [mechanism for mechanism in mechanisms if isinstance(mechanism, OuterProductSum | VectorSum)]


class ImageVectors:
    """Images as vectors in units of the clipping norm: public, and each vector a function of its own image.

    Args:
        clip_norm: Largest length, as a fraction of an all-white image.
        center: Brightness that is subtracted from every pixel before.
        frequencies: Number of the lowest frequencies that are summed, in their order. None: all pixels of small images.

    Attributes:
        clip_norm: Length in pixel units that counts as 1.
    """

    def __init__(self, schema: Schema, clip_norm: float, center: float = 0.0, frequencies: int | None = None) -> None:
        self._longest = math.sqrt(schema.dimensions)
        self._center = center
        self.clip_norm = clip_norm * self._longest
        summed = summed_dimensions(schema, frequencies)
        reduced = frequencies is not None or summed < schema.dimensions
        self._frequencies = LowFrequencies(schema, summed) if reduced else None

    def vectors(self, images: Images) -> Floats:
        """Turn images (n, height, width, channels) into vectors (n, d); the mechanism scales back long ones."""
        pixels = images.transpose(0, 3, 1, 2).reshape(len(images), -1) / 255.0 - self._center
        if self._frequencies is None:
            return np.asarray(pixels / self.clip_norm)
        return self._frequencies.coordinates(on_grid(pixels, self._longest)) / self.clip_norm

    def coordinates(self, images: Images, basis: Floats) -> Floats:
        """Return coordinates (n, q), of length at most 1, of images in a released basis (d, q)."""
        return exact_products(on_grid(self.vectors(images)), basis)

    def lift(self, tensors: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        """Turn a released model of summed numbers into one of whole images; frequencies do not depend on data."""
        if self._frequencies is not None:
            tensors = tensors | {"basis": self._frequencies.lift(tensors["basis"])}
        return add_center(self._center, tensors) if self._center else tensors


def pooled_vectors(rows: Rows, view: ImageVectors) -> GroupedVectors:
    """Contribution: whole images, pooled over classes."""
    return GroupedVectors(view.vectors(rows.values), np.zeros(len(rows.labels), dtype=np.int64), rows.units)
