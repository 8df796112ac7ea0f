"""Classes of images that nobody names: in turn, or as frequent as declared, or as in released noisy counts."""

import numpy as np
import pytest

from datalens_service.cli.specs import SpecOptions
from datalens_service.data.dataset import Schema
from datalens_service.models.generators.class_shares import estimate_shares, take_turns


@pytest.mark.parametrize("classes", [1, 2, 3, 7, 10, 49])
def test_equal_classes_come_in_order(classes: int) -> None:
    np.testing.assert_array_equal(take_turns(500, (3.0,) * classes), np.arange(500) % classes)


def test_every_beginning_has_the_shares() -> None:
    shares = np.array([0.85, 0.0, 0.1, 0.05])
    labels = take_turns(4_000, tuple(shares))
    for count in (1, 20, 333, 4_000):
        np.testing.assert_array_equal(take_turns(count, tuple(100 * shares)), labels[:count])
        assert np.abs(np.bincount(labels[:count], minlength=4) - count * shares).max() <= 1


def test_counts_that_differ_by_their_noise_alone_are_equal() -> None:
    rng = np.random.default_rng(0)
    assert all(estimate_shares(140 + rng.normal(0, 20, 36), 20.0) is None for _ in range(20))


def test_counts_that_stand_out_from_their_noise_are_the_shares() -> None:
    shares = estimate_shares(np.array([3_322.0, 391.0, 194.0]), 10.0)
    assert shares == pytest.approx((0.85, 0.1, 0.05), abs=0.005)


def test_a_class_that_noise_hides_counts_as_large_as_the_noise() -> None:
    shares = estimate_shares(np.array([900.0, -30.0]), 20.0)
    assert shares is not None
    assert 0.015 < shares[1] < 0.03


@pytest.mark.parametrize("settings", [[], ["texture=1"]])
def test_a_job_keeps_what_is_declared_at_the_command_line(settings: list[str]) -> None:
    schema = Schema(channels=3, height=8, width=8, class_names=("a", "b"), num_units=500)
    asked = SpecOptions(1.0, preset="fast", settings=settings, class_shares="85, 15")
    assert asked.build_spec(schema).class_shares == (85.0, 15.0)
