"""The content of images, drawings or objects, by one noisy count: of records that are drawings, less the others.

Guarantee: that of `VectorSum` (docs/mechanisms/moments.md). A record counts 1 or -1, a function of its image
alone: whether that is a drawing, bright strokes of one brightness on a dark ground. Levels were chosen on MNIST, of
which 97 in 100 training images are drawings by them, and on Fashion-MNIST, of which 16 are.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Schema
from datalens_service.mechanisms import PlannedRelease, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import Rows
from datalens_service.methods.sums.record_sums import calibrate
from datalens_service.models.generators.level_sets.level_sets import Content
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

_DARK, _BRIGHT = 64, 192
_LEAST_GROUND: Final = 0.6
"""Share of dark pixels among all, at least."""
_LEAST_BRIGHT: Final = 0.5
"""Share of bright ones among pixels that are not dark, at least: the others are edges of strokes, or shades of objects.
"""
_ROWS: Final = 4096


def are_drawings(images: Images) -> NDArray[np.bool_]:
    """Tell whether images (n, height, width, channels) have a dark ground and few shades, bool (n,)."""
    parts = [_of_batch(images[row : row + _ROWS]) for row in range(0, len(images), _ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=bool)


def _of_batch(images: Images) -> NDArray[Any]:
    brightness = images.max(axis=3)
    pixels = brightness.shape[1] * brightness.shape[2]
    ink, bright = (brightness >= _DARK).sum(axis=(1, 2)), (brightness >= _BRIGHT).sum(axis=(1, 2))
    # Whole numbers on both sides: no rounding decides.
    return np.asarray((ink <= (1 - _LEAST_GROUND) * pixels) & (bright >= _LEAST_BRIGHT * ink))


# Share of μ². With 60,000 records at ε = 1 the noise is as large as 40 of them.
_SHARE: Final = 0.01


def plan_count(schema: Schema, ledger_units: int) -> PlannedRelease:
    """Plan the count, for its share of `ledger_units`.

    Raises:
        InfeasiblePlan: The noise would have to be larger than the sampler can draw.
    """
    count = VectorSum(
        num_groups=1, dimensions=1, records_per_unit=schema.records_per_unit, noise_stddev=MAXIMUM_NOISE_STDDEV
    )
    return calibrate(count, _SHARE * ledger_units)


def count_drawings(rows: Rows, _released: None) -> GroupedVectors:
    """Contribution: 1 for a record that is a drawing, -1 for another one."""
    values = np.where(are_drawings(rows.values), 1.0, -1.0)[:, None]
    return GroupedVectors(values, np.zeros(len(rows.labels), dtype=np.int64), rows.units)


def read_count(released: NDArray[np.float64]) -> Content:
    """Return what most images show by the released count."""
    return "drawings" if released[0, 1] > 0 else "objects"
