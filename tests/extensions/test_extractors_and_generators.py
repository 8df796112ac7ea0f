"""Extractors and generators of another package: a command tries their contracts, and jobs use them and say whose."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from datalens_service.proof.proof_verification import verify
from tests.extensions.installed import Installed

SOURCE = """
import numpy as np


def brightness(images):
    rows = images.astype(np.float32).mean(axis=(2, 3)) / 255
    return rows[:, :: max(1, rows.shape[1] // 8)]


def relative(images):
    features = brightness(images)
    return features - features.mean(axis=0)


def constant(images):
    return np.ones((len(images), 4), dtype=np.float32)


class Noise:
    def __init__(self, schema):
        self.shape = (schema.height, schema.width, schema.channels)

    def random(self, count, label, seed):
        return np.random.default_rng(seed).integers(0, 256, (count, *self.shape), dtype=np.uint8)

    def variations(self, images, label, seed):
        return images ^ self.random(len(images), label, seed) % 8


class Forgetful(Noise):
    def random(self, count, label, seed):
        return super().random(count, label, None)


class Careless(Noise):
    def variations(self, images, label, seed):
        images[:] = super().variations(images, label, seed)
        return images.astype(float)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    made = Installed(tmp_path, "shop", SOURCE)
    made.offer("extractors", brightness="brightness", relative="relative", constant="constant")
    made.offer("generators", noise="Noise", forgetful="Forgetful", careless="Careless")
    return made


@pytest.mark.parametrize(
    ("kind", "name", "complaints"),
    [
        ("extractor", "brightness", []),
        ("extractor", "relative", ["features depend on the rest of the batch"]),
        ("extractor", "constant", ["same features"]),
        ("generator", "noise", []),
        ("generator", "forgetful", ["a second call differs"]),
        ("generator", "careless", ["got float64", "wrote into its images"]),
    ],
)
def test_the_command_tries_the_contract(installed: Installed, kind: str, name: str, complaints: list[str]) -> None:
    said = installed.type("plugins", "check", name, "--kind", kind, status=1 if complaints else 0)
    assert said.count("holds") > 3
    assert ("broken" in said) == bool(complaints)
    assert [complaint for complaint in complaints if complaint not in said] == []


def test_a_job_is_measured_with_it_for_its_owner_alone(installed: Installed, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    splits = {"train": 80, "test": 240}
    arrays = {f"{name}_images": rng.integers(0, 256, (n, 8, 8), dtype=np.uint8) for name, n in splits.items()}
    arrays |= {f"{name}_labels": np.arange(n) % 2 for name, n in splits.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    quick = ("epochs=1", "synthetic_images=100", "floors=false", "ceiling=false", 'fidelity=["brightness"]')
    settings = [part for setting in quick for part in ("--set", f"evaluation.{setting}")]
    # Even where the test split is public: a stranger who lacks the package cannot read the figure.
    train = ("train", "--data", "a.npz", "--epsilon", "1", "--out", "out", "--public-test", "--synthetic-images", "100")
    chosen = ("--confirm-classes", "--method", "moments", "--set", "subspace_dimensions=4", *settings)
    done = installed.run("-m", "datalens_service.cli", *train, *chosen)
    assert done.returncode == 0, done.stderr
    measures = {one["name"]: one for one in json.loads((tmp_path / "out" / "report.json").read_text())["measures"]}
    figures = {f"{name}_brightness" for name in ("fid", "kid", "precision", "recall")}
    assert {name for name in measures if name.endswith("_brightness")} == figures
    assert measures["fid_brightness"]["basis"]["extractor"] == "brightness of shop 1.2"
    assert {measures[name]["audience"] for name in figures} == {"owner"}
    for file in ("report-releasable.json", "report-releasable.html", "privacy.json", "card.json"):
        assert not re.search("(fid|kid|precision|recall)_brightness", (tmp_path / "out" / file).read_text()), file
    assert verify((tmp_path / "out" / "privacy.json").read_bytes()).holds


def test_a_job_makes_its_images_of_it_and_says_whose_it_is(installed: Installed, tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", train_images=images, train_labels=np.arange(60) % 2)
    chosen = ("--method", "private_evolution", "--set", "generator=noise", "--set", "rounds=2", "--set", "images=10")
    train = ("train", "--data", "a.npz", "--epsilon", "1", "--out", "out", "--confirm-classes", "--no-evaluation")
    installed.type(*train, "--synthetic-images", "20", *chosen)
    card = json.loads((tmp_path / "out" / "privacy.json").read_text())["card"]
    assert card["generator"] == {"name": "noise", "distribution": "shop", "version": "1.2"}
    assert "noise of shop 1.2" in (tmp_path / "out" / "report-releasable.html").read_text()
    assert verify((tmp_path / "out" / "privacy.json").read_bytes()).holds
