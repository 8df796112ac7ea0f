"""Tiles of two photographs, 224 pixels of colour on a side, from a file to images, report and card."""

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from datalens_service.methods.sums import record_sums

Json = Callable[..., Any]
EACH, FREQUENCIES, SIDE = 8, 300, 224


@pytest.fixture(autouse=True)
def _few_frequencies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for the products of 2,048 numbers takes seconds; all else is as it is."""
    monkeypatch.setattr(record_sums, "_FREQUENCIES", FREQUENCIES)


def photographs() -> Iterator[np.ndarray]:
    """A temple under the sky and a flower, as scikit-learn brings them; it takes seconds to import."""
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    for name in ("china", "flower"):
        with Image.open(Path(spec.submodule_search_locations[0], "datasets", "images", f"{name}.jpg")) as image:
            yield np.asarray(image)


def tiles(path: Path) -> Path:
    """Square parts of the photographs."""
    images, rng = [], np.random.default_rng(0)
    for photograph in photographs():
        rows, columns = (rng.integers(0, length - SIDE + 1, EACH) for length in photograph.shape[:2])
        images += [photograph[y : y + SIDE, x : x + SIDE] for y, x in zip(rows, columns, strict=True)]
    np.savez(path, images=np.stack(images), labels=np.repeat([0, 1], EACH), class_names=["temple", "flower"])
    return path


def test_photographs_are_learned_at_a_working_size_that_is_said(datalens_json: Json, tmp_path: Path) -> None:
    data = tiles(tmp_path / "tiles.npz")
    settings = ("--set", "subspace_dimensions=8", "--set", "center=0.5")
    spec = ("--data", data, "--epsilon", 20, "--delta", 1e-3, "--method", "moments", *settings)
    (sentence,) = datalens_json("plan", *spec)["warnings"]
    assert re.search(rf"{FREQUENCIES} numbers instead of {3 * SIDE**2:,}.* 14 by 14 pixels", sentence)
    files = datalens_json("train", *spec, "--confirm-classes", "--out", "out", "--images", 8, "--no-evaluation")[
        "files"
    ]
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
