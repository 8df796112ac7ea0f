"""`datalens encoders make`: weights that others trained become an encoder that jobs name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

from datalens_service.cli.failures import ExitCode

Run = Callable[..., Any]
TRAIN = ("--epsilon", 8, "--method", "scattering", "--set", "encoder=small.onnx", "--set", "steps=2")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    network: nn.Module = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)
    path = tmp_path_factory.mktemp("weights") / "resnet.pth"
    torch.save(network.state_dict(), path)
    return path


def make(weights: Path, *others: object) -> tuple[object, ...]:
    return ("encoders", "make", "small", "--weights", weights, "--license", "CC-BY-4.0, by us", "--size", 32, *others)


def test_made_encoder_trains_a_classifier_whose_card_names_it(
    datalens: Run, datalens_json: Run, weights: Path, npz: Path
) -> None:
    answer = datalens_json(*make(weights))
    assert answer["file"] == "small.onnx"
    assert (answer["network"], answer["size"]) == ("ResNet of torchvision", 32)
    encoder = answer["encoder"]
    assert (encoder["name"], encoder["title"], encoder["features"]) == ("onnx", "small", 512)

    trained = datalens_json("train", "--confirm-classes", "--data", npz, *TRAIN, "--out", "out")
    card = json.loads(Path(trained["files"]["card.json"]).read_text())
    assert card["encoder"] == {name: value for name, value in encoder.items() if name != "features"}
    report = Path(trained["files"]["report-releasable.html"]).read_text()
    for stated in ("“small”", encoder["sha256"], encoder["weights_sha256"], "licence CC-BY-4.0, by us"):
        assert stated in report
    assert datalens("verify", trained["files"]["privacy.json"]).exit_code == 0


def test_an_encoder_is_not_written_over_another_file(datalens: Run, weights: Path) -> None:
    Path("small.onnx").write_text("mine")
    refused = datalens(*make(weights))
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert "--force" in refused.output
    assert Path("small.onnx").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"no weights", "not a file of weights alone"), (b"", "not a whole file of weights")],
    ids=["foreign", "empty"],
)
def test_what_is_no_file_of_weights_leaves_nothing(datalens: Run, tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "broken.pth").write_bytes(content)
    refused = datalens(*make(tmp_path / "broken.pth"))
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert says in " ".join(refused.output.split())
    assert not Path("small.onnx").exists()
