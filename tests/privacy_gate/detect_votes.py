"""Detectors on mechanisms: what a row may say, and how far neighbours may be apart for what is charged."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from datalens_service.mechanisms import (
    BoundedSum,
    CrossProductSum,
    GradientSum,
    Mechanism,
    VonMisesFisherSum,
    VoteMechanism,
)
from datalens_service.mechanisms.accuracy import Answers
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.mechanisms.cross_product import OuterProductFactors
from datalens_service.mechanisms.individual_histogram import IndividualEpsilons
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.privacy.accounting import LEDGER_UNITS_PER_MU_SQUARED, SMOOTHING_VARIANCE
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource

from .alarm import expect
from .cases import CASES, IMAGES, REPLACE_ONE, ZERO_OUT, Case, distances_squared

_HOSTILE_TEACHERS = 150
_NEIGHBORS = 8


def vote_mechanisms() -> Iterator[VoteMechanism]:
    """One of each case."""
    return (case.mechanism for case in CASES if isinstance(case.mechanism, VoteMechanism))


def votes_are_short_integers(rng: np.random.Generator) -> None:
    """R5: whatever the gradients, rows are integers within the bound; what is not finite votes zero (B24)."""
    for mechanism in vote_mechanisms():
        gradients, broken = hostile_gradients(rng, mechanism.dimensions)
        votes = mechanism.encode(gradients, torch.Generator().manual_seed(0))
        expect(not votes.is_floating_point(), f"{mechanism.name}: votes are integers")
        expect(not votes[broken].any(), f"{mechanism.name}: a gradient that is not finite, or zero, votes zero")
        expect(votes[~broken].any(), f"{mechanism.name}: a sound gradient votes")
        squared = votes.to(torch.float64).square().sum(dim=-1)
        too_long = squared > mechanism.row_bound_squared
        expect(too_long.double().mean() < 0.02, f"{mechanism.name}: rows are within √row_bound_squared")
        whole = mechanism.model_copy(update={"classes_voted_apart": 1})
        guarded = whole.zero_out_of_bound_rows(votes).to(torch.float64).square().sum(dim=-1)
        expect((guarded <= mechanism.row_bound_squared).all(), f"{mechanism.name}: no longer row passes the guard")


def the_row_guard_is_exact(_rng: np.random.Generator) -> None:
    """Rows just above the bound vanish even if `encode` were wrong; so does a teacher that votes on too much."""
    for mechanism in vote_mechanisms():
        votes = torch.zeros(2, IMAGES, mechanism.coordinates, dtype=torch.int64)
        votes[0, 0, 0] = int(np.sqrt(mechanism.row_bound_squared)) + 1
        votes[1, : mechanism.images_per_teacher + 1] = 1
        kept = mechanism.zero_out_of_bound_rows(votes)
        expect(not kept[0].any(), f"{mechanism.name}: a row that is too long is dropped")
        if mechanism.classes_voted_apart > 1:
            expect(not kept[1].any(), f"{mechanism.name}: a teacher votes on the images of one class")


def rows_do_not_depend_on_other_teachers(rng: np.random.Generator) -> None:
    """Sensitivity counts one teacher: its gradient must not move the rows of others."""
    for case in CASES:
        if not isinstance(case.mechanism, VoteMechanism):
            continue
        (block,) = case.make(rng)
        changed = block.clone()
        changed[3] *= -1e6
        rows = [case.mechanism.encode(data, torch.Generator().manual_seed(1)) for data in (block, changed)]
        others = [teacher for teacher in range(len(block)) if teacher != 3]
        expect(torch.equal(rows[0][others], rows[1][others]), f"{case.name}: a row depends on its own gradient alone")


def neighbors_stay_within_the_charge(rng: np.random.Generator) -> None:
    """R6: whole releases of neighbours are no farther apart than what was charged for, and come close to it."""
    for case in CASES:
        charged = _charged_distance(case)
        for data, neighbor in _neighbors(rng, case):
            worst, together = distances_squared(case.mechanism, data, neighbor)
            expect(together <= charged, f"{case.name}: neighbours stay within the charge")
            expect(worst <= case.mechanism.sensitivity_squared(ZERO_OUT), f"{case.name}: and within Δ per query")
        worst, together = distances_squared(case.mechanism, *case.worst)
        expect(together <= charged, f"{case.name}: the worst neighbours stay within the charge")
        tight = case.tightness * case.mechanism.sensitivity_squared(ZERO_OUT)
        expect(tight <= worst <= case.mechanism.sensitivity_squared(ZERO_OUT), f"{case.name}: and come close to Δ")


def replaced_units_stay_within_their_figure(rng: np.random.Generator) -> None:
    """The replace-one figure that stands beside the headline is a bound as well."""
    for case in CASES:
        units = case.mechanism.cost(REPLACE_ONE)
        allowed = _distance_squared(case.mechanism, units)
        for _ in range(_NEIGHBORS):
            data = case.make(rng)
            _, together = distances_squared(case.mechanism, data, case.neighbors[REPLACE_ONE](rng, data))
            expect(together <= allowed, f"{case.name}: replaced units stay within the replace-one figure")
        if isinstance(case.mechanism, BoundedSum | CrossProductSum):
            _, together = distances_squared(case.mechanism, *_opposite_records(case.mechanism))
            expect(together <= allowed, f"{case.name}: opposite records stay within the replace-one figure")


def sums_are_plain_sums(rng: np.random.Generator) -> None:
    """Nothing happens between the rows and the noise: the sum of two halves is the sum of the whole (B10)."""
    for case in CASES:
        data = case.make(rng)
        if isinstance(data, GroupedVectors | OuterProductFactors | Answers | IndividualEpsilons | Votes):
            half = data.units < np.median(data.units)
            parts = [type(data)(*(array[rows] for array in data)) for rows in (half, ~half)]
        elif isinstance(case.mechanism, GradientSum | VonMisesFisherSum):
            parts = [[chunk] for chunk in data]
        elif case.mechanism.stochastic:
            continue
        else:
            parts = [[part] for part in data[0].split(5)]
        total = sum(case.mechanism.exact_sum(part) for part in parts)
        expect(np.array_equal(case.mechanism.exact_sum(data), total), f"{case.name}: what gets noise is a plain sum")


def hostile_gradients(rng: np.random.Generator, dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of all scales, with ties; and the mask (teachers, images) of those that must vote zero."""
    shape = (_HOSTILE_TEACHERS, IMAGES, dimensions)
    scale = 10.0 ** rng.integers(-20, 30, (_HOSTILE_TEACHERS, IMAGES, 1))
    gradients = torch.tensor(rng.standard_normal(shape) * scale, dtype=torch.float32)
    gradients[1::7] = gradients[1::7].sign()
    gradients[::5, 0, 0], gradients[::6, 1], gradients[::7, 2, -1] = float("nan"), float("inf"), float("-inf")
    gradients[::8, 3] = 0.0
    return gradients, ~torch.isfinite(gradients).all(dim=-1) | (gradients == 0).all(dim=-1)


def _neighbors(rng: np.random.Generator, case: Case) -> Iterator[tuple[object, object]]:
    for _ in range(_NEIGHBORS):
        data = case.make(rng)
        yield data, case.neighbors[ZERO_OUT](rng, data)
    if isinstance(case.mechanism, VoteMechanism):
        (block,) = case.make(rng)
        flipped = block.clone()
        flipped[1] *= -1
        yield [block], [flipped]


def _opposite_records(mechanism: Any) -> tuple[Any, Any]:
    """A unit whose records point the other way, a little aside for outer products."""
    records = mechanism.records_per_unit
    if isinstance(mechanism, CrossProductSum):
        left, right = np.ones((records, mechanism.left_dimensions)), np.ones((records, mechanism.right_dimensions))
        alike = np.zeros(records, dtype=np.int64)
        return OuterProductFactors(left, right, alike), OuterProductFactors(left, -right, alike)
    first, second = np.zeros((2, records, mechanism.dimensions))
    first[:, 0] = 5.0
    second[:, 0], second[:, -1] = -5.0, 1e-3
    alike = np.zeros(records, dtype=np.int64)
    return GroupedVectors(first, alike, alike), GroupedVectors(second, alike, alike)


def _charged_distance(case: Case) -> int:
    """Squared distance that one release pays for, by what it really charges."""
    account = MemoryAccount(LEDGER_UNITS_PER_MU_SQUARED * 10**9)
    data = case.make(np.random.default_rng(0))
    case.mechanism.release(lambda *_batch: data, step=0, account=account, noise=NoiseSource())
    return _distance_squared(case.mechanism, account.charged_units)


def _distance_squared(mechanism: Mechanism, units: int) -> int:
    """Largest whole number d² with d²/(σ² − 9) at most `units`, allowing for the rounding up of each query."""
    return units * (mechanism.noise_stddev**2 - SMOOTHING_VARIANCE) // LEDGER_UNITS_PER_MU_SQUARED
