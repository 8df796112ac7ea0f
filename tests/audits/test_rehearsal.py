"""Rehearsals on scikit-learn's digits: a model that remembers is caught, a private one is not."""

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from datalens_service.audits import audit as audit_module
from datalens_service.audits.audit import AuditSettings, take_units
from datalens_service.audits.targets import rehearse
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Dataset, Images, Labels, Split
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

SETTINGS = AuditSettings(references=3)


class Copies:
    """A model that hands out its training images: no privacy at all."""

    result = "generator"
    evaluations = ("images",)

    def __init__(self, dataset: Dataset) -> None:
        self.schema, self._train = dataset.schema, dataset.train

    def sample(self, n: int, *, labels: Labels | None = None, seed: int = 0) -> tuple[Images, Labels]:
        rows = np.arange(n) % len(self._train.labels)
        return self._train.images[rows], self._train.labels[rows]


def train_privately(method: dict[str, Any], epsilon: float) -> Any:
    def train(data: Dataset, seed: int) -> Any:
        spec = TrainingSpec.model_validate({"method": method, "epsilon": epsilon, "delta": 1e-5, "seed": seed})
        return run(spec, data, account=UnchargedAccount()).model

    return train


def test_a_generator_that_copies_its_records_is_caught(digits: Dataset) -> None:
    audit = rehearse(digits, lambda data, _seed: Copies(data), None, SETTINGS)
    assert all(row.figures.auc > 0.95 for row in audit.attacks)
    assert audit.audience == "owner"


@pytest.mark.parametrize(
    "method", [{"name": "moments"}, {"name": "dp_sgd", "architecture": "linear", "steps": 5}], ids=lambda m: m["name"]
)
def test_private_models_stay_below_what_mu_allows(digits: Dataset, method: dict[str, Any]) -> None:
    audit = rehearse(digits, train_privately(method, 1.0), mu_for_epsilon(1.0, 1e-5), SETTINGS)
    for row in audit.attacks:
        assert row.figures.auc_allowed is not None
        assert row.figures.interval[0] <= row.figures.auc_allowed


def test_the_audited_model_learns_from_a_quarter_and_never_from_those_held_out(digits: Dataset) -> None:
    trained: list[Dataset] = []

    def train(data: Dataset, _seed: int) -> Copies:
        trained.append(data)
        return Copies(data)

    named = replace(digits, train=replace(digits.train, units=np.arange(len(digits.train.labels))))
    audit = rehearse(named, train, None, SETTINGS)
    target, *references = [set(data.train.unit_ids.tolist()) for data in trained]
    assert len(target) == audit.units_per_model == len(digits.train.labels) // 4
    assert [len(units) for units in references] == [len(target)] * 3
    assert not any(target & units for units in references)


def test_single_records_are_identified_by_position_in_a_part_as_in_the_whole(digits: Dataset) -> None:
    part = take_units(digits, np.array([3, 5, 9]))
    assert part.train.unit_ids.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(part.train.images, digits.train.images[[3, 5, 9]])


def test_units_of_several_records_stay_together(digits: Dataset) -> None:
    units = np.arange(1796) // 2
    members = {"num_units": 898, "records_per_unit": 2, "classes_per_unit": 2}
    pairs = Split(digits.train.images[:1796], digits.train.labels[:1796], units)
    grouped = Dataset(digits.schema.model_copy(update=members), pairs, None, b"k" * 32)
    trained: list[Dataset] = []

    def train(data: Dataset, _seed: int) -> Copies:
        trained.append(data)
        return Copies(data)

    rehearse(grouped, train, None, SETTINGS)
    for data in trained:
        assert set(np.unique(data.train.unit_ids, return_counts=True)[1]) == {2}


def test_candidates_of_an_upload_sorted_by_class_are_whole_units_of_all_classes(digits: Dataset) -> None:
    order = np.argsort(digits.train.labels, kind="stable")[:1796]
    pairs = Split(digits.train.images[order], digits.train.labels[order], np.arange(1796) // 2)
    members = {"num_units": 898, "records_per_unit": 2, "classes_per_unit": 2}
    grouped = Dataset(digits.schema.model_copy(update=members), pairs, None, b"k" * 32)
    seen: list[Split] = []

    def measured(model: Any, candidates: Split) -> np.ndarray:
        seen.append(candidates)
        return np.zeros(len(candidates.labels))

    with mock.patch.object(audit_module, "measure_fit", measured):
        rehearse(grouped, lambda data, _seed: Copies(data), None, AuditSettings(references=2, candidates=60))
    assert set(seen[0].labels) == set(range(10))
    assert set(np.unique(seen[0].unit_ids, return_counts=True)[1]) == {2}
    assert len(seen[0].labels) == 2 * 2 * 60


def test_few_units_are_refused(digits: Dataset) -> None:
    small = Dataset(
        digits.schema.model_copy(update={"num_units": 100}),
        Split(digits.train.images[:100], digits.train.labels[:100]),
        None,
        b"k" * 32,
    )
    with pytest.raises(InvalidInput, match="at least 400"):
        rehearse(small, lambda data, _seed: Copies(data), None, SETTINGS)
