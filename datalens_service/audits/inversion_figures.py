"""Settings and results of gradient inversion: figures for the owner alone."""

from typing import Final, Literal

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from datalens_service.audits.membership import CONFIDENCE, Interval
from datalens_service.base.fields import Frozen, Integer

NOTE: Final = (
    "Of one record's contribution alone, as in a batch of one: a real step shows the sum of many. A small error proves "
    "that a gradient gives its image away; a large one proves nothing, because another attacker may do better."
)


class InversionSettings(Frozen):
    """The settings of the attacker's search.

    Attributes:
        iterations: Iterations of Adam, on the sign of the gradient.
        restarts: Random starts, of which the best cosine wins.
    """

    iterations: Integer = Field(default=1000, ge=1, le=100_000)
    restarts: Integer = Field(default=2, ge=1, le=16)
    seed: Integer = Field(default=0, ge=0, lt=2**63)


class ReconstructionErrors(BaseModel):
    """Mean squared errors of images, over the variance of the attacked pixels: an even grey image has about 1.

    Attributes:
        median: Median over the attacked records.
        interval: Interval of at least 95 % for the median over records like these (by order statistics).
        lowest: Error of the record that was reconstructed best.
    """

    model_config = ConfigDict(frozen=True)

    median: float
    interval: Interval
    lowest: float


class InversionFigures(BaseModel):
    """The results of gradient inversion.

    Attributes:
        architecture: Network whose gradients are inverted, at its first weights.
        records: Number of records attacked, each by itself.
        noise: Noise on the released contributions; none if the method has no privacy.
        noise_multiplier: σ of Gaussian noise over the longest contribution.
        kappa: Concentration of von Mises–Fisher noise.
        raw: Errors from gradients without clipping, compression and noise, as nobody releases them.
        released: Errors from contributions as the method releases them; None if it has no privacy.
    """

    model_config = ConfigDict(frozen=True)

    source: str = "Geiping et al. 2020"
    bound: Literal["lower_bound"] = "lower_bound"
    architecture: str
    records: int
    iterations: int
    restarts: int
    noise: Literal["none", "gaussian", "von_mises_fisher"]
    noise_multiplier: float | None
    kappa: float | None
    raw: ReconstructionErrors
    released: ReconstructionErrors | None
    note: str = NOTE


def measure_errors(errors: NDArray[np.float64]) -> ReconstructionErrors:
    """Summarize errors (n,), one for each record."""
    ordered = np.sort(errors)
    # So many of the lowest errors lie outside of the interval, and as many of the highest.
    outside = max(0, int(scipy.stats.binom.ppf((1 - CONFIDENCE) / 2, len(ordered), 0.5)) - 1)
    return ReconstructionErrors(
        median=float(np.median(ordered)),
        interval=(float(ordered[outside]), float(ordered[len(ordered) - 1 - outside])),
        lowest=float(ordered[0]),
    )
