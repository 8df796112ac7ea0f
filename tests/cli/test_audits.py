"""Audits on the command line: on this machine, and by a service with workers of its own."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.service import RunningService
from datalens_service.audits import request
from datalens_service.audits.request import InversionEffort
from datalens_service.cli.failures import ExitCode
from datalens_service.data.digits import digits

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, train = tmp_path_factory.mktemp("audit") / "digits.npz", digits().train
    np.savez(path, images=train.images[:500], labels=train.labels[:500])
    return path


@pytest.fixture
def digits_id(datalens_json: Run, service: RunningService, data: Path) -> str:
    return str(datalens_json("datasets", "upload", "--confirm-classes", data, "--epsilon", 4, *service.access)["id"])


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
    command = ("audit", "--data", data, "--epsilon", 2, "--method", "moments")
    outcome = datalens(*command, "--attack", "guess")
    assert outcome.exit_code == 2
    assert "likelihood_ratio" in outcome.output
    assert "--picture needs --attack inversion" in datalens(*command, "--picture", "x.png").output


def test_audits_are_submitted_shown_and_listed(
    datalens: Run, datalens_json: Run, service: RunningService, digits_id: str
) -> None:
    options = ("--attack", "loss_threshold", "--wait", *service.access)
    audit = datalens_json("audits", "submit", digits_id, "--method", "moments", "--epsilon", 1, *options)
    assert audit["state"] == "succeeded"
    assert [one["attack"] for one in audit["result"]["attacks"]] == ["loss_threshold"]
    shown = datalens("audits", "show", audit["id"], *service.access)
    assert "loss_threshold" in shown.stdout
    assert "do not pass them on" in shown.stderr
    assert audit["result"]["attacks"][0]["figures"]["auc_allowed"] < 0.65
    listed = datalens_json("audits", "list", *service.access)["items"]
    assert [one["id"] for one in listed] == [audit["id"]]
    assert datalens("audits", "cancel", audit["id"], *service.access).exit_code != 0


def test_inversion_is_submitted_and_its_picture_written(
    datalens: Run, datalens_json: Run, service: RunningService, digits_id: str, tmp_path: Path
) -> None:
    method = ("--method", "dp_sgd", "--set", "architecture=linear", "--epsilon", 1)
    audit = datalens_json("audits", "submit", digits_id, *method, "--attack", "inversion", "--wait", *service.access)
    assert audit["result"]["inversion"]["released"]["median"] > 0.7
    assert "raw gradients" in datalens("audits", "show", audit["id"], *service.access).stdout
    path = tmp_path / "inversion.png"
    datalens("audits", "picture", audit["id"], "--out", path, *service.access)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "arguments",
    [("ds_one",), ("--job", "job_one", "--epsilon", "1"), ("ds_one", "--job", "job_one"), ("--unprotected",), ()],
)
def test_one_target_is_named(datalens: Run, service: RunningService, arguments: tuple[str, ...]) -> None:
    result = datalens("audits", "submit", *arguments, *service.access)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "--job alone" in result.stderr
