"""Figures by class and by part of the records are means of the right records."""

import numpy as np
import pytest

from benchmarks.individual import _by_group, _by_part, _norms_by_part


def test_classes_stand_in_the_order_of_their_epsilon_beside_their_own_loss() -> None:
    labels = np.array([0, 0, 1, 1, 2, 2])
    epsilons, losses = np.array([1.0, 3.0, 5.0, 7.0, 0.0, 1.0]), np.array([0.2, 0.4, 0.9, 1.1, 0.0, 0.2])
    found = _by_group(epsilons, losses, labels, ("cat", "dog", "ship"), {"animals": ("cat", "dog")})
    means = [(one["class"], one["epsilon"], one["loss"]) for one in found["classes"]]
    assert means == [("dog", 6.0, 1.0), ("cat", 2.0, 0.3), ("ship", 0.5, 0.1)]
    assert [(one["group"], one["records"], one["epsilon"]) for one in found["groups"]] == [("animals", 4, 4.0)]
    assert found["pearson_over_classes"] == pytest.approx(np.corrcoef([2, 6, 0.5], [0.3, 1.0, 0.1])[0, 1])


def test_parts_are_cut_in_the_order_of_losses_and_of_norms() -> None:
    epsilons, losses = np.array([4.0, 1.0, 3.0, 2.0]), np.array([40.0, 10.0, 30.0, 20.0])
    assert _by_part(losses, epsilons, 2) == [{"loss": 15.0, "epsilon": 1.5}, {"loss": 35.0, "epsilon": 3.5}]
    levels = np.repeat(np.arange(10)[:, None], 4, axis=1) * np.array([10, 1, 5, 2])
    shorter, longer = _norms_by_part(levels, 2)
    assert shorter == pytest.approx([0.015 * step for step in range(10)])
    assert longer == pytest.approx([0.075 * step for step in range(10)])
