"""A generator of another package: a command tries its contract, and a job makes its images of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from datalens_service.cli.app import app
from datalens_service.proof.proof_verification import verify
from tests.extensions.installed import Installed

GENERATORS = """
import numpy as np


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
    made = Installed(tmp_path, "shop_generators", GENERATORS)
    made.offer("generators", noise="Noise", forgetful="Forgetful", careless="Careless")
    return made


@pytest.mark.parametrize(
    ("name", "complaints"),
    [("noise", []), ("forgetful", ["a second call differs"]), ("careless", ["got float64", "wrote into its images"])],
)
@pytest.mark.usefixtures("installed")
def test_the_command_tries_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, complaints: list[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_generators", raising=False)
    result = CliRunner().invoke(app, ["plugins", "check", name, "--kind", "generator"])
    assert result.exit_code == (1 if complaints else 0), result.output
    assert ("broken" in result.stdout) == bool(complaints)
    for complaint in complaints:
        assert complaint in result.stdout


def test_a_job_makes_its_images_of_it_and_says_whose_it_is(installed: Installed, tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", train_images=images, train_labels=np.arange(60) % 2)
    chosen = ("--method", "private_evolution", "--set", "generator=noise", "--set", "rounds=2", "--set", "images=10")
    train = ("train", "--data", "a.npz", "--epsilon", "1", "--out", "out", "--confirm-classes", "--no-evaluation")
    done = installed.run("-m", "datalens_service.cli", *train, "--images", "20", *chosen)
    assert done.returncode == 0, done.stderr
    card = json.loads((tmp_path / "out" / "privacy.json").read_text())["card"]
    assert card["generator"] == {"name": "noise", "distribution": "shop-generators", "version": "1.2"}
    assert "noise of shop-generators 1.2" in (tmp_path / "out" / "report-releasable.html").read_text()
    assert verify((tmp_path / "out" / "privacy.json").read_bytes()).holds
