"""Networks that are known by the names and shapes of their weights, and give features instead of classes."""

from collections.abc import Callable
from itertools import count, groupby
from typing import Final, NamedTuple

from torch import nn
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from datalens_service.base.errors import InvalidInput
from datalens_service.models.encoders.lite0_network import STAGES, BlockStage, build_layers, fold_weights
from datalens_service.models.encoders.making.vision_transformer import build_transformer, rename_from_torchvision
from datalens_service.models.encoders.making.weights import Weights

Colours = tuple[float, float, float]


class Normalisation(NamedTuple):
    """Mean and deviation that bring RGB in [0, 1] to the range in which weights were learnt."""

    mean: Colours
    deviation: Colours


_OF_IMAGENET: Final = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_OF_LITE: Final = Normalisation((127 / 255,) * 3, (128 / 255,) * 3)
_BASE_WIDTH: Final = 64


class KnownNetwork(NamedTuple):
    """A family of networks.

    Attributes:
        name: Its name, with the library whose names of weights it is known by.
        sign: The name of a weight that only this family has.
        build: Makes the network with its weights for square images of so many pixels a side; it raises KeyError,
            RuntimeError or ValueError where these do not fit.
        step: Number of pixels that a side must be a multiple of; of a transformer, the side of its patches.
    """

    name: str
    sign: str
    build: Callable[[Weights, int], nn.Module]
    normalisation: Normalisation = _OF_IMAGENET
    step: Callable[[Weights], int] = lambda _weights: 1


def recognise(weights: Weights) -> KnownNetwork:
    """Find the family of networks that has such weights.

    Raises:
        InvalidInput: None has.
    """
    for known in KNOWN:
        if known.sign in weights:
            return known
    names = ", ".join(known.name for known in KNOWN)
    raise InvalidInput(f"The weights are of no network that is known: {names}.")


def build(known: KnownNetwork, weights: Weights, side: int) -> nn.Module:
    """Build the network with its weights, for inference on images of `side` pixels.

    Raises:
        InvalidInput: Weights are missing or do not fit each other, or images of that size do not fit the network.
    """
    try:
        step = known.step(weights)
        if side % step:
            raise InvalidInput(f"These weights see patches of {step} pixels: name a size that is a multiple of {step}.")
        return known.build(weights, side).eval().requires_grad_(False)
    except (KeyError, RuntimeError, ValueError, IndexError):
        raise InvalidInput(f"The weights look like {known.name}, and some are missing or of another shape.") from None


def _build_resnet(weights: Weights, _side: int) -> nn.Module:
    """Build a network of He et al. 2016, or one of its wide and grouped relatives."""
    block = Bottleneck if "layer1.0.conv3.weight" in weights else BasicBlock
    groups, width = 1, _BASE_WIDTH
    if block is Bottleneck:
        inner, of_group = weights["layer1.0.conv2.weight"].shape[:2]
        groups, width = inner // of_group, of_group
    blocks = [_count(weights, f"layer{stage}.{{}}.conv1.weight") for stage in (1, 2, 3, 4)]
    network: nn.Module = ResNet(block, blocks, groups=groups, width_per_group=width)
    network.fc = nn.Identity()
    network.load_state_dict({name: value for name, value in weights.items() if not name.startswith("fc.")})
    return network


def _build_convnext(weights: Weights, _side: int) -> nn.Module:
    """Build a network of Liu et al. 2022."""
    stages = (1, 3, 5, 7)
    widths = [len(weights[f"features.{stage}.0.block.0.weight"]) for stage in stages]
    blocks = [_count(weights, f"features.{stage}.{{}}.block.0.weight") for stage in stages]
    settings = [CNBlockConfig(*one) for one in zip(widths, [*widths[1:], None], blocks, strict=True)]
    network: nn.Module = ConvNeXt(settings)
    network.set_submodule("classifier.2", nn.Identity())
    network.load_state_dict({name: value for name, value in weights.items() if not name.startswith("classifier.2.")})
    return network


def _build_lite(weights: Weights, _side: int) -> nn.Module:
    """Build EfficientNet-Lite of any size; blocks of a stage have equally many maps."""
    numbers = range(_count(weights, "_blocks.{}._project_conv.weight"))
    maps = groupby(len(weights[f"_blocks.{number}._project_conv.weight"]) for number in numbers)
    sizes = [(width, len(list(blocks))) for width, blocks in maps]
    stages = [
        BlockStage(blocks, one.window, one.stride, one.widening, width) for one, (width, blocks) in _beside(sizes)
    ]
    return fold_weights(build_layers(stages), weights)


def _beside(sizes: list[tuple[int, int]]) -> list[tuple[BlockStage, tuple[int, int]]]:
    return list(zip(STAGES, sizes, strict=True))


def _count(weights: Weights, name: str) -> int:
    """Count the weights of that name with 0, 1, … in it."""
    return next(number for number in count() if name.format(number) not in weights)


def _patch(weights: Weights) -> int:
    return int(weights["patch_embed.proj.weight"].shape[-1])


KNOWN: Final = (
    KnownNetwork("EfficientNet-Lite", "_conv_stem.weight", _build_lite, _OF_LITE),
    KnownNetwork("ResNet of torchvision", "layer1.0.conv1.weight", _build_resnet),
    KnownNetwork("ConvNeXt of torchvision", "features.1.0.block.0.weight", _build_convnext),
    KnownNetwork(
        "ViT of torchvision",
        "conv_proj.weight",
        lambda weights, side: build_transformer(rename_from_torchvision(weights), side),
        step=lambda weights: int(weights["conv_proj.weight"].shape[-1]),
    ),
    KnownNetwork("DINOv2", "patch_embed.proj.weight", build_transformer, step=_patch),
)
