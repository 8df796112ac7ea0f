"""`datalens audit` on scikit-learn's digits."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from datalens_service.audits import request
from datalens_service.audits.request import InversionEffort
from datalens_service.cli.app import app


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    path = tmp_path_factory.mktemp("audit") / "digits.npz"
    np.savez(path, images=(bunch.images * 15).astype(np.uint8), labels=bunch.target)
    return path


def test_an_audit_says_what_attacks_reached_and_leaves_nothing_behind(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--epsilon", "2", "--method", "moments", "--attack", "loss_threshold", "--json"]
    outcome = CliRunner().invoke(app, ["audit", "--data", str(digits), *arguments])
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout)
    (row,) = result["attacks"]
    assert row["attack"] == "loss_threshold"
    assert row["figures"]["interval"][0] <= row["figures"]["auc_allowed"] < 0.7
    assert result["audience"] == "owner"
    assert "do not pass them on" in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_gradients_are_inverted_and_the_picture_is_written_for_its_owner_alone(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "inversion.png"
    picture.touch()
    picture.chmod(0o644)
    monkeypatch.setattr(request, "InversionEffort", partial(InversionEffort, records=6, iterations=40, restarts=1))
    arguments = ["--method", "dp_sgd", "--set", "architecture=linear", "--attack", "inversion"]
    arguments += ["--picture", str(picture), "--force"]
    outcome = CliRunner().invoke(app, ["audit", "--data", str(digits), "--epsilon", "1", *arguments])
    assert outcome.exit_code == 0, outcome.output
    assert "gradients with noise gaussian" in outcome.stdout
    assert "do not pass them on" in outcome.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_mode & 0o777 == 0o600
    refused = CliRunner().invoke(
        app, ["audit", "--data", str(digits), "--epsilon", "1", "--method", "moments", "--attack", "inversion"]
    )
    assert refused.exit_code == 2
    assert "dp_sgd" in refused.output


def test_an_attack_that_does_not_exist_is_refused(digits: Path) -> None:
    arguments = ["--epsilon", "2", "--method", "moments", "--attack", "guess"]
    outcome = CliRunner().invoke(app, ["audit", "--data", str(digits), *arguments])
    assert outcome.exit_code == 2
    assert "likelihood_ratio" in outcome.output
