"""Images of colour, 224 pixels on a side, from a file to images, report and card."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.methods.sums import record_sums

Json = Callable[..., Any]
EACH, FREQUENCIES, SIDE = 8, 300, 224


@pytest.fixture(autouse=True)
def _few_frequencies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for the products of 2,048 numbers takes seconds; all else is as it is."""
    monkeypatch.setattr(record_sums, "_FREQUENCIES", FREQUENCIES)


def test_large_images_are_learned_at_a_working_size_that_is_said(datalens_json: Json, tmp_path: Path) -> None:
    data, pixels = (
        tmp_path / "large.npz",
        np.random.default_rng(0).integers(0, 256, (2 * EACH, SIDE, SIDE, 3), np.uint8),
    )
    np.savez(data, images=pixels, labels=np.arange(2 * EACH) % 2)
    settings = ("--set", "subspace_dimensions=8", "--set", "center=0.5")
    spec = ("--data", data, "--epsilon", 20, "--delta", 1e-3, "--method", "moments", *settings)
    (sentence,) = datalens_json("plan", *spec)["warnings"]
    assert re.search(rf"{FREQUENCIES} numbers instead of {3 * SIDE**2:,}.* 14 by 14 pixels", sentence)
    run = ("train", *spec, "--confirm-classes", "--out", "out", "--synthetic-images", 8, "--no-evaluation")
    files = datalens_json(*run)["files"]
    with np.load(tmp_path / files["synthetic.npz"], allow_pickle=False) as synthetic:
        images, labels = synthetic["train_images"], synthetic["train_labels"]
    assert images.shape == (8, SIDE, SIDE, 3)
    assert set(labels) == {0, 1}
    assert images.std(axis=(1, 2, 3)).min() > 0
    for name in ("report.json", "report-releasable.json"):
        assert sentence in json.loads((tmp_path / files[name]).read_text())["summary"]
    assert json.loads((tmp_path / files["card.json"]).read_text())["working_size"] == sentence


def test_small_images_are_summed_whole(datalens_json: Json, npz: Path) -> None:
    assert datalens_json("plan", "--data", npz, "--epsilon", 2, "--method", "moments")["warnings"] == []
