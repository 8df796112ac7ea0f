"""Synthetic images as files: drawn or sliced, and a clear word where torch is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Schema
from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.models.generators.generator import Generator
from datalens_service.subprocesses.sampling import write_prefix, write_synthetic

SCHEMA = Schema(channels=3, height=8, width=6, class_names=("a", "b"), num_units=10)
CARD = {"epsilon": 1.0}


def generator(kind: str = "gaussian") -> Generator:
    rng = np.random.default_rng(0)
    shapes = {"basis": (144, 2), "means": (2, 2), "factors": (2, 2, 2)}
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return Generator(kind, SCHEMA, {}, tensors)


def load(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def test_drawn_images_are_those_of_the_generator(tmp_path: Path) -> None:
    generator().save(tmp_path / "generator")
    write_synthetic(tmp_path / "generator", CARD, 5, "npz", 3, tmp_path / "out")
    images, labels = generator().sample(5, seed=3)
    found = load(tmp_path / "out")
    np.testing.assert_array_equal(found["train_images"], images)
    np.testing.assert_array_equal(found["train_labels"], labels)
    assert json.loads(str(found["provenance"]))["epsilon"] == 1.0


def test_named_classes_take_turns(tmp_path: Path) -> None:
    generator().save(tmp_path / "generator")
    write_synthetic(tmp_path / "generator", CARD, 5, "npz", 3, tmp_path / "out", [1])
    found = load(tmp_path / "out")
    images, _ = generator().sample(5, labels=np.ones(5, dtype=np.int64), seed=3)
    assert list(found["train_labels"]) == [1] * 5
    np.testing.assert_array_equal(found["train_images"], images)


@pytest.mark.parametrize("format", WRITERS)
def test_a_slice_is_what_drawing_fewer_gives(tmp_path: Path, format: str) -> None:
    generator().save(tmp_path / "generator")
    WRITERS["npz"].write(tmp_path / "stock", WrittenImages(*generator().sample(9), SCHEMA, CARD))
    write_prefix(tmp_path / "stock", SCHEMA, CARD, 4, format, tmp_path / "slice")
    write_synthetic(tmp_path / "generator", CARD, 4, format, 0, tmp_path / "drawn")
    assert (tmp_path / "slice").read_bytes() == (tmp_path / "drawn").read_bytes()


def test_a_slice_of_unequal_classes_has_as_many_of_each_as_are_asked_for(tmp_path: Path) -> None:
    images, labels = generator().with_class_shares((0.8, 0.2)).sample(20)
    WRITERS["npz"].write(tmp_path / "stock", WrittenImages(images, labels, SCHEMA, CARD))
    write_prefix(tmp_path / "stock", SCHEMA, CARD, 6, "npz", tmp_path / "out", classes=[0, 1])
    found = load(tmp_path / "out")
    assert list(found["train_labels"]) == [0, 1] * 3
    np.testing.assert_array_equal(found["train_images"][1::2], images[labels == 1][:3])
    with pytest.raises(InvalidInput, match="more images of a class"):
        write_prefix(tmp_path / "stock", SCHEMA, CARD, 10, "npz", tmp_path / "more", classes=[0, 1])


@pytest.mark.parametrize(("n", "format"), [(0, "npz"), (10, "npz"), (1, "gif")])
def test_bad_slices(tmp_path: Path, n: int, format: str) -> None:
    WRITERS["npz"].write(tmp_path / "stock", WrittenImages(*generator().sample(9), SCHEMA, CARD))
    with pytest.raises(InvalidInput):
        write_prefix(tmp_path / "stock", SCHEMA, CARD, n, format, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "status"), [("gaussian", 0), ("network", os.EX_UNAVAILABLE)])
def test_process_says_when_torch_is_missing(tmp_path: Path, kind: str, status: int) -> None:
    missing = tmp_path / "without" / "torch.py"
    missing.parent.mkdir()
    missing.write_text("raise ModuleNotFoundError('No module named torch', name='torch')")
    generator(kind).save(tmp_path / "generator")
    (tmp_path / "card").write_text(json.dumps(CARD))
    arguments = [tmp_path / "generator", tmp_path / "card", "2", "", "npz", "0", tmp_path / "out"]
    done = subprocess.run(
        [sys.executable, "-m", "datalens_service.subprocesses.sampling", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(missing.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert (tmp_path / "out").exists() == (status == 0)
    assert ("pip install" in done.stderr) == (status != 0)
