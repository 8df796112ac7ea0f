"""Private classifiers: accuracy on real test images, and the speed of per-record gradients.

    python -m benchmarks.classifiers accuracy --method scattering --dataset mnist --epsilon 1
    python -m benchmarks.classifiers accuracy --method dp_sgd --set architecture=mlp --dataset mnist --epsilon 1
    python -m benchmarks.classifiers accuracy --method dp_sgd --dataset mnist --epsilon 0.5 --held-out
    python -m benchmarks.classifiers accuracy --set encoder=imagenet-lite0 --dataset cifar10 --draw 10000
    python -m benchmarks.classifiers accuracy --encoder lite2.onnx --dataset bccd
    python -m benchmarks.classifiers accuracy --method dp_sgd --dataset cifar10_features --set architecture=linear
    python -m benchmarks.classifiers opacus --dataset mnist --epsilon 1
    python -m benchmarks.classifiers speed --json

Accuracy is that of the last step, mean and spread over seeds; nothing is selected on test data. `--held-out` sets
10,000 training images aside and scores on them: settings are chosen with it. `--draw` takes so many training images,
and 5,000 test images, as cells of the panel do. `--encoder` encodes each image once for all seeds, and tells beside
what a linear discriminant of the same features reaches without privacy. `opacus` trains the network of `dp_sgd` by
Opacus with the same batches, steps, rate, momentum and clipping norm, without averaged weights, and noise by its own
accountant: a second opinion on what such training reaches. `speed` passes once over the same records: a plain backward
pass of batches; per- record gradients of this product and of Opacus; and these with what follows before noise, the
exact sum on a grid here and the clipped sum there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.environment import dataset, provenance, public_set, require_test_split, without_test_images
from benchmarks.fixed_extractor import pixels
from benchmarks.kept_results import print_result
from benchmarks.panel import Cell, draw
from datalens_service.data.dataset import Dataset, Images, Schema
from datalens_service.data.intake.sandbox import encoder
from datalens_service.evaluation.metrics.discriminant import discriminate
from datalens_service.evaluation.metrics.outcome import Score
from datalens_service.mechanisms import GradientSum
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.unit_gradients import whole_units
from datalens_service.methods.script import ExecutionOptions
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.services import encoders
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

SETS = ("mnist", "fashion_mnist", "cifar10", "cifar10_features", "smiles64", "bccd", "signs")
ARCHITECTURES = ("small_cnn", "lenet", "mlp")
BATCH = 256
PASSES = 5


def accuracy(options: argparse.Namespace) -> dict[str, Any]:
    """Percent of test images, or of training images that were set aside, that the classifier labels correctly."""
    settings = dict(setting.split("=", 1) for setting in options.settings)
    method = {"name": options.method} | {name: _value(text) for name, text in settings.items()}
    if options.encoder is not None:
        method |= {"encoder": encoders.read(options.encoder).model_dump()}
    public = None if options.public is None else public_set(options.public)
    scores, seconds, spent, planned = [], [], 0.0, dict[str, Any]()
    ceilings: list[float] = []
    for seed in range(options.seeds):
        data = _data(options, seed)
        asked = {"method": method, "epsilon": options.epsilon, "delta": options.delta, "seed": seed}
        spec = RequestedSpec.model_validate(asked).resolve(data.schema)
        began = time.process_time()
        result = run(
            spec,
            data,
            account=_account(spec, data.schema),
            public=public,
            options=ExecutionOptions(encoder=options.encoder),
        )
        seconds.append(time.process_time() - began)
        scores.append(_score(result.model, data))
        if options.encoder is not None:
            ceilings.append(_score_without_privacy(result.model, data))
        spent, planned = result.cost.epsilon_at_plan, spec.method.model_dump(mode="json")
    return {
        "dataset": options.dataset,
        "scored_on": "training images that were set aside" if options.held_out else "test images",
        "public_data": options.public,
        "records": options.draw,
        "method": method | planned,
        "epsilon": options.epsilon,
        "delta": options.delta,
        "epsilon_at_plan": spent,
        "seeds": options.seeds,
        "accuracies": (accuracies := [score.accuracy for score in scores]),
        "mean": statistics.mean(accuracies),
        "spread": statistics.stdev(accuracies) if len(scores) > 1 else None,
        "balanced": statistics.mean(score.balanced for score in scores),
        "without_privacy": ceilings or None,
        "processor_seconds": statistics.mean(seconds),
    }


@contextmanager
def _encoding_each_image_once() -> Iterator[None]:
    known: dict[bytes, NDArray[np.float32]] = {}
    encode = encoder.encode

    def remember(graph: bytes, images: Images) -> NDArray[np.float32]:
        keys = [image.tobytes() for image in images]
        new = [row for row, key in enumerate(keys) if key not in known]
        if new:
            known.update(zip([keys[row] for row in new], encode(graph, images[new]), strict=True))
        return np.stack([known[key] for key in keys])

    with patch.object(encoder, "encode", remember):
        yield


def _score_without_privacy(model: Any, data: Dataset) -> float:
    """Percent that a linear discriminant of the same features labels correctly."""
    test = require_test_split(data)
    learned, seen = (model.predict_with_features(one.images)[0].astype(np.float64) for one in (data.train, test))
    found = discriminate(learned, data.train.labels, seen, data.schema.num_classes)
    return round(100 * float(np.mean(found == test.labels)), 2)


def _data(options: argparse.Namespace, seed: int) -> Dataset:
    if options.draw is not None:
        return draw(Cell(options.dataset, options.draw, options.epsilon), seed)
    data = dataset(options.dataset)
    return without_test_images(data) if options.held_out else data


def _account(spec: TrainingSpec, schema: Schema) -> MemoryAccount:
    return MemoryAccount(spec.limit_units(schema), (spec.epsilon, spec.delta_at(schema)))


def _score(model: Any, data: Dataset) -> Score:
    test = require_test_split(data)
    right = model.predict(test.images).argmax(axis=1) == test.labels
    per_class = [right[test.labels == label].mean() for label in np.unique(test.labels)]
    return Score(*(round(100 * float(np.mean(values)), 2) for values in (right, per_class)))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def second_opinion(options: argparse.Namespace) -> dict[str, Any]:
    """Accuracy of the small CNN trained by Opacus with the settings of `dp_sgd`."""
    data = dataset(options.dataset)
    settings = _OPACUS | {name: _value(text) for name, text in (one.split("=", 1) for one in options.settings)}
    runs = [_train_by_opacus(settings, options, data, seed) for seed in range(options.seeds)]
    scores = [score for score, _, _ in runs]
    return {
        "dataset": options.dataset,
        "method": {"name": "opacus"} | settings,
        "epsilon": options.epsilon,
        "delta": options.delta,
        "epsilon_of_opacus": max(spent for _, spent, _ in runs),
        "seeds": options.seeds,
        "accuracies": scores,
        "mean": statistics.mean(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else None,
        "processor_seconds": statistics.mean(seconds for _, _, seconds in runs),
    }


_OPACUS: dict[str, Any] = {"architecture": "small_cnn", "batch": 1024, "steps": 500, "learning_rate": 0.25}


def _train_by_opacus(
    settings: dict[str, Any], options: argparse.Namespace, data: Dataset, seed: int
) -> tuple[float, float, float]:
    """Accuracy in percent, ε by Opacus, processor seconds."""
    from opacus import PrivacyEngine
    from opacus.accountants.utils import get_noise_multiplier
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    began = time.process_time()
    network = build_network({"architecture": settings["architecture"]}, data.schema).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=settings["learning_rate"], momentum=DpSgd().momentum)
    records = TensorDataset(pixels(data.train.images), torch.from_numpy(data.train.labels))
    loader = DataLoader(records, batch_size=settings["batch"])
    engine = PrivacyEngine(accountant="prv")
    noise_multiplier = get_noise_multiplier(
        target_epsilon=options.epsilon,
        target_delta=options.delta,
        sample_rate=1 / len(loader),
        steps=settings["steps"],
        accountant="prv",
    )
    network, optimizer, loader = engine.make_private(
        module=network,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=noise_multiplier,
        max_grad_norm=DpSgd().clip_norm,
    )
    step = 0
    while step < settings["steps"]:
        for rows, classes in loader:
            optimizer.zero_grad()
            functional.cross_entropy(network(rows), classes).backward()
            optimizer.step()
            step += 1
            if step == settings["steps"]:
                break
    with torch.no_grad():
        predicted = network.eval()(pixels(data.test.images)).argmax(dim=1).numpy()
    percent = round(100 * float(np.mean(predicted == data.test.labels)), 2)
    return percent, engine.get_epsilon(options.delta), time.process_time() - began


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Processor seconds of one pass over the same records, in one run."""
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=options.records)
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(options.records, 1, 28, 28, generator=rng)
    labels = torch.randint(10, (options.records,), generator=rng)
    rows = {name: _compared(name, schema, images, labels) for name in ARCHITECTURES}
    return {"records": options.records, "batch": BATCH, "threads": torch.get_num_threads(), "seconds": rows}


def _compared(name: str, schema: Schema, images: Tensor, labels: Tensor) -> dict[str, float]:
    """The fastest of some passes in turn, so that what else the machine does hits all of them alike."""
    ways = {way: make(build_network({"architecture": name}, schema)) for way, make in _WAYS.items()}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(PASSES):
        for way, go in ways.items():
            began = time.process_time()
            go(images, labels)
            taken[way].append(time.process_time() - began)
    seconds = {way: min(times) for way, times in taken.items()}
    over_plain = {f"{way}_over_plain": seconds[way] / seconds["plain"] for way in ways if way != "plain"}
    return seconds | over_plain


def _plain(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    def go(images: Tensor, labels: Tensor) -> None:
        for rows, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            network.zero_grad()
            functional.cross_entropy(network(rows), classes).backward()

    return go


def _gradients(network: nn.Module) -> PerRecordGradients:
    return PerRecordGradients(network, lambda logits, _image, label: functional.cross_entropy(logits, label))


def _per_record(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    gradients = _gradients(network)

    def go(images: Tensor, labels: Tensor) -> None:
        for _ in gradients.chunks([images, labels]):
            pass

    return go


def _per_record_sum(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    gradients = _gradients(network)
    mechanism = GradientSum(dimensions=gradients.dimensions, clip_norm=1.0, noise_stddev=10**5)

    def go(images: Tensor, labels: Tensor) -> None:
        rows = whole_units(gradients.chunks([images, labels]), torch.arange(len(images)))
        mechanism.exact_sum(rows)

    return go


def _opacus(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    from opacus import GradSampleModule

    hooked = GradSampleModule(network.train(), loss_reduction="sum")

    def go(images: Tensor, labels: Tensor) -> None:
        for rows, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            hooked.zero_grad()
            functional.cross_entropy(hooked(rows), classes, reduction="sum").backward()

    return go


def _opacus_sum(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    hooked = GradSampleModule(network.train(), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(hooked.parameters(), 0.1), noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=BATCH
    )

    def go(images: Tensor, labels: Tensor) -> None:
        for rows, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(hooked(rows), classes, reduction="sum").backward()
            optimizer.clip_and_accumulate()

    return go


_WAYS: dict[str, Callable[[nn.Module], Callable[[Tensor, Tensor], None]]] = {
    "plain": _plain,
    "datalens": _per_record,
    "datalens_sum": _per_record_sum,
    "opacus": _opacus,
    "opacus_sum": _opacus_sum,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Private classifiers: accuracy and speed.")
    parser.add_argument("what", choices=["accuracy", "opacus", "speed"])
    parser.add_argument("--dataset", default="mnist", choices=SETS)
    parser.add_argument("--draw", type=int, help="Take so many training images only; all of a set without it.")
    parser.add_argument("--method", default="scattering", choices=["scattering", "dp_sgd"])
    parser.add_argument("--held-out", action="store_true", help="Score on training images that are set aside.")
    parser.add_argument("--public", choices=["mnist", "fashion_mnist"], help="Images that training starts from.")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--encoder", type=Path, help="File of an encoder, as `datalens encoders make` writes it.")
    parser.add_argument("--records", type=int, default=2048)
    options = parser.parse_args()
    with _encoding_each_image_once():
        result = {"accuracy": accuracy, "opacus": second_opinion, "speed": speed}[options.what](options)
    print_result(result | {"environment": provenance()})


if __name__ == "__main__":
    main()
