"""An encoder that saw public drawings alone, trained in minutes, as an ONNX file.

    python -m benchmarks.procedural_encoder drawn.onnx
    python -m benchmarks.classifiers accuracy --encoder drawn.onnx --dataset cifar10 --draw 10000 --seeds 1

A small convolutional network learns to find, among those of others, the second view of each drawing (Chen et al. 2020,
"A simple framework for contrastive learning of visual representations"): crops, mirrored or not, in another light.
Features are three of its layers, averaged over quarters of the image, in the leading directions of drawings, divided by
the fourth root of their variances: as wavelets are. Prints what it made as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.environment import SCHEMAS, provenance
from datalens_service.data.dataset import Images
from datalens_service.data.intake.sandbox.encoder_label import EncoderLabel
from datalens_service.methods.last_layer.dead_leaves import draw_dead_leaves, vary
from datalens_service.models.encoders.making.export import export

DRAWINGS, PAIRS, RATE, TEMPERATURE = 6000, 256, 2e-3, 0.2
SIDE, DIMENSIONS, EVENNESS, FLOOR = 32, 400, 0.25, 0.01
LAYERS: Final = ((3, 32, 5, 2), (32, 64, 3, 1), (64, 128, 3, 2), (128, 256, 3, 2), (256, 256, 3, 1))
"""Maps in and out, window, stride."""
POOLED: Final = {1: 8, 2: 4, 4: 2}
"""Layers whose maps are features, and the sides of their quarters."""
FEATURES = sum(4 * LAYERS[layer][1] for layer in POOLED)


class DrawnNetwork(nn.Module):
    """Features (n, 400) of RGB images (n, 3, 32, 32) in [0, 1]."""

    center: Tensor
    basis: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, window, step, window // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b, window, step in LAYERS
        )
        self.register_buffer("center", torch.zeros(FEATURES))
        self.register_buffer("basis", torch.zeros(FEATURES, DIMENSIONS))

    def maps(self, images: Tensor) -> list[Tensor]:
        found = [4 * (images - 0.5)]
        for layer in self.layers:
            found.append(layer(found[-1]))
        return found[1:]

    def pooled(self, images: Tensor) -> Tensor:
        maps = self.maps(images)
        quarters = [functional.avg_pool2d(maps[layer], side).flatten(1) for layer, side in POOLED.items()]
        return torch.cat([functional.normalize(q - q.mean(dim=1, keepdim=True), dim=1) for q in quarters], dim=1)

    def forward(self, images: Tensor) -> Tensor:
        return functional.normalize((self.pooled(images) - self.center) @ self.basis, dim=1)


def crop(pictures: Images, rng: np.random.Generator) -> Tensor:
    """Parts of pictures, each enlarged to the whole, mirrored or not, in another light."""
    count, part = len(pictures), rng.uniform(0.4, 1, (len(pictures), 1))
    maps = np.zeros((count, 2, 3), dtype=np.float32)
    maps[:, 0, :1], maps[:, 1, 1:2] = part * rng.choice([-1, 1], (count, 1)), part
    maps[:, :, 2] = rng.uniform(-1, 1, (count, 2)) * (1 - part)
    seen = _pixels(vary(pictures, rng))
    grid = functional.affine_grid(torch.from_numpy(maps), list(seen.shape), align_corners=False)
    return functional.grid_sample(seen, grid, padding_mode="reflection", align_corners=False)


def _pixels(pictures: Images) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))).float() / 255


def train(network: DrawnNetwork, pictures: Images, steps: int, rng: np.random.Generator) -> float:
    """The loss of the last step."""
    head = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 96))
    optimizer = torch.optim.AdamW([*network.parameters(), *head.parameters()], RATE, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.05)
    partner = torch.arange(2 * PAIRS).roll(PAIRS)
    loss = torch.tensor(math.nan)
    for _ in range(steps):
        shown = pictures[rng.choice(len(pictures), PAIRS, replace=False)]
        views = torch.cat([crop(shown, rng), crop(shown, rng)]).to(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16):
            codes = head(network.maps(views)[-1].mean(dim=(2, 3)))
        codes = functional.normalize(codes.float(), dim=1)
        alike = (codes @ codes.T / TEMPERATURE).fill_diagonal_(-math.inf)
        loss = functional.cross_entropy(alike, partner)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return float(loss.detach())


@torch.no_grad()
def fit_basis(network: DrawnNetwork, pictures: Images) -> None:
    raw = torch.cat([network.pooled(block) for block in _pixels(pictures).split(128)])
    network.center.copy_(raw.mean(dim=0))
    variances, directions = (part.flip(-1)[..., :DIMENSIONS] for part in torch.linalg.eigh(torch.cov(raw.T)))
    network.basis.copy_(directions * (variances + FLOOR * variances[0]) ** -EVENNESS)


def make(file: Path, steps: int, seed: int) -> dict[str, Any]:
    began, rng = time.process_time(), np.random.default_rng(seed)
    torch.manual_seed(seed)
    pictures = draw_dead_leaves(SCHEMAS["cifar10"], DRAWINGS, rng)
    network = DrawnNetwork().to(memory_format=torch.channels_last)
    loss = train(network, pictures, steps, rng)
    fit_basis(network.eval(), pictures)
    label = EncoderLabel(title="drawn")
    content = export(network.to(memory_format=torch.contiguous_format), SIDE, label)
    file.write_bytes(content)
    seconds = time.process_time() - began
    return {"steps": steps, "seed": seed, "loss": loss, "bytes": len(content), "processor_seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(make(options.file, options.steps, options.seed) | {"environment": provenance()}))


if __name__ == "__main__":
    main()
