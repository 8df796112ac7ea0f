"""Vision transformers (Dosovitskiy et al. 2021), with the scaled blocks and registers of DINOv2 if weights have them.

Names of parameters are those of DINOv2; weights of torchvision are renamed to them.
"""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.models.encoders.making.weights import Weights

_HEAD: Final = 64
"""Features of one head of attention, in all networks that are taken."""
_NORM_EPSILON: Final = 1e-6
_LEFT_OUT: Final = ("mask_token", "head.", "heads.")
"""Parts that serve training and classes alone."""

_OF_TORCHVISION: Final = (
    ("encoder.layers.encoder_layer_", "blocks."),
    (".self_attention.in_proj_", ".attn.qkv."),
    (".self_attention.out_proj.", ".attn.proj."),
    (".ln_1.", ".norm1."),
    (".ln_2.", ".norm2."),
    (".mlp.linear_1.", ".mlp.fc1."),
    (".mlp.linear_2.", ".mlp.fc2."),
    (".mlp.0.", ".mlp.fc1."),
    (".mlp.3.", ".mlp.fc2."),
    ("conv_proj.", "patch_embed.proj."),
    ("class_token", "cls_token"),
    ("encoder.pos_embedding", "pos_embed"),
    ("encoder.ln.", "norm."),
)
"""Parts of names in torchvision, of its first and its present version, and what they are called here."""


def rename_from_torchvision(weights: Weights) -> Weights:
    """Rename weights of torchvision's transformers to the names that are used here."""
    renamed = {}
    for name, value in weights.items():
        for theirs, ours in _OF_TORCHVISION:
            name = name.replace(theirs, ours)
        renamed[name] = value
    return renamed


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // _HEAD
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Mix tokens (1, tokens, width); the product is written out, so that a graph has plain operators."""
        count, width = map(int, tokens.shape[1:])
        parts = self.qkv(tokens).reshape(1, count, 3, self.heads, _HEAD).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts[0] * _HEAD**-0.5, parts[1], parts[2]
        mixed = (queries @ keys.transpose(-2, -1)).softmax(dim=-1) @ values
        result: Tensor = self.proj(mixed.transpose(1, 2).reshape(1, count, width))
        return result


class Scale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.gamma


class Perceptron(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.fc2(functional.gelu(self.fc1(tokens)))
        return result


class Block(nn.Module):
    def __init__(self, width: int, inner: int, *, scaled: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=_NORM_EPSILON) for _ in range(2))
        self.attn, self.mlp = Attention(width), Perceptron(width, inner)
        self.ls1, self.ls2 = (Scale(width) if scaled else nn.Identity() for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.ls1(self.attn(self.norm1(tokens)))
        result: Tensor = tokens + self.ls2(self.mlp(self.norm2(tokens)))
        return result


class VisionTransformer(nn.Module):
    """Gives the class token after the last block; sizes are those of the weights, positions for images of `side`."""

    def __init__(self, weights: Weights, side: int) -> None:
        super().__init__()
        width, _, patch, _ = weights["patch_embed.proj.weight"].shape
        inner = len(weights["blocks.0.mlp.fc1.bias"])
        depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
        scaled = "blocks.0.ls1.gamma" in weights
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, stride=patch)})
        self.blocks = nn.Sequential(*(Block(width, inner, scaled=scaled) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=_NORM_EPSILON)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (side // patch) ** 2, width))
        registers = weights.get("register_tokens")
        self.register_tokens = None if registers is None else nn.Parameter(torch.zeros(registers.shape))

    def forward(self, images: Tensor) -> Tensor:
        """Return features (1, width) of one normalised image (1, 3, side, side)."""
        patches = self.patch_embed["proj"](images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token, patches], dim=1) + self.pos_embed
        if self.register_tokens is not None:
            tokens = torch.cat([tokens[:, :1], self.register_tokens, tokens[:, 1:]], dim=1)
        result: Tensor = self.norm(self.blocks(tokens))[:, 0]
        return result


def build_transformer(weights: Weights, side: int) -> VisionTransformer:
    """Build the network for images of `side` pixels, a multiple of its patches.

    Raises:
        KeyError, RuntimeError, ValueError: Weights are missing, or do not fit each other.
    """
    network = VisionTransformer(weights, side)
    taken = {name: value for name, value in weights.items() if not name.startswith(_LEFT_OUT)}
    taken["pos_embed"] = resize_positions(weights["pos_embed"], network.pos_embed.shape[1] - 1)
    network.load_state_dict(taken)
    return network


def resize_positions(positions: Tensor, patches: int) -> Tensor:
    """Bring embeddings (1, 1 + side², width) to so many patches; the first is that of the class token."""
    before, after = round((positions.shape[1] - 1) ** 0.5), round(patches**0.5)
    if before == after:
        return positions
    grid = positions[:, 1:].reshape(1, before, before, -1).permute(0, 3, 1, 2)
    resized = functional.interpolate(grid, (after, after), mode="bicubic", align_corners=False, antialias=True)
    return torch.cat([positions[:, :1], resized.flatten(2).transpose(1, 2)], dim=1)
