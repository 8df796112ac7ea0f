"""Changes that look like bugs of section 8.4 and cost no privacy here: what makes them harmless, one by one.

Each is planted, and the detectors it might concern must stay silent: a sensitivity that is enforced by the mechanism
itself does not depend on what hands it rows.
"""

import math
from typing import NamedTuple

import torch

from datalens_service.methods import DpSgd
from datalens_service.methods.descent import unit_gradients
from datalens_service.methods.descent.dp_sgd_parameters import DpSgdParameters
from datalens_service.privacy import individual

from . import detect_contributions, detect_individual, detect_price
from .contribution_cases import CASES
from .detectors import Detector
from .plant import Plant, around, plant, replaces

_COMPRESSED = tuple(
    detect_contributions.contributions_of_others_stay_as_they_are(case)
    for case in CASES
    if isinstance(case.method, DpSgd) and case.method.compression != "none"
)


class NeutralChange(NamedTuple):
    """What is changed, why no unit loses anything by it, and who looks."""

    plant: Plant
    reason: str
    detectors: tuple[Detector, ...]


@around("NormTopK with the unsquared norm", "8.4", unit_gradients, "keep_energy")
def squares_are_compared_with_the_norm(keep_energy, rows, share):
    """The line of the published listing: squares add up to at most k times the norm, not its square."""
    shares = [min(1.0, share / float(norm)) for norm in rows.norm(dim=1).clamp(min=1e-12)]
    return torch.cat([keep_energy(row[None], part) for row, part in zip(rows, shares, strict=True)])


@replaces("top-k priced with √k", "8.4", DpSgdParameters, "longest_row")
def largest_places_are_priced_at_root_k(self):
    """`topk` declares √k·C, although its rows may have length C."""
    return self.clip_norm * math.sqrt(self.keep)


@plant("orders of Rényi divergences missing", "8.4")
def orders_are_missing(patch):
    """Half of the orders of Rényi divergences are left out."""
    patch.setattr(individual, "_ORDERS", individual._ORDERS[::2])
    individual._divergences_by_level.cache_clear()


NEUTRAL: tuple[NeutralChange, ...] = (
    NeutralChange(
        squares_are_compared_with_the_norm,
        "rows are clipped to √k·C when they are put on the grid, and dropped beyond the radius",
        (*_COMPRESSED, detect_price.costs_are_those_of_the_proof),
    ),
    NeutralChange(
        largest_places_are_priced_at_root_k,
        "one number, `clip_norm` of the mechanism, is the price and what rows are clipped to",
        (*_COMPRESSED, detect_price.costs_are_those_of_the_proof),
    ),
    NeutralChange(
        orders_are_missing,
        "ε is the least over all orders: fewer of them can only raise it",
        (detect_individual.units_that_are_always_clipped_have_the_epsilon_of_the_job,),
    ),
)
