"""Attacks on models with and without privacy: membership and gradient inversion.

    python -m benchmarks.audits membership
    python -m benchmarks.audits success
    python -m benchmarks.audits groups --dataset cifar10_features
    python -m benchmarks.audits inversion [--pictures FOLDER]

Membership: 2,000 records of a set per model, one target and eight references; networks trained without privacy, the
same by `dp_sgd` and by noisy directions, and samples of `moments`. Success: of the loss threshold on the first two, and
on scikit-learn's digits, without references. Groups: the same by class and by declared group of classes, with as many
candidates as there are, on 10,000 records (Yu et al. 2022, figures 7 and 10). Inversion: 50 records, median of the
squared error over the public variance of pixels. Three seeds each. Membership and inversion also take gradients that
are cut and turned in parts of ten weights, a release that the product does not offer: its accuracy comes near that of
Faustini et al. (2023), where that of whole directions does not.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import stats
from sklearn.datasets import load_digits
from torch.nn import functional

from benchmarks.directions import Cell, Settings
from benchmarks.environment import PARTITION_KEY, dataset, draw_records, provenance
from benchmarks.fixed_extractor import pixels
from benchmarks.individual import GROUPS
from benchmarks.kept_results import print_result
from datalens_service.audits.audit import AuditSettings, Train
from datalens_service.audits.inversion import invert_gradients, observe_gradients, squared_errors
from datalens_service.audits.inversion_figures import InversionSettings
from datalens_service.audits.targets import rehearse, train_unprotected
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import PlannedRelease, VonMisesFisherSum
from datalens_service.mechanisms.von_mises_fisher import unit_directions
from datalens_service.methods import DpSgd, Plan
from datalens_service.methods.descent.noisy_directions import PartitionedRun
from datalens_service.methods.driver import Training
from datalens_service.methods.script import RunInputs
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.classifiers.sizes import num_weights
from datalens_service.privacy.accounting import NeighboringRelation, mu_for_epsilon, mu_of_ledger_units
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.privacy.partitioned_passes import PartitionedPasses, partition_ledger_units
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

RECORDS_PER_MODEL = 2000
_OF_GROUPS = 10_000
DELTA = 1e-5
_opened = cache(dataset)
NETWORKS = ("mlp", "lenet")
PART = 10
CONCENTRATIONS = (250.0, 150_000.0)
"""kappa; half of what directional privacy calls ε (Faustini et al. 2023)."""
NOISES = (
    ("none", 0.0),
    ("gaussian", 1.0),
    *(("von_mises_fisher", kappa) for kappa in (25.0, *CONCENTRATIONS)),
    *(("parts_of_10", kappa) for kappa in (0.5, 25.0, *CONCENTRATIONS)),
)
"""With σ over the clipping norm, or with kappa. Parts of ten weights are turned one by one and keep their lengths."""


def membership(options: argparse.Namespace) -> dict[str, Any]:
    """Area under the curve of each attack, for each way of training."""
    ways: dict[str, tuple[Train, float | None]] = {}
    for network in ("mlp", "lenet_relu"):
        ways[f"{network}, no privacy"] = (_train_plainly(network), None)
        ways[f"{network}, dp_sgd, ε = 1"] = (_train_privately(network), mu_for_epsilon(1.0, DELTA))
        for kappa in CONCENTRATIONS:
            way = _train_by_directions(kappa, network), _mu_of_directions(kappa, network, options.dataset)
            ways[f"{network}, von Mises–Fisher, ε_V = {2 * kappa:g}"] = way
        for kappa in (0.5, *CONCENTRATIONS):
            ways[f"{network}, parts of 10, ε_V = {2 * kappa:g}"] = (_train_in_parts(kappa, network), None)
    ways["moments, ε = 1"] = (_train_by({"name": "moments"}), mu_for_epsilon(1.0, DELTA))
    names = [name for name in ways if options.only in name]
    return {
        "dataset": options.dataset,
        "records_per_model": RECORDS_PER_MODEL,
        "rows": [_row(name, *ways[name], options) for name in names],
    }


def success(options: argparse.Namespace) -> dict[str, Any]:
    """Share of right guesses of a loss threshold, one for all classes, beside the largest that μ allows."""
    mu = mu_for_epsilon(1.0, DELTA)
    ways = {"no privacy": (_train_plainly("mlp"), None), "dp_sgd, ε = 1": (_train_privately("mlp"), mu)}
    rows = [_success(name, way, *ways[way], options) for name in ("digits", "fashion_mnist") for way in ways]
    return {"network": "mlp", "rows": rows}


def _success(name: str, way: str, train: Train, mu: float | None, options: argparse.Namespace) -> dict[str, Any]:
    shares, candidates = [], 0
    for seed in range(options.seeds):
        data = _digits() if name == "digits" else _part(name, 4 * RECORDS_PER_MODEL, seed)
        groups = {"all": data.schema.class_names}
        settings = AuditSettings(attacks=("loss_threshold",), groups=groups, seed=seed)
        audit = rehearse(data, train, mu, settings)
        shares.append(audit.groups[0].success)
        candidates += audit.groups[0].candidates
    mean = statistics.mean(shares)
    return {
        "dataset": name,
        "model": way,
        "records_per_model": audit.units_per_model,
        "success": mean,
        "of_seeds": shares,
        "standard_error": math.sqrt(mean * (1 - mean) / candidates),
        "allowed": None if mu is None else float(stats.norm.cdf(mu / 2)),
    }


def groups(options: argparse.Namespace) -> dict[str, Any]:
    """Share of right guesses of a loss threshold for each class and each group, mean over seeds."""
    ways = {"no privacy": _train_plainly("mlp"), "dp_sgd, ε = 1": _train_privately("mlp")}
    rows = []
    for way, train in ways.items():
        audits = []
        for seed in range(options.seeds):
            settings = AuditSettings(
                attacks=("loss_threshold",), candidates=_OF_GROUPS, groups=GROUPS[options.dataset], seed=seed
            )
            audits.append(rehearse(_part(options.dataset, _OF_GROUPS, seed), train, None, settings))
        found = [(one.class_name, one.success) for audit in audits for one in audit.classes]
        found += [(one.group, one.success) for audit in audits for one in audit.groups]
        shares = {name: statistics.mean(share for other, share in found if other == name) for name, _ in found}
        scored = {one.class_name: one.candidates for one in audits[0].classes}
        units = audits[0].units_per_model
        rows.append({"model": way, "records_per_model": units, "success": shares, "candidates_of_a_seed": scored})
    return {"dataset": options.dataset, "network": "mlp", "seeds": options.seeds, "rows": rows}


def _digits() -> Dataset:
    bunch = load_digits()
    images, labels = (bunch.images[..., None] * 15).astype(np.uint8), bunch.target.astype(np.int64)
    schema = Schema(channels=1, height=8, width=8, class_names=tuple("0123456789"), num_units=len(labels))
    return Dataset(schema, Split(images, labels), None, PARTITION_KEY)


def _row(name: str, train: Train, mu: float | None, options: argparse.Namespace) -> dict[str, Any]:
    began, audits = time.process_time(), []
    for seed in range(options.seeds):
        data = _part(options.dataset, 4 * RECORDS_PER_MODEL, seed)
        audits.append(rehearse(data, train, mu, AuditSettings(seed=seed)))
    areas = {row.attack: [] for row in audits[0].attacks}
    caught = {row.attack: [] for row in audits[0].attacks}
    for audit in audits:
        for row in audit.attacks:
            areas[row.attack].append(round(row.figures.auc, 4))
            caught[row.attack].append(row.figures.operating_points[0].true_positive_rate)
    return {
        "model": name,
        "auc": {attack: statistics.mean(values) for attack, values in areas.items()},
        "auc_of_seeds": areas,
        "auc_allowed": audits[0].attacks[0].figures.auc_allowed,
        "true_positives_at_1_percent": {attack: statistics.mean(values) for attack, values in caught.items()},
        "processor_seconds": time.process_time() - began,
    }


def _part(name: str, records: int, seed: int) -> Dataset:
    return replace(draw_records(_opened(name), records, seed), test=None)


def _train_plainly(network: str) -> Train:
    """Thirty passes of Adam, no clipping, no noise."""
    return lambda data, seed: train_unprotected(data, seed, passes=30, architecture=network)


def _train_privately(network: str) -> Train:
    return _train_by({"name": "dp_sgd", "architecture": network, "steps": 10})


def _train_by_directions(kappa: float, network: str) -> Train:
    """Three passes of the same network over noisy directions."""
    return lambda data, seed: _train_without_books(_by_directions(kappa, network), data, seed)


def _train_in_parts(kappa: float, network: str) -> Train:
    """Thirty passes over gradients that are cut to length 1 and turned in parts."""
    cell = Cell("", network, Settings(100, 0.001, 30), "clipped", epsilon_v=2 * kappa, part=PART)

    def train(data: Dataset, seed: int) -> Classifier:
        *_, trained = cell.learn(data, seed)
        weights = {name: weight.detach().numpy() for name, weight in trained.named_parameters()}
        return Classifier(data.schema, {"architecture": network}, weights)

    return train


def _by_directions(kappa: float, network: str) -> DpSgd:
    return DpSgd(
        architecture=network, steps=60, batch=100, sampling="partition", noise="von_mises_fisher", kappa=kappa,
        optimizer="adam", learning_rate=0.001, averaging=0.0,
    )  # fmt: skip


def _mu_of_directions(kappa: float, network: str, name: str) -> float:
    """Of all passes, by the price of the product."""
    schema = _part(name, RECORDS_PER_MODEL, 0).schema
    return mu_of_ledger_units(_directions(_by_directions(kappa, network), schema).partition.ledger_units_zero_out)


def _directions(method: DpSgd, schema: Schema) -> VonMisesFisherSum:
    """The release of every step, also with a kappa for which no account has numbers."""
    run = PartitionedRun(schema, num_weights(method.architecture, schema), method.batch or 1, method.steps)
    stddev = run.choose_stddev(method.kappa or 1.0)
    unpriced = PartitionedPasses(
        num_units=schema.num_units,
        batches=run.batches,
        passes=run.passes,
        ledger_units_zero_out=1,
        ledger_units_replace_one=1,
    )
    mechanism = VonMisesFisherSum(dimensions=run.dimensions, partition=unpriced, noise_stddev=stddev)
    multiplier = mechanism.noise_multiplier()
    price = [partition_ledger_units(multiplier, run.passes, relation) for relation in NeighboringRelation]
    partition = unpriced.model_copy(update={"ledger_units_zero_out": price[0], "ledger_units_replace_one": price[1]})
    return mechanism.model_copy(update={"partition": partition})


def _train_without_books(method: DpSgd, data: Dataset, seed: int) -> Classifier:
    """A classifier of public records, whatever it would cost."""
    plan = Plan(releases=(PlannedRelease(mechanism=_directions(method, data.schema), count=method.steps),))
    inputs = RunInputs(TrainingRandomness(seed))
    training = Training(method, plan, data, UnchargedAccount(), inputs)
    for _ in range(method.steps):
        training.step(NoiseSource())
    model = training.outcome().model
    if not isinstance(model, Classifier):
        raise TypeError("DP-SGD makes a classifier")
    return model


def _train_by(method: dict[str, Any]) -> Train:
    """At ε = 1."""

    def train(data: Dataset, seed: int) -> Any:
        request = {"method": method, "epsilon": 1.0, "delta": DELTA, "seed": seed}
        return run(TrainingSpec.model_validate(request), data, account=UnchargedAccount()).model

    return train


def inversion(options: argparse.Namespace) -> dict[str, Any]:
    """Median error over records, for each network and each amount of noise."""
    rows = [
        _invert(network, noise, strength, seed, options)
        for network in NETWORKS
        for noise, strength in NOISES
        for seed in range(options.seeds)
        if options.only in noise
    ]
    names = ("dataset", "records", "iterations")
    return {name: getattr(options, name) for name in names} | {"spread": _spread(options.dataset), "rows": rows}


def _spread(name: str) -> float:
    """Public standard deviation of pixels."""
    return round(float(_opened(name).train.images.std()) / 255, 3)


def _invert(architecture: str, noise: str, strength: float, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    data = _part(options.dataset, options.records, seed)
    network = build_network({"architecture": architecture}, data.schema, seed)
    images = pixels(data.train.images)
    labels = torch.from_numpy(data.train.labels)
    observed = _observed(network, images, labels, noise, strength, seed)
    settings = InversionSettings(iterations=options.iterations, seed=seed)
    inverted = invert_gradients(network, observed, labels, images.shape[1:], settings)
    if options.pictures is not None and seed == 0:
        options.pictures.mkdir(parents=True, exist_ok=True)
        _draw(images, inverted, options.pictures / f"inversion-{architecture}-{noise}-{strength:g}.png")
    errors = squared_errors(inverted, images, _spread(options.dataset))
    return {
        "network": architecture,
        "noise": noise,
        "strength": strength,
        "seed": seed,
        "median_error": float(errors.median()),
    }


def _observed(
    network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, noise: str, strength: float, seed: int
) -> torch.Tensor:
    rows = observe_gradients(network, images, labels)
    if noise == "von_mises_fisher":
        directions = unit_directions(rows.to(torch.float64).numpy())
        noisy = [NoiseSource().directions(direction[None], strength)[0] for direction in directions]
        return torch.from_numpy(np.stack(noisy)).to(torch.float32)
    if not strength:
        return rows
    clipped = rows * (1 / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1)
    if noise == "parts_of_10":
        return turn_parts(clipped, strength)
    return clipped + strength * torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))


def turn_parts(rows: torch.Tensor, kappa: float) -> torch.Tensor:
    """Rows (n, d) of which each block of ten numbers has another direction, and its length."""
    parts = functional.pad(rows, (0, -rows.shape[1] % PART)).view(-1, PART)
    turned = torch.from_numpy(NoiseSource().directions(unit_directions(parts.double().numpy()), kappa)).float()
    return (turned * parts.norm(dim=1, keepdim=True)).view(len(rows), -1)[:, : rows.shape[1]]


def _draw(images: torch.Tensor, inverted: torch.Tensor, path: Path) -> None:
    """Eight originals above what the attacker made of them, three times enlarged."""
    rows = [torch.cat(list(part[:8, 0]), dim=1) for part in (images, inverted)]
    pixels = (torch.cat(rows) * 255).round().byte().numpy()
    Image.fromarray(pixels).resize((pixels.shape[1] * 3, pixels.shape[0] * 3), Image.Resampling.NEAREST).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Attacks on models with and without privacy.")
    parser.add_argument("what", choices=["membership", "success", "groups", "inversion"])
    parser.add_argument("--dataset", default="fashion_mnist", choices=[*GROUPS, "cifar10"], help="Of all but success.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--records", type=int, default=50, help="Of inversion.")
    parser.add_argument("--iterations", type=int, default=1000, help="Of inversion.")
    parser.add_argument("--pictures", type=Path, help="Folder for originals and inverted images.")
    parser.add_argument("--only", default="", help="Part of the name of a row, or of a noise.")
    options = parser.parse_args()
    ways = {"membership": membership, "success": success, "groups": groups, "inversion": inversion}
    report = ways[options.what](options)
    print_result(report | {"environment": provenance()})


if __name__ == "__main__":
    main()
