"""Audits on the command line, by a service with workers of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.service import RunningService
from datalens_service.cli.failures import ExitCode
from datalens_service.data.digits import digits

Run = Callable[..., Any]


@pytest.fixture
def digits_id(datalens_json: Run, service: RunningService, tmp_path: Path) -> str:
    train = digits().train
    np.savez(tmp_path / "digits.npz", images=train.images[:500], labels=train.labels[:500])
    uploaded = datalens_json(
        "datasets", "upload", "--confirm-classes", tmp_path / "digits.npz", "--epsilon", 4, *service.access
    )
    return str(uploaded["id"])


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
