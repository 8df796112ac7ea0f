"""Detectors on what every other unit contributes: nothing of it may depend on the unit that is protected.

A sensitivity counts what one unit adds to a sum. It says nothing if that unit also moves the vectors of others: by a
mean, a norm, a count or a choice made from private records. So a job runs on neighbours, over the same noisy sums.
"""

from collections.abc import Callable
from unittest import mock

import numpy as np
import torch

from datalens_service.data.dataset import Dataset
from datalens_service.evaluation import EvaluationSettings
from datalens_service.evaluation.metrics import downstream
from datalens_service.jobs.holdout import _answers
from datalens_service.mechanisms import VoteMechanism
from datalens_service.privacy import randomness
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.training import run

from .alarm import expect
from .cases import MECHANISMS
from .contribution_cases import CASES, LARGE_CASES, ContributionCase, Neighbor
from .contribution_parts import as_bytes, split, teachers_of
from .detect_release import same_model
from .replay import Recording, Step, record


def contributions_of_others_stay_as_they_are(case: ContributionCase) -> Callable[[np.random.Generator], None]:
    """R1, R6: over the same noisy sums, another unit changes its own contribution alone, within what was charged."""

    def detect(rng: np.random.Generator) -> None:
        _compare_neighbors(case, rng)

    detect.__name__ = f"contributions of others: {case.name}"
    return detect


def contributions_stay_beyond_a_chunk_of_noise(rng: np.random.Generator) -> None:
    """The same for sums with more coordinates than the sampler draws at once (R34); noise is fresh in every chunk."""
    for case in LARGE_CASES:
        recording = _compare_neighbors(case, rng)
        sizes = [step.exact.size for step in recording.steps]
        expect(max(sizes) > randomness._CHUNK, f"{case.name}: a sum has more coordinates than a chunk")
        _fresh_in_every_chunk(case, recording, sizes.index(max(sizes)))


def what_is_not_finite_adds_nothing(_rng: np.random.Generator) -> None:
    """R1: numbers without a length have no place in a sum whose sensitivity is a length."""
    for kind in MECHANISMS:
        example = kind.example_contributions()
        sums = [example.mechanism.exact_sum(data) for data in (example.contributions, example.not_finite)]
        expect(np.array_equal(*sums), f"{example.mechanism.label()}: what is not finite adds nothing")


def answers_of_others_stay_as_they_are(rng: np.random.Generator) -> None:
    """R26: the same for accuracy on a data set that was set aside, which is measured after a job's method."""
    case = CASES[1]
    holdout = case.dataset(rng)
    generator = run(case.spec, case.dataset(rng), account=UnchargedAccount()).generator
    settings, network = EvaluationSettings(synthetic_images=10), _HairTrigger()
    with mock.patch.object(downstream, "train_network", return_value=network):
        before = _answers(generator, holdout, settings, "cpu")
        for neighbor in case.neighbors(rng, holdout):
            after = _answers(generator, neighbor.dataset, settings, "cpu")
            others = [as_bytes(split(answers, neighbor.unit, set())[0]) for answers in (before, after)]
            expect(others[0] == others[1], "whether other units are labelled correctly does not depend on a unit")


class _HairTrigger(torch.nn.Module):
    """A classifier that gives other labels to images that differ a little."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        numbers = torch.arange(1, 1 + images[0].numel(), dtype=torch.float64)
        turns = (images.flatten(1) * numbers).sum(dim=1, keepdim=True)
        return torch.cos(10 * turns + torch.arange(3))


def _compare_neighbors(case: ContributionCase, rng: np.random.Generator) -> Recording:
    dataset = case.dataset(rng)
    first = record(case.spec, dataset)
    for neighbor in case.neighbors(rng, dataset):
        second = record(case.spec, neighbor.dataset, first)
        _same_job(case, first, second)
        for before, after in zip(first.steps, second.steps, strict=True):
            _others_unchanged(case, neighbor, (dataset, before), (neighbor.dataset, after))
            _within_the_charge(case, neighbor.relation, before, after)
    return first


def _fresh_in_every_chunk(case: ContributionCase, recording: Recording, number: int) -> None:
    step = recording.steps[number]
    noise = (recording.account.replay(number) - step.exact).ravel() / step.mechanism.noise_stddev
    first, rest = noise[: randomness._CHUNK], noise[randomness._CHUNK :]
    expect(0.9 < rest.std() < 1.1, f"{case.name}: coordinates beyond a chunk get noise of its scale")
    alike = np.count_nonzero(first[: len(rest)] == rest) / len(rest)
    expect(alike < 0.1, f"{case.name}: noise does not repeat after a chunk")


def _same_job(case: ContributionCase, first: Recording, second: Recording) -> None:
    """All that leaves a job: its charges, its releases and its models."""
    expect(first.account.charges == second.account.charges, f"{case.name}: charges do not depend on records")
    same = same_model(first.result.model, second.result.model)
    expect(same, f"{case.name}: the released model depends on records through noisy sums only")
    figures = [recording.result.extras.individual for recording in (first, second)]
    expect(figures[0] == figures[1], f"{case.name}: figures beside it follow from noisy sums")
    for before, after in zip(first.steps, second.steps, strict=True):
        expect(before.mechanism == after.mechanism, f"{case.name}: mechanisms do not depend on records")


def _others_unchanged(
    case: ContributionCase, neighbor: Neighbor, before: tuple[Dataset, Step], after: tuple[Dataset, Step]
) -> None:
    """Contributions without the unit are equal bit by bit, and every sum is theirs and the unit's."""
    label = f"{case.name}, {before[1].mechanism.label()}, {neighbor.relation.value}"
    teachers = {
        teacher for dataset, _ in (before, after) for teacher in teachers_of(case.method, dataset, neighbor.unit)
    }
    parts = [split(step.contributions, neighbor.unit, teachers) for _, step in (before, after)]
    same = as_bytes(parts[0][0]) == as_bytes(parts[1][0])
    expect(same, f"{label}: what other units contribute does not depend on a unit")
    sums = [step.mechanism.exact_sum(others) for (_, step), (others, _) in zip((before, after), parts, strict=True)]
    expect(np.array_equal(*sums), f"{label}: nor does the sum of all other units")
    for (_, step), (_, unit), others in zip((before, after), parts, sums, strict=True):
        together = others + step.mechanism.exact_sum(unit)
        expect(np.array_equal(step.exact, together), f"{label}: what gets noise is the sum over units")


def _within_the_charge(case: ContributionCase, relation: NeighboringRelation, before: Step, after: Step) -> None:
    """The distance of two sums, in exact integers: per query and of all queries that one unit may influence."""
    mechanism = before.mechanism
    label = f"{case.name}, {mechanism.label()}, {relation.value}"
    queries = mechanism.images if isinstance(mechanism, VoteMechanism) else 1
    difference = (before.exact - after.exact).reshape(queries, -1)
    squared = [sum(value * value for value in row[row != 0].tolist()) for row in difference]
    allowed = mechanism.sensitivity_squared(relation)
    expect(max(squared) <= allowed, f"{label}: sums of neighbours stay within the sensitivity")
    influenced = mechanism.queries_per_unit(relation)
    expect(sum(squared) <= allowed * influenced, f"{label}: sums of neighbours stay within the charge")
    expect(sum(part > 0 for part in squared) <= influenced, f"{label}: a unit influences the queries it is charged for")
