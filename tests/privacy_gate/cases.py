"""Every registered mechanism with inputs, neighbours of them, and the worst neighbours there are."""

import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from datalens_service.mechanisms import (
    AccuracyCount,
    AnyMechanism,
    CellVotes,
    ClippedRows,
    CountSketch,
    CrossProductSum,
    GradientChunk,
    GradientSum,
    Histogram,
    KLevel,
    LabelScores,
    Mechanism,
    OuterProductSum,
    TopAgg,
    VectorSum,
    VoteMechanism,
)
from datalens_service.mechanisms.accuracy import Answers
from datalens_service.mechanisms.base import Example
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.mechanisms.cross_product import OuterProductFactors
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.privacy.accounting import NeighboringRelation

ZERO_OUT, REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE
UNITS, TEACHERS, IMAGES, PIXELS = 40, 12, 4, 30
NUM_TEACHERS = TEACHERS + 4
"""What a vote case declares; inputs have 12, so that a test can add four broken ones."""

Neighbor = Callable[[np.random.Generator, Any], Any]


@dataclass(frozen=True)
class Case:
    """One mechanism and the data it is tried on.

    Attributes:
        mechanism: With small public parameters.
        make: Draws an input.
        neighbors: Draws a neighbour of an input, per relation.
        worst: Two neighbouring inputs (zero-out) that are as far apart in one query as any.
        tightness: Part of the declared sensitivity that `worst` reaches at least.
    """

    mechanism: Mechanism
    make: Callable[[np.random.Generator], Any]
    neighbors: dict[NeighboringRelation, Neighbor]
    worst: tuple[Any, Any]
    tightness: Fraction = Fraction(1)

    @property
    def name(self) -> str:
        """What distinguishes the case, for test reports."""
        told = {"stochastic", "classes_voted_apart", "classes_per_unit", "levels", "row_norm_squared", "rows"}
        told |= {"num_groups", "records_per_unit", "clip_norm", "scores", "weights"}
        parameters = self.mechanism.model_dump(include=told, exclude_none=True)
        return " ".join([self.mechanism.label(), *(f"{key}={value}" for key, value in parameters.items())])


def gradients(rng: np.random.Generator) -> list[torch.Tensor]:
    """One block; half of the teachers agree, as teachers of one class do."""
    own = rng.standard_normal((TEACHERS, IMAGES, PIXELS))
    own[::2] += rng.standard_normal((IMAGES, PIXELS))
    return [torch.tensor(own, dtype=torch.float32)]


def class_pure_gradients(rng: np.random.Generator) -> list[torch.Tensor]:
    """Teachers of the first class vote on the first half of the images, the others on the second."""
    block = gradients(rng)[0]
    block[: TEACHERS // 2, IMAGES // 2 :] = 0
    block[TEACHERS // 2 :, : IMAGES // 2] = 0
    return [block]


def other_teacher(rng: np.random.Generator, data: list[torch.Tensor]) -> list[torch.Tensor]:
    """One teacher saw another shard: its gradients on the images it votes on are arbitrary."""
    changed = data[0].clone()
    teacher = int(rng.integers(TEACHERS))
    row = changed[teacher]
    voted_on = (row != 0).any(dim=-1, keepdim=True)
    wild = [
        -row,
        torch.full_like(row, float("nan")),
        torch.full_like(row, float("inf")),
        torch.tensor(rng.standard_normal(tuple(row.shape)), dtype=torch.float32) * 1e30,
        torch.zeros_like(row),
    ]
    changed[teacher] = torch.where(voted_on, wild[int(rng.integers(len(wild)))], torch.zeros_like(row))
    return [changed]


def relabelled(rng: np.random.Generator, data: list[torch.Tensor]) -> list[torch.Tensor]:
    """One teacher of each class saw another shard."""
    changed = data[0].clone()
    for teacher in (int(rng.integers(TEACHERS // 2)), int(rng.integers(TEACHERS // 2, TEACHERS))):
        changed[teacher] *= -1
    return [changed]


def vectors(groups: int, dimensions: int, records_per_unit: int = 1) -> Callable[[np.random.Generator], GroupedVectors]:
    """Records of all lengths, most too long."""

    def draw(rng: np.random.Generator) -> GroupedVectors:
        values = rng.standard_normal((UNITS, dimensions)) * rng.choice([1e-3, 0.3, 5.0], size=(UNITS, 1))
        return GroupedVectors(values, rng.integers(groups, size=UNITS), np.arange(UNITS) // records_per_unit)

    return draw


def factors(left: int, right: int, records_per_unit: int = 1) -> Callable[[np.random.Generator], OuterProductFactors]:
    """Pairs of vectors of all lengths, most too long."""

    def draw(rng: np.random.Generator) -> OuterProductFactors:
        pairs = (vectors(1, size, records_per_unit)(rng) for size in (left, right))
        return OuterProductFactors(*(pair.values for pair in pairs), np.arange(UNITS) // records_per_unit)

    return draw


def emptied(rng: np.random.Generator, data: Any) -> Any:
    """The rows of a unit vanish from every sum."""
    keep = data.units != rng.choice(data.units)
    return type(data)(*(array[keep] for array in data))


def other_factors(rng: np.random.Generator, data: OuterProductFactors) -> OuterProductFactors:
    """One factor of a unit's records turns round, or both become arbitrary and long."""
    left, right = data.left.copy(), data.right.copy()
    rows = np.flatnonzero(data.units == rng.choice(data.units))
    if rng.random() < 0.5:
        right[rows] *= -100.0
    else:
        left[rows], right[rows] = (
            50 * rng.standard_normal(left[rows].shape),
            50 * rng.standard_normal(right[rows].shape),
        )
    return OuterProductFactors(left, right, data.units)


def replaced(rng: np.random.Generator, data: GroupedVectors) -> GroupedVectors:
    """Other records, often of another class, longer or the other way round, sometimes many more of them."""
    values, groups, units = data.values.copy(), data.groups.copy(), data.units
    unit = rng.choice(units)
    rows = np.flatnonzero(units == unit)
    values[rows] *= rng.choice([-1.0, 1.0]) * rng.choice([1.0, 100.0])
    if rng.random() < 0.5:
        groups[rows] = rng.integers(groups.max() + 1)
    more = np.full(int(rng.choice([0, 9])), rows[0])
    together = (np.concatenate([array, array[more]]) for array in (values, groups, units))
    return GroupedVectors(*together)


def gradient_rows(dimensions: int, records_per_unit: int = 1) -> Callable[[np.random.Generator], list[GradientChunk]]:
    """Gradients of all lengths, most too long, in two chunks of whole units."""

    def draw(rng: np.random.Generator) -> list[GradientChunk]:
        values = rng.standard_normal((UNITS, dimensions)) * rng.choice([1e-3, 0.3, 5.0], size=(UNITS, 1))
        units = torch.arange(UNITS) // records_per_unit
        rows, half = torch.tensor(values, dtype=torch.float32), UNITS // 2
        return [GradientChunk(rows[:half], units[:half]), GradientChunk(rows[half:], units[half:])]

    return draw


def gradient_emptied(rng: np.random.Generator, data: list[GradientChunk]) -> list[GradientChunk]:
    """The rows of a unit vanish."""
    unit = int(rng.choice(torch.cat([chunk.units for chunk in data]).numpy()))
    remaining = [chunk.units != unit for chunk in data]
    return [GradientChunk(*(part[keep] for part in chunk)) for chunk, keep in zip(data, remaining, strict=True)]


def gradient_replaced(rng: np.random.Generator, data: list[GradientChunk]) -> list[GradientChunk]:
    """A unit's gradients turn round or become arbitrary, and sometimes it has many more records."""
    chunk = data[0]
    rows = torch.nonzero(chunk.units == int(rng.choice(chunk.units.numpy()))).squeeze(1)
    other = -chunk.gradients[rows] * float(rng.choice([1.0, 100.0]))
    if rng.random() < 0.5:
        other = 50 * torch.tensor(rng.standard_normal(other.shape), dtype=torch.float32)
    before, after = int(rows[0]), int(rows[-1]) + 1
    repeats = int(rng.choice([1, 9]))
    gradients = torch.cat([chunk.gradients[:before], other.repeat(repeats, 1), chunk.gradients[after:]])
    units = torch.cat([chunk.units[:before], chunk.units[rows].repeat(repeats), chunk.units[after:]])
    return [GradientChunk(gradients, units), *data[1:]]


def one_long_gradient(dimensions: int, records_per_unit: int = 1) -> tuple[list[GradientChunk], list[GradientChunk]]:
    """A unit of gradients that are too long and alike, and its absence."""
    rows = torch.zeros(1 + records_per_unit, dimensions)
    rows[1:, 0] = 7.0
    units = torch.arange(len(rows)).clamp(max=1)
    first, second = (GradientChunk(rows[part], units[part]) for part in (slice(0, 1), slice(1, None)))
    return [first, second], [first]


def all_votes_flip(dimensions: int = PIXELS) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """A teacher whose every vote flips, on one image only."""
    base = torch.zeros(TEACHERS, IMAGES, dimensions)
    waves = torch.sin(torch.arange(1, dimensions + 1))
    base[4, 1] = waves / waves.abs().max()
    return [base], [-base]


def one_long_vector(dimensions: int, records_per_unit: int = 1) -> tuple[GroupedVectors, GroupedVectors]:
    """A unit of records that are too long and alike, and its absence."""
    values = np.zeros((1 + records_per_unit, dimensions))
    values[1:, 0] = 7.0
    groups, units = np.zeros(len(values), dtype=np.int64), np.minimum(np.arange(len(values)), 1)
    return GroupedVectors(values, groups, units), GroupedVectors(values[:1], groups[:1], units[:1])


def one_long_pair(mechanism: CrossProductSum) -> tuple[OuterProductFactors, OuterProductFactors]:
    """The same for two factors."""
    sizes = (mechanism.left_dimensions, mechanism.right_dimensions)
    pairs = zip(*(one_long_vector(size, mechanism.records_per_unit) for size in sizes), strict=True)
    there, bare = (OuterProductFactors(left.values, right.values, left.units) for left, right in pairs)
    return there, bare


def vote(kind: type[VoteMechanism], **changes: object) -> VoteMechanism:
    """A vote mechanism for the inputs above."""
    common: dict[str, Any] = {
        "num_teachers": NUM_TEACHERS, "images": IMAGES, "dimensions": PIXELS, "clip": 1.0,
        "stochastic": False, "threshold": "none", "noise_stddev": 500,
    }  # fmt: skip
    return kind.model_validate(common | changes)


def _votes(
    mechanism: VoteMechanism,
    make: Callable[[np.random.Generator], Any] = gradients,
    replaced_by: Neighbor = other_teacher,
    tightness: Fraction = Fraction(1),
) -> Case:
    # A unit of several classes has a teacher in each: emptying it moves them all.
    emptied_unit = replaced_by if mechanism.classes_per_unit > 1 else other_teacher
    neighbors = {ZERO_OUT: emptied_unit, REPLACE_ONE: replaced_by}
    return Case(mechanism, make, neighbors, all_votes_flip(mechanism.dimensions), tightness)


def answers(rng: np.random.Generator) -> Answers:
    """Units of one to three records, in any order."""
    units = rng.permutation(np.repeat(np.arange(UNITS), rng.integers(1, 4, size=UNITS)))
    return Answers(rng.random(len(units)) < 0.7, units)


def answers_replaced(rng: np.random.Generator, data: Answers) -> Answers:
    """Other records, sometimes many more of them."""
    unit, more = rng.choice(data.units), int(rng.choice([0, 9]))
    right = np.where(data.units == unit, ~data.right, data.right)
    added = np.full(more, bool(rng.integers(2)))
    return Answers(np.concatenate([right, added]), np.concatenate([data.units, np.full(more, unit)]))


def votes_for_cells(rng: np.random.Generator) -> Votes:
    """Units of one to three records, in any order; some vote for no cell."""
    units = rng.permutation(np.repeat(np.arange(UNITS), rng.integers(1, 4, size=UNITS)))
    return Votes(rng.integers(-1, 6, size=len(units)), rng.integers(3, size=len(units)), units)


def votes_replaced(rng: np.random.Generator, data: Votes) -> Votes:
    """Other cells and classes, sometimes many more records."""
    unit, more = rng.choice(data.units), int(rng.choice([0, 9]))
    added = Votes(rng.integers(6, size=more), rng.integers(3, size=more), np.full(more, unit))
    moved = data.units == unit
    cells = np.where(moved, (data.cells + rng.integers(1, 5)) % 5, data.cells)
    groups = np.where(moved, rng.integers(3, size=len(moved)), data.groups)
    return Votes(*map(np.concatenate, zip(Votes(cells, groups, data.units), added, strict=True)))


def one_unit(there: Answers | Votes) -> tuple[Any, Any]:
    """Records of which the second unit has three, and its absence."""
    return there, type(there)(*(array[there.units != 1] for array in there))


_UNITS = np.array([0, 1, 1, 1, 2])


def _one_pixel(rng: np.random.Generator) -> list[torch.Tensor]:
    return [gradients(rng)[0][..., :1]]


_MIND = torch.zeros(TEACHERS, IMAGES, 1)
_MIND[4, 1], _MIND[4, 2] = 1.0, -1.0
"""A teacher that finds two images real and not real."""


def _moments(mechanism: VectorSum | OuterProductSum) -> Case:
    # Tight up to the allowance for rounding to the grid.
    make = vectors(mechanism.num_groups, mechanism.dimensions, mechanism.records_per_unit)
    worst = one_long_vector(mechanism.dimensions, mechanism.records_per_unit)
    return Case(mechanism, make, {ZERO_OUT: emptied, REPLACE_ONE: replaced}, worst, Fraction(99, 100))


def _gradients(mechanism: GradientSum, records_per_unit: int = 1) -> Case:
    neighbors: dict[NeighboringRelation, Neighbor] = {ZERO_OUT: gradient_emptied, REPLACE_ONE: gradient_replaced}
    make = gradient_rows(mechanism.dimensions, records_per_unit)
    worst = one_long_gradient(mechanism.dimensions, records_per_unit)
    return Case(mechanism, make, neighbors, worst, Fraction(99, 100))


def _cross_products(mechanism: CrossProductSum) -> Case:
    make = factors(mechanism.left_dimensions, mechanism.right_dimensions, mechanism.records_per_unit)
    neighbors = {ZERO_OUT: emptied, REPLACE_ONE: other_factors}
    return Case(mechanism, make, neighbors, one_long_pair(mechanism), Fraction(99, 100))


def _example(example: Example) -> Case:
    """What a mechanism carries itself; its neighbours are the two that it names."""

    def swapped(_rng: np.random.Generator, data: Any) -> Any:
        return example.neighbor if data is example.contributions else example.contributions

    both = {ZERO_OUT: swapped, REPLACE_ONE: swapped}
    worst = (example.contributions, example.neighbor)
    return Case(example.mechanism, lambda _rng: example.contributions, both, worst, example.tightness)


MECHANISMS: tuple[type[Mechanism], ...] = typing.get_args(AnyMechanism)
EXAMPLES = [_example(mechanism.example_contributions()) for mechanism in MECHANISMS]

CASES = [
    _votes(vote(TopAgg, top_k=8)),
    _votes(vote(TopAgg, top_k=8, stochastic=True, clip=0.5)),
    _votes(vote(TopAgg, top_k=8, classes_voted_apart=2), class_pure_gradients, relabelled),
    _votes(vote(TopAgg, top_k=8, classes_voted_apart=2, classes_per_unit=2), class_pure_gradients, relabelled),
    _votes(vote(KLevel, levels=2)),
    _votes(vote(KLevel, levels=17, dimensions=1), _one_pixel),
    # No gradient has all its rotated coordinates at the outermost level.
    _votes(vote(KLevel, levels=17, stochastic=True), tightness=Fraction(1, 10)),
    _votes(vote(KLevel, levels=17, row_norm_squared=900, stochastic=True, clip=0.1), tightness=Fraction(1, 2)),
    _votes(vote(CountSketch, top_k=8, rows=5, columns=512)),
    _votes(vote(CountSketch, top_k=20, rows=3, columns=7, stochastic=True), tightness=Fraction(1, 2)),
    _votes(vote(Histogram, projections=5, bins=4)),
    _votes(vote(Histogram, projections=5, bins=4, classes_voted_apart=2), class_pure_gradients, relabelled),
    _votes(vote(ClippedRows, grid=64), tightness=Fraction(4, 5)),
    _votes(vote(LabelScores, scores="share", dimensions=1), _one_pixel, tightness=Fraction(1, 5)),
    replace(_votes(vote(LabelScores, scores="relative", dimensions=1), _one_pixel), worst=([_MIND], [-_MIND])),
    _moments(VectorSum(num_groups=3, dimensions=9, count_weight=683, noise_stddev=20_000)),
    _moments(OuterProductSum(num_groups=3, dimensions=9, noise_stddev=10_000_000)),
    _moments(OuterProductSum(num_groups=1, dimensions=9, noise_stddev=10_000_000)),
    _moments(OuterProductSum(num_groups=1, dimensions=9, weights=(5, 7), noise_stddev=60_000_000)),
    _moments(VectorSum(num_groups=3, dimensions=9, count_weight=683, records_per_unit=4, noise_stddev=80_000)),
    _moments(OuterProductSum(num_groups=3, dimensions=9, records_per_unit=4, noise_stddev=40_000_000)),
    Case(
        AccuracyCount(num_units=UNITS, noise_stddev=100),
        answers,
        {ZERO_OUT: emptied, REPLACE_ONE: answers_replaced},
        one_unit(Answers(_UNITS == 1, _UNITS)),
    ),
    Case(
        CellVotes(num_groups=3, cells=5, noise_stddev=10_000),
        votes_for_cells,
        {ZERO_OUT: emptied, REPLACE_ONE: votes_replaced},
        one_unit(Votes(np.array([2, 1, 1, 1, 3]), np.zeros(5, dtype=np.int64), _UNITS)),
    ),
    _cross_products(CrossProductSum(left_dimensions=9, right_dimensions=5, noise_stddev=10_000_000)),
    _cross_products(
        CrossProductSum(left_dimensions=9, right_dimensions=5, records_per_unit=4, noise_stddev=40_000_000)
    ),
    _gradients(GradientSum(dimensions=9, clip_norm=0.5, noise_stddev=400_000)),
    _gradients(GradientSum(dimensions=9, clip_norm=3.0, grid=2048, noise_stddev=20_000), records_per_unit=4),
    *EXAMPLES,
]


def distances_squared(mechanism: Mechanism, first: Any, second: Any) -> tuple[int, int]:
    """Squared L2 distance of two inputs' sums: of the query that differs most, and of the whole release."""
    difference = mechanism.exact_sum(first) - mechanism.exact_sum(second)
    queries = difference.reshape(mechanism.images if isinstance(mechanism, VoteMechanism) else 1, -1)
    squared = (queries.astype(object) ** 2).sum(axis=1)
    return int(squared.max()), int(squared.sum())
