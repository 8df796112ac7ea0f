"""What NormTopK leaves of a sum of clipped gradients, without noise, as JSON.

    python -m benchmarks.compression --dataset cifar10_features --architecture linear
    python -m benchmarks.compression --records 60000 --batch 256 --steps 500 --seeds 1 --of record

Descent on clipped gradients, once on their plain sum and once on what NormTopK keeps: of each tensor of weights of each
record, as `dp_sgd` does; with `--of record` of all weights of each record together, as the paper writes it; with
`--of sum` of the sum over the records, which bounds nothing that one record contributes. No noise: what differs is the
bias of the compression alone. `accuracy` is on the records, `test_accuracy` on test images, after the last step.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.environment import dataset, provenance
from benchmarks.kept_results import print_result
from datalens_service.data.dataset import Dataset, Split
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.unit_gradients import class_loss, compress, keep_energy
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.per_record import BytesToNumbers, PerRecordGradients

KEEPS = (1.0, 0.8, 0.7, 0.6)
RATE = 0.3


class Descent(NamedTuple):
    """How long a descent is, on how many records, and what is compressed."""

    steps: int
    records: int
    batch: int
    of: Literal["tensor", "record", "sum"]


def keep_of_sum(rows: Tensor, tensor_sizes: list[int], keep: float, of: str) -> Tensor:
    """Add up gradients (n, d) that are clipped to length 1, and compress them before that or, with `sum`, after it."""
    if of == "sum":
        clipped = rows / rows.norm(dim=1, keepdim=True).clamp(min=1)
        return keep_energy(clipped.sum(dim=0, keepdim=True), keep)[0]
    sizes = tensor_sizes if of == "tensor" else [rows.shape[1]]
    return compress(rows, DpSgd(compression="normtopk", keep=keep), sizes).sum(dim=0)


def descend(architecture: str, data: Dataset, descent: Descent, keep: float, seed: int) -> dict[str, float]:
    """Descend; how the kept sum lies to the plain one in the middle of the steps, and what is reached."""
    images, labels = (values[: descent.records] for values in _tensors(data.train))
    network = build_network({"architecture": architecture}, data.schema, seed)
    gradients = PerRecordGradients(torch.nn.Sequential(BytesToNumbers(), network), class_loss)
    sizes = gradients.tensor_sizes
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    order = torch.Generator().manual_seed(seed)
    figures: dict[str, float] = {}
    for step in range(descent.steps):
        batch = torch.randperm(len(images), generator=order)[: descent.batch]
        rows = torch.cat(list(gradients.chunks([images[batch], labels[batch]])))
        plain, kept = (keep_of_sum(rows, sizes, share, descent.of) for share in (1.0, keep))
        if step == descent.steps // 2:
            figures = _compare(plain, kept)
        for weight, part in zip(network.parameters(), (kept / len(batch)).split(sizes), strict=True):
            weight.grad = part.view_as(weight).clone()
        optimizer.step()
    return figures | {
        "accuracy": _measure_accuracy(network, images, labels),
        "test_accuracy": _measure_accuracy(network, *_tensors(data.test)),
    }


def _tensors(split: Split | None) -> tuple[Tensor, Tensor]:
    if split is None:
        raise SystemExit("the data set has no test split")
    return torch.from_numpy(split.images.transpose(0, 3, 1, 2).copy()), torch.from_numpy(split.labels)


@torch.no_grad()
def _measure_accuracy(network: torch.nn.Module, images: Tensor, labels: Tensor) -> float:
    right = sum(
        int((network(some.float() / 255).argmax(dim=1) == theirs).sum())
        for some, theirs in zip(images.split(1000), labels.split(1000), strict=True)
    )
    return round(100 * right / len(labels), 2)


def _compare(plain: Tensor, kept: Tensor) -> dict[str, float]:
    return {
        "cosine": float(functional.cosine_similarity(plain, kept, dim=0)),
        "length": float(kept.norm() / plain.norm()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The bias of compressed gradients.")
    parser.add_argument("--dataset", default="mnist", choices=["mnist", "fashion_mnist", "cifar10_features"])
    parser.add_argument("--architecture", default="small_cnn", choices=["small_cnn", "mlp", "linear"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--records", type=int, default=1024, help="that train")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--keep", type=float, nargs="+", default=KEEPS, help="shares of the squared norm")
    parser.add_argument("--of", choices=["tensor", "record", "sum"], default="tensor", help="what is compressed")
    options = parser.parse_args()
    data = dataset(options.dataset)
    descent = Descent(options.steps, options.records, options.batch, options.of)
    rows = []
    for keep in options.keep:
        runs = [descend(options.architecture, data, descent, keep, seed) for seed in range(options.seeds)]
        rows.append({"keep": keep, **{name: statistics.mean(run[name] for run in runs) for name in runs[0]}})
    report = {
        "dataset": options.dataset,
        "architecture": options.architecture,
        **descent._asdict(),
        "seeds": options.seeds,
        "rows": rows,
    }
    print_result(report | {"environment": provenance()})


if __name__ == "__main__":
    main()
