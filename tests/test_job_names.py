"""A job has a name from the start: what was asked for, in a few words."""

from typing import Any

import pytest

from datalens_service.methods.registered import list_methods
from datalens_service.planning.job_names import PRESET_TITLES, default_name
from datalens_service.planning.presets import PRESETS
from datalens_service.planning.requested_spec import RequestedSpec


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"epsilon": 1}, "Best-looking, ε 1"),
        ({"preset": "auto", "epsilon": 0.5}, "Best-looking, ε 0.5"),
        ({"purpose": "teach", "epsilon": 1}, "Best for training, ε 1"),
        ({"preset": "auto", "purpose": "teach", "epsilon": 10}, "Best for training, ε 10"),
        ({"preset": "auto", "purpose": "look", "epsilon": 1}, "Best-looking, ε 1"),
        ({"preset": "classifier", "epsilon": 1}, "Classifier, ε 1"),
        ({"preset": "g_pate_paper", "epsilon": 1}, "G-PATE as published, ε 1"),
        ({"method": {"name": "moments"}, "epsilon": 1e-3}, "Moments, ε 0.001"),
        ({"method": {"name": "dp_sgd"}, "epsilon": 2.25}, "DP-SGD, ε 2.25"),
    ],
)
def test_a_job_is_called_by_what_was_asked_for(asked: dict[str, Any], name: str) -> None:
    assert default_name(RequestedSpec.model_validate(asked)) == name


def test_every_preset_has_a_title() -> None:
    assert set(PRESET_TITLES) == set(PRESETS)


def test_titles_tell_presets_and_methods_apart() -> None:
    for titles in (list(PRESET_TITLES.values()), [kind.facts.title for kind in list_methods()]):
        assert len(set(titles)) == len(titles)
