"""`datalens audit` on scikit-learn's digits."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.audits import request
from datalens_service.audits.request import InversionEffort
from datalens_service.data.digits import digits

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, train = tmp_path_factory.mktemp("audit") / "digits.npz", digits().train
    np.savez(path, images=train.images, labels=train.labels)
    return path


def test_an_audit_says_what_attacks_reached_and_leaves_nothing_behind(
    datalens: Run, datalens_json: Run, data: Path, tmp_path: Path
) -> None:
    command = ("audit", "--data", data, "--epsilon", 2, "--method", "moments", "--attack", "loss_threshold")
    result = datalens_json(*command)
    (row,) = result["attacks"]
    assert row["attack"] == "loss_threshold"
    assert row["figures"]["interval"][0] <= row["figures"]["auc_allowed"] < 0.7
    assert result["audience"] == "owner"
    assert "do not pass them on" in datalens(*command).stderr
    assert list(tmp_path.iterdir()) == []


def test_gradients_are_inverted_and_the_picture_is_written_for_its_owner_alone(
    datalens: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "inversion.png"
    picture.touch()
    picture.chmod(0o644)
    monkeypatch.setattr(request, "InversionEffort", partial(InversionEffort, records=6, iterations=40, restarts=1))
    command = ("audit", "--data", data, "--epsilon", 1, "--attack", "inversion", "--method")
    outcome = datalens(*command, "dp_sgd", "--set", "architecture=linear", "--picture", picture, "--force")
    assert outcome.exit_code == 0, outcome.output
    assert "gradients with noise gaussian" in outcome.stdout
    assert "do not pass them on" in outcome.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_mode & 0o777 == 0o600
    refused = datalens(*command, "moments")
    assert refused.exit_code == 2
    assert "dp_sgd" in refused.output


def test_an_attack_that_does_not_exist_is_refused(datalens: Run, data: Path) -> None:
    outcome = datalens("audit", "--data", data, "--epsilon", 2, "--method", "moments", "--attack", "guess")
    assert outcome.exit_code == 2
    assert "likelihood_ratio" in outcome.output
