"""Estimated norms as clipping bounds: what is charged covers what a record adds."""

import numpy as np
import pytest

from benchmarks.features import as_bytes
from benchmarks.instances import (
    LEVELS,
    PUBLIC,
    RULES,
    SINGLE,
    Charged,
    Layer,
    Rule,
    Setting,
    as_rows,
    epsilons,
    train,
    worst,
)

SETTING = Setting(probability=0.25, noise_multiplier=2.0, steps=12, rate=0.2)


def run(rule: Rule, seed: int = 0) -> Charged:
    rng = np.random.default_rng(7)
    images, labels = rng.integers(256, size=(300, 4, 4, 1), dtype=np.uint8), np.arange(300) % 3
    return train(Layer(as_rows(images), labels), SETTING, rule, seed)


def lowest(table: np.ndarray) -> np.ndarray:
    """(records,) smallest level of each."""
    return (table > 0).argmax(axis=1)


def test_one_bound_for_all_is_charged_at_every_step_and_costs_the_worst() -> None:
    charged = run(SINGLE)
    assert (charged.bounds[:, LEVELS] == SETTING.steps).all()
    assert charged.above == 0
    assert epsilons(SETTING, charged.bounds)[0] == pytest.approx(worst(SETTING))


def test_bounds_that_are_computed_at_every_step_are_the_norms() -> None:
    always = Rule("at every step", round(1 / SETTING.probability), when_drawn=False)
    charged = run(always)
    np.testing.assert_array_equal(charged.bounds, charged.actual)
    assert len(np.unique(lowest(charged.actual))) > 10


@pytest.mark.parametrize("rule", RULES.values())
def test_the_first_step_is_charged_with_the_bound_that_clipped_it(rule: Rule) -> None:
    """Unless all norms were computed before it, that is C."""
    charged = run(rule)
    if rule.per_pass == 0:
        assert (charged.bounds[:, LEVELS] >= 1).all()
        # In the printed order a record that was drawn first is charged its new, smaller norm for a step that took C.
        assert (epsilons(SETTING, charged.as_printed) <= epsilons(SETTING, charged.bounds) + 1e-12).mean() > 0.5
        assert (charged.as_printed[:, LEVELS] < charged.bounds[:, LEVELS]).any()
    assert (charged.bounds.sum(axis=1) == SETTING.steps).all()


def test_on_a_public_schedule_nothing_follows_from_who_was_drawn() -> None:
    """Bounds before the first step, which other coins follow."""
    rule = RULES[PUBLIC]
    first = [train(run(SINGLE).layer, SETTING._replace(steps=1, rate=0.0), rule, seed).bounds for seed in (0, 1)]
    np.testing.assert_array_equal(*first)


def test_features_become_bytes_above_the_middle_whatever_their_length() -> None:
    features = np.array([[0.0, 3.0, 4.0], [0.0, 0.03, 0.04], [0.0, 0.0, 0.0]], dtype=np.float32)
    np.testing.assert_array_equal(as_bytes(features), [[128, 255, 255], [128, 255, 255], [128, 128, 128]])
    fine = np.full((1, 100), 0.5, dtype=np.float32)
    np.testing.assert_array_equal(as_bytes(fine), np.full((1, 100), round(127.5 + 127.5 * 0.4)))
