"""Encoders from files of weights: the file gives what the network gives, and nothing in it is run."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.vision_transformer import VisionTransformer as TorchvisionTransformer

from child_programs import without_processes  # noqa: F401 (a fixture)
from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.data.intake.sandbox import encoder
from datalens_service.models.encoders import OnnxEncoder, imagenet_lite0
from datalens_service.models.encoders.making import make_encoder
from datalens_service.models.encoders.making.vision_transformer import VisionTransformer, rename_from_torchvision
from tests.models.builders import schema_of
from tests.models.test_encoders import with_weights

SIDE = 64
MEAN, DEVIATION = (torch.tensor(values)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
WIDTH, PATCH = 128, 16
IMAGES = np.random.default_rng(1).integers(0, 256, (3, SIDE, SIDE, 3), dtype=np.uint8)


def randomised(network: nn.Module) -> nn.Module:
    """The network with random weights and averages, so that no part of it does nothing."""
    draw = torch.Generator().manual_seed(0)
    for value in network.state_dict().values():
        if value.is_floating_point():
            value.copy_(torch.rand(value.shape, generator=draw) * 0.2 + (0.5 if value.dim() == 1 else -0.1))
    return network.eval()


def resnet(block: Any, **settings: Any) -> nn.Module:
    return randomised(ResNet(block, [1, 2, 1, 1], num_classes=5, **settings))


def convnext() -> nn.Module:
    return randomised(
        ConvNeXt([CNBlockConfig(*one) for one in ((8, 16, 1), (16, 24, 2), (24, 32, 1), (32, None, 1))], num_classes=5)
    )


def torchvision_transformer() -> nn.Module:
    return randomised(TorchvisionTransformer(SIDE, PATCH, 2, 2, WIDTH, 2 * WIDTH, num_classes=5))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "basic ResNet": (lambda: resnet(BasicBlock), "fc"),
    "deep ResNet of another width": (lambda: resnet(Bottleneck, width_per_group=16), "fc"),
    "grouped ResNet": (lambda: resnet(Bottleneck, groups=4, width_per_group=4), "fc"),
    "ConvNeXt": (convnext, "classifier.2"),
    "ViT": (torchvision_transformer, "heads"),
}
"""Networks as their library builds them, and the layer that comes after the features."""


def features_of(network: nn.Module, last: str) -> Tensor:
    network.set_submodule(last, nn.Identity())
    images = torch.from_numpy(IMAGES).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        return nn.functional.normalize(network((images - MEAN) / DEVIATION).flatten(1))


def made(weights: Any, tmp_path: Path, side: int = SIDE) -> bytes:
    torch.save(weights, tmp_path / "weights.pth")
    return make_encoder(tmp_path / "weights.pth", "ours", "Apache-2.0", side).content


@pytest.mark.parametrize("name", NETWORKS)
def test_the_encoder_gives_the_features_of_the_network(name: str, tmp_path: Path) -> None:
    build, last = NETWORKS[name]
    network = build()
    content = made(network.state_dict(), tmp_path)
    expected = features_of(network, last)
    assert expected.std(dim=0).max() > 1e-4
    np.testing.assert_allclose(encoder.encode(content, IMAGES), expected, atol=2e-5)


def dinov2(registers: int) -> dict[str, Tensor]:
    """Weights by the names of DINOv2, for images of 80×80: positions on a grid of 5×5."""
    names = {
        "patch_embed.proj.weight": torch.zeros(WIDTH, 3, PATCH, PATCH),
        "blocks.0.mlp.fc1.bias": torch.zeros(4 * WIDTH),
        "blocks.1.norm1.bias": torch.zeros(WIDTH),
        "blocks.0.ls1.gamma": torch.zeros(WIDTH),
    }
    names |= {"register_tokens": torch.zeros(1, registers, WIDTH)} if registers else {}
    weights = randomised(VisionTransformer(names, 5 * PATCH)).state_dict()
    return weights | {"mask_token": torch.zeros(1, WIDTH)}


@pytest.mark.parametrize("registers", [0, 4])
def test_dinov2_is_recognised_and_sees_images_of_another_size_than_it_was_trained_on(
    registers: int, tmp_path: Path
) -> None:
    weights = dinov2(registers)
    content = made({"teacher": {f"backbone.{name}": value for name, value in weights.items()}}, tmp_path)
    features = encoder.encode(content, IMAGES)
    assert features.shape == (3, WIDTH)
    np.testing.assert_array_equal(encoder.encode(made(weights, tmp_path), IMAGES), features)
    moved = weights | {"blocks.1.ls2.gamma": -weights["blocks.1.ls2.gamma"]}
    assert np.abs(encoder.encode(made(moved, tmp_path), IMAGES) - features).max() > 1e-3


def test_scaled_blocks_of_ones_are_those_of_torchvision(tmp_path: Path) -> None:
    """Two networks of one kind, from two libraries."""
    network = torchvision_transformer()
    renamed = rename_from_torchvision(dict(network.state_dict()))
    scales = {f"blocks.{block}.ls{part}.gamma": torch.ones(WIDTH) for block in (0, 1) for part in (1, 2)}
    without_head = {name: value for name, value in renamed.items() if not name.startswith("heads.")}
    content = made(without_head | scales, tmp_path)
    np.testing.assert_allclose(encoder.encode(content, IMAGES), features_of(network, "heads"), atol=2e-5)


@with_weights
def test_the_weights_of_imagenet_lite0_make_the_encoder_of_this_name(tmp_path: Path) -> None:
    content = make_encoder(imagenet_lite0.weights_file(), "lite0", "Apache-2.0", 128).content
    built_in = imagenet_lite0.ImagenetLite0().load(schema_of(3, SIDE, SIDE)).encode(IMAGES)
    np.testing.assert_allclose(encoder.encode(content, IMAGES), built_in, atol=2e-4)


def test_the_file_says_what_it_is_called_its_licence_and_whence_its_weights_come(tmp_path: Path) -> None:
    save_file(resnet(BasicBlock).state_dict(), tmp_path / "weights.safetensors")
    content = make_encoder(tmp_path / "weights.safetensors", "ours", "CC-BY-4.0, by us", SIDE)
    read = OnnxEncoder.read(content.content)
    assert (read.title, read.license, read.features) == ("ours", "CC-BY-4.0, by us", 512)
    source = read.source()
    assert source.weights_sha256 == content.label.weights_sha256
    for told in ("“ours”", read.sha256, "licence CC-BY-4.0, by us", source.weights_sha256):
        assert told in source.describe()


def test_code_in_a_file_of_weights_is_not_run(tmp_path: Path) -> None:
    class Planted:
        def __reduce__(self) -> tuple[Any, tuple[Path]]:
            return Path.touch, (tmp_path / "was run",)

    torch.save({"layer1.0.conv1.weight": Planted()}, tmp_path / "weights.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Planted()))
    for name in ("weights.pth", "plain.pth"):
        with pytest.raises(InvalidInput, match="not a file of weights alone"):
            make_encoder(tmp_path / name, "ours", "none", SIDE)
    assert not (tmp_path / "was run").exists()


def missing(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in weights.items() if name != "layer2.0.bn1.bias"}


def reshaped(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return weights | {"layer1.0.conv1.weight": torch.zeros(3, 3)}


BROKEN: dict[str, tuple[Callable[[dict[str, Tensor]], Any], str]] = {
    "missing": (missing, "some are missing"),
    "reshaped": (reshaped, "of another shape"),
    "foreign": (lambda weights: {"encoder.embed.weight": torch.zeros(2, 2)}, "no network that is known"),
    "of another kind": (lambda weights: {"patch_embed.proj.weight": torch.zeros(8)}, "look like DINOv2"),
    "numbers": (lambda weights: {"layer1.0.conv1.weight": 3}, "holds no weights by their names"),
    "a list": (lambda weights: list(weights.values()), "holds no weights by their names"),
    "nothing": (lambda weights: {}, "holds no weights by their names"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_weights_that_make_no_known_network_are_refused(name: str, tmp_path: Path) -> None:
    breaks, says = BROKEN[name]
    with pytest.raises(InvalidInput, match=says):
        made(breaks(dict(resnet(BasicBlock).state_dict())), tmp_path)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("kept", [0, 7, 1000])
def test_files_that_were_cut_off_are_refused(suffix: str, kept: int, tmp_path: Path) -> None:
    whole, cut = tmp_path / f"whole{suffix}", tmp_path / f"cut{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(resnet(BasicBlock).state_dict(), whole)
    cut.write_bytes(whole.read_bytes()[:kept])
    with pytest.raises(InvalidInput, match=r"not a (whole )?(safetensors )?file"):
        make_encoder(cut, "ours", "none", SIDE)


def test_a_size_that_patches_do_not_divide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="multiple of 16"):
        made(dinov2(0), tmp_path, side=72)


def test_an_encoder_that_nobody_would_take_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datalens_service.models.encoders.making.export.MOST_BYTES", 2**20)
    with pytest.raises(InvalidInput, match="at most 1 are taken"):
        made(resnet(BasicBlock).state_dict(), tmp_path)


def test_a_graph_that_gives_other_features_than_the_network_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "encode", lambda _content, images: np.ones((len(images), 512)) / 512**0.5)
    with pytest.raises(WorkerUnavailable, match="other features"):
        made(resnet(BasicBlock).state_dict(), tmp_path)
