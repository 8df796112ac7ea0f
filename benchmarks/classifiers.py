"""Private classifiers: accuracy on real test images, and the speed of per-record gradients.

    python -m benchmarks.classifiers accuracy --method scattering --dataset mnist --epsilon 1 --json
    python -m benchmarks.classifiers accuracy --method dp_sgd --set architecture=mlp --dataset mnist --epsilon 1
    python -m benchmarks.classifiers speed --json

Accuracy is that of the last step, mean and spread over seeds; nothing is selected on test data. `speed` passes once
over the same records: a plain backward pass of batches, per-record gradients of this product, and those of Opacus.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.environment import dataset, provenance
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.run import run
from datalens_service.spec import TrainingSpec

ARCHITECTURES = ("small_cnn", "lenet", "mlp")
BATCH = 256


def accuracy(options: argparse.Namespace) -> dict[str, Any]:
    """Percent of test images that the released classifier labels correctly."""
    data = dataset(options.dataset)
    settings = dict(setting.split("=", 1) for setting in options.settings)
    method = {"name": options.method} | {name: _value(text) for name, text in settings.items()}
    scores, seconds, spent = [], [], 0.0
    for seed in range(options.seeds):
        spec = TrainingSpec.model_validate(
            {"method": method, "epsilon": options.epsilon, "delta": options.delta, "seed": seed}
        )
        began = time.process_time()
        result = run(spec, data, account=MemoryAccount(spec.limit_units(data.schema)))
        seconds.append(time.process_time() - began)
        scores.append(_percent(result.model, data))
        spent = result.cost.epsilon_at_plan
    return {
        "dataset": options.dataset,
        "method": method,
        "epsilon": options.epsilon,
        "delta": options.delta,
        "epsilon_at_plan": spent,
        "seeds": options.seeds,
        "accuracies": scores,
        "mean": statistics.mean(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else None,
        "processor_seconds": statistics.mean(seconds),
    }


def _percent(model: Any, data: Dataset) -> float:
    if data.test is None:
        raise SystemExit("the dataset has no test split")
    predicted = model.predict(data.test.images).argmax(axis=1)
    return round(100 * float(np.mean(predicted == data.test.labels)), 2)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one pass over the same records, in one run."""
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=options.records)
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(options.records, 1, 28, 28, generator=rng)
    labels = torch.randint(10, (options.records,), generator=rng)
    rows = {}
    for name in ARCHITECTURES:
        passes = {"plain": _plain, "datalens": _per_record, "opacus": _opacus}
        timed = {way: _seconds(make, name, schema, images, labels) for way, make in passes.items()}
        rows[name] = timed | {f"{way}_over_plain": timed[way] / timed["plain"] for way in ("datalens", "opacus")}
    return {"records": options.records, "batch": BATCH, "threads": torch.get_num_threads(), "seconds": rows}


def _seconds(
    make: Callable[[nn.Module], Callable[[Tensor, Tensor], None]],
    name: str,
    schema: Schema,
    images: Tensor,
    labels: Tensor,
) -> float:
    """The fastest of three passes."""
    go = make(build_network({"architecture": name}, schema))
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        go(images, labels)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _plain(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    def go(images: Tensor, labels: Tensor) -> None:
        for rows, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            network.zero_grad()
            functional.cross_entropy(network(rows), classes).backward()

    return go


def _per_record(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    gradients = PerRecordGradients(
        network, lambda logits, _image, label: functional.cross_entropy(logits, label), BATCH
    )

    def go(images: Tensor, labels: Tensor) -> None:
        for _ in gradients.chunks([images, labels]):
            pass

    return go


def _opacus(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    from opacus import GradSampleModule

    hooked = GradSampleModule(network.train(), loss_reduction="sum")

    def go(images: Tensor, labels: Tensor) -> None:
        for rows, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            hooked.zero_grad()
            functional.cross_entropy(hooked(rows), classes, reduction="sum").backward()

    return go


def main() -> None:
    parser = argparse.ArgumentParser(description="Private classifiers: accuracy and speed.")
    parser.add_argument("what", choices=["accuracy", "speed"])
    parser.add_argument("--dataset", default="mnist", choices=["mnist", "fashion_mnist"])
    parser.add_argument("--method", default="scattering", choices=["scattering", "dp_sgd"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--records", type=int, default=2048)
    parser.add_argument("--json", action="store_true", help="The only output there is; accepted for likeness.")
    options = parser.parse_args()
    result = accuracy(options) if options.what == "accuracy" else speed(options)
    json.dump(result | {"environment": provenance()}, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
