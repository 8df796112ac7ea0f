"""`datalens train --public-data`: training starts from public images, on one machine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

Run = Callable[..., Result]
Json = Callable[..., Any]

DP_SGD = (
    *("--method", "dp_sgd", "--set", "architecture=linear", "--set", "steps=2", "--epsilon", 2, "--delta", 1e-3),
    *("--out", "out", "--no-evaluation"),
)


@pytest.fixture
def public(tmp_path: Path) -> Path:
    return images(tmp_path / "open.npz", 8)


def images(path: Path, side: int) -> Path:
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 256, (40, side, side), dtype=np.uint8)
    np.savez(path, images=pixels, labels=np.arange(40) % 2)
    return path


def test_a_run_starts_from_a_public_file_and_says_so(
    datalens: Run, datalens_json: Json, npz: Path, public: Path, tmp_path: Path
) -> None:
    command = ("train", "--confirm-classes", "--data", npz, *DP_SGD)
    outcome = datalens_json(*command, "--public-data", public, "--public-license", "CC0, by all")
    assert outcome["state"] == "succeeded"
    report = json.loads((tmp_path / outcome["files"]["report-releasable.json"]).read_text())
    assert report["privacy"]["public_data"]["public_images_used"]
    assert "40 images of the data set “open.npz”" in report["privacy"]["public_data"]["provenance"]
    assert "licence: CC0, by all" in report["privacy"]["public_data"]["provenance"]
    again = datalens(*command, "--public-data", public, "--public-license", "CC0, by all")
    assert "nothing was spent again" in again.stderr, again.output
    # The same folder without them: another job, on the same private images.
    other = datalens(*command)
    assert other.exit_code != 0
    assert "budget" in other.output


def test_private_images_are_not_taken_for_public_ones(datalens: Run, npz: Path, tmp_path: Path) -> None:
    refused = datalens("train", "--confirm-classes", "--data", npz, *DP_SGD, "--public-data", npz)
    assert refused.exit_code != 0
    assert "cannot be declared public" in refused.output
    assert not list((tmp_path / "out" / "private" / "public").iterdir())


def test_a_method_or_size_without_a_use_for_them_leaves_no_folder(
    datalens: Run, npz: Path, public: Path, tmp_path: Path
) -> None:
    moments = ("--method", "moments", "--epsilon", 2, "--out", "out")
    refused = datalens("train", "--confirm-classes", "--data", npz, *moments, "--public-data", public)
    assert "does not start from public images" in refused.output
    larger = datalens(
        "train", "--confirm-classes", "--data", npz, *DP_SGD, "--public-data", images(tmp_path / "large.npz", 9)
    )
    assert "9x9x1" in larger.output
    assert not (tmp_path / "out").exists()
