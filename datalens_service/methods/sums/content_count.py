"""What images show, drawings or objects, by one noisy count: of records that are drawings, less the others.

Guarantee: that of `VectorSum` (docs/mechanisms/moments.md). A record enters with 1 or -1, a function of its image alone
(models/generators/outlines/content.py).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.planned_release import PlannedRelease
from datalens_service.mechanisms.private_records import Rows
from datalens_service.methods.sums.record_sums import calibrated
from datalens_service.models.generators.outlines.content import are_drawings
from datalens_service.models.generators.outlines.level_sets import Content
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

# Of μ². Of 60,000 records at ε = 1 the noise is that of 40.
_SHARE: Final = 0.01


def plan_count(schema: Schema, units: int) -> PlannedRelease:
    """The count, for its share of `units`.

    Raises:
        InfeasiblePlan: The noise would have to be larger than the sampler can draw.
    """
    count = VectorSum(
        num_groups=1, dimensions=1, records_per_unit=schema.records_per_unit, noise_stddev=MAXIMUM_NOISE_STDDEV
    )
    return calibrated(count, _SHARE * units)


def count_drawings(rows: Rows, _released: None) -> GroupedVectors:
    """Contribution: 1 of a record that is a drawing, -1 of another one."""
    values = np.where(are_drawings(rows.values), 1.0, -1.0)[:, None]
    return GroupedVectors(values, np.zeros(len(rows.labels), dtype=np.int64), rows.units)


def read_count(released: NDArray[np.float64]) -> Content:
    """What most images show by the released count."""
    return "drawings" if released[0, 1] > 0 else "objects"
