"""`datalens verify` on the bundle that `datalens train` left, and on copies of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from datalens_service.cli.app import app
from datalens_service.store.bundle_verification import NOT_VERIFIED

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle beside the other files of a run."""
    folder = tmp_path_factory.mktemp("trained")
    npz, out = folder / "noise.npz", folder / "out"
    rng = np.random.default_rng(4)
    np.savez(npz, train_images=rng.integers(0, 256, (80, 8, 8), dtype=np.uint8), train_labels=np.arange(80) % 2)
    options = ["--epsilon", "1", "--method", "moments", "--images", "10", "--no-evaluation", "--json"]
    result = CliRunner().invoke(app, ["train", "--data", str(npz), "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    path = Path(json.loads(result.stdout)["files"]["privacy.json"])
    assert path == out / "privacy.json"
    return path


@pytest.fixture
def tampered(trained: Path, tmp_path: Path) -> Path:
    bundle = json.loads(trained.read_text(encoding="utf-8"))
    bundle["card"]["privacy"]["epsilon"] -= 0.01
    path = tmp_path / "tampered.json"
    path.write_text(json.dumps(bundle), encoding="utf-8")
    return path


def test_says_line_by_line_what_holds_and_what_nobody_can_show(datalens: Run, trained: Path) -> None:
    result = datalens("verify", trained)
    assert result.exit_code == 0, result.output
    shown = result.stdout.splitlines()
    checks = ["form", "chain", "totals", "card", "charges", "job", "replace one", "lifetime"]
    assert [line.split("  ")[0] for line in shown[: len(checks)]] == ["holds"] * len(checks)
    assert all(check in line for check, line in zip(checks, shown, strict=False))
    assert "by dp_accounting" in shown[5]
    assert [line.strip() for line in shown[-len(NOT_VERIFIED) :]] == list(NOT_VERIFIED)
    assert result.stderr == ""


def test_a_tampered_copy_is_1_and_the_contradiction_is_named(datalens: Run, tampered: Path) -> None:
    result = datalens("verify", tampered)
    assert result.exit_code == 1
    assert "contradiction  job " in result.stdout
    assert "Do not rely on it. job: ε of the job" in result.stdout
    assert "not checked    lifetime" in result.stdout


def test_shape_of_the_json(datalens: Run, trained: Path, tampered: Path) -> None:
    for path, holds in ((trained, True), (tampered, False)):
        result = datalens("verify", path, "--json")
        found: dict[str, Any] = json.loads(result.stdout)
        assert (result.exit_code, found["holds"]) == (0 if holds else 1, holds)
        assert set(found) == {"holds", "contradiction", "lines", "not_verified"}
        assert (found["contradiction"] is None) == holds
        assert len(found["lines"]) == 8
        assert all(set(line) == {"check", "status", "finding"} for line in found["lines"])


def test_unreadable_files_are_2(datalens: Run, tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(b"\x89PNG")
    result = datalens("verify", path, "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "invalid-input")
    assert datalens("verify", tmp_path / "missing.json").exit_code == 2
    assert datalens("verify", tmp_path).exit_code == 2


def test_without_dp_accounting_it_says_what_to_install(
    datalens: Run, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    result = datalens("verify", trained)
    assert (result.exit_code, result.stdout) == (5, "")
    assert "pip install 'datalens-service[worker]'" in result.stderr


def test_a_bundle_sends_nothing_to_the_terminal(datalens: Run, trained: Path, tmp_path: Path) -> None:
    bundle = json.loads(trained.read_text(encoding="utf-8"))
    bundle["job_id"] = "job\x1b]0;all is well\x07[bold]"
    path = tmp_path / "escape.json"
    path.write_text(json.dumps(bundle), encoding="utf-8")
    shown = datalens("verify", path).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "all is well" in shown
    assert "[bold]" in shown
