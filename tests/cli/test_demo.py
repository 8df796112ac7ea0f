"""`datalens demo`, with a short evaluation and few votes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from datalens_service.cli.commands import demo

Run = Callable[..., Result]


def test_it_says_where_everything_is(datalens: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = ("steps=3", "evaluation.epochs=1", "evaluation.synthetic_images=200")
    monkeypatch.setattr(demo, "_SETTINGS", (*demo._SETTINGS, *quick))
    result = datalens("demo")
    assert result.exit_code == 0, result.output
    for name in ("synthetic.npz", "synthetic.parquet", "samples.png", "report.html", "report.json"):
        assert f"demo-output/{name}" in result.stdout
        assert (tmp_path / "demo-output" / name).stat().st_size > 0
    figures = ("class averages", "noisy moments", "Trained on the real images", "Trained on the synthetic images")
    for part in ("ε spent", "of 5", "δ", "1e-5", *figures, "private: owner only"):
        assert part in result.stdout
    assert "training" in result.stderr
    assert "evaluating" in result.stderr
