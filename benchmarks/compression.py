"""What NormTopK leaves of a sum of clipped gradients, without noise, as JSON.

    python -m benchmarks.compression --dataset mnist --seeds 3
    python -m benchmarks.compression --dataset cifar10_features --architecture linear

Descent on clipped gradients of the same 1,024 training records, once on their plain sum and once on the sum of what
each record keeps. No noise: what differs is the bias of the compression alone. Accuracy is on those records.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.environment import dataset, provenance
from benchmarks.kept_results import print_result
from datalens_service.methods.descent.unit_gradients import keep_energy
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.per_record import BytesToNumbers, PerRecordGradients

KEEPS = (1.0, 0.8, 0.7, 0.6)
STEPS, RATE, RECORDS = 60, 0.3, 1024


def descend(architecture: str, images: Tensor, labels: Tensor, schema: Any, keep: float, seed: int) -> dict[str, float]:
    """Sixty steps; how the kept sum lies to the plain one in the middle of them, and what is reached."""
    network = build_network({"architecture": architecture}, schema, seed)
    gradients = PerRecordGradients(torch.nn.Sequential(BytesToNumbers(), network), _loss)
    sizes = [weight.numel() for weight in network.parameters()]
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    figures: dict[str, float] = {}
    for step in range(STEPS):
        rows = torch.cat(list(gradients.chunks([images, labels])))
        clipped = rows / rows.norm(dim=1, keepdim=True).clamp(min=1)
        kept = clipped if keep == 1 else keep_energy(clipped, keep)
        if step == STEPS // 2:
            figures = _compare(clipped, kept)
        for weight, part in zip(network.parameters(), (kept.sum(dim=0) / RECORDS).split(sizes), strict=True):
            weight.grad = part.view_as(weight).clone()
        optimizer.step()
    predicted = network(images.float() / 255).argmax(dim=1)
    return figures | {"accuracy": round(100 * float((predicted == labels).float().mean()), 2)}


def _compare(clipped: Tensor, kept: Tensor) -> dict[str, float]:
    plain, rest = clipped.sum(dim=0), kept.sum(dim=0)
    return {
        "cosine": float(functional.cosine_similarity(plain, rest, dim=0)),
        "length": float(rest.norm() / plain.norm()),
        "kept_energy": float(kept.square().sum() / clipped.square().sum()),
        "kept_coordinates": float((kept != 0).float().mean()),
    }


def _loss(logits: Tensor, _image: Tensor, label: Tensor) -> Tensor:
    return functional.cross_entropy(logits, label)


def main() -> None:
    parser = argparse.ArgumentParser(description="The bias of compressed gradients.")
    parser.add_argument("--dataset", default="mnist", choices=["mnist", "fashion_mnist", "cifar10_features"])
    parser.add_argument("--architecture", default="small_cnn", choices=["small_cnn", "mlp", "linear"])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    data = dataset(options.dataset)
    images = torch.from_numpy(data.train.images[:RECORDS].transpose(0, 3, 1, 2).copy())
    labels = torch.from_numpy(data.train.labels[:RECORDS])
    rows = []
    for keep in KEEPS:
        runs = [descend(options.architecture, images, labels, data.schema, keep, seed) for seed in range(options.seeds)]
        rows.append({"keep": keep, **{name: statistics.mean(run[name] for run in runs) for name in runs[0]}})
    report = {
        "dataset": options.dataset,
        "architecture": options.architecture,
        "steps": STEPS,
        "seeds": options.seeds,
        "rows": rows,
    }
    print_result(report | {"environment": provenance()})


if __name__ == "__main__":
    main()
