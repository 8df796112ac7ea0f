"""Attacks on models with and without privacy: membership and gradient inversion.

    python -m benchmarks.audits membership
    python -m benchmarks.audits success
    python -m benchmarks.audits inversion [--pictures FOLDER]

Membership: 2,000 Fashion-MNIST records per model, one target and eight references; networks trained without privacy,
the same by `dp_sgd` and by noisy directions, and samples of `moments`. Success: of the loss threshold on the first two,
and on scikit-learn's digits, without references. Inversion: 50 records, median of the squared
error over the public variance of pixels. Three seeds each.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import stats
from sklearn.datasets import load_digits

from benchmarks.directions import directions, train_without_books
from benchmarks.environment import PARTITION_KEY, dataset, provenance
from benchmarks.kept_results import print_result
from datalens_service.audits.audit import AuditSettings, Train
from datalens_service.audits.inversion import invert_gradients, observe_gradients, squared_errors
from datalens_service.audits.inversion_figures import InversionSettings
from datalens_service.audits.targets import rehearse, train_unprotected
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms.von_mises_fisher import unit_directions
from datalens_service.methods import DpSgd
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.privacy.accounting import mu_for_epsilon, mu_of_units
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.run import run
from datalens_service.spec import TrainingSpec

RECORDS_PER_MODEL = 2000
DELTA = 1e-5
SPREAD = 0.353
"""Public standard deviation of Fashion-MNIST pixels."""
NETWORKS = ("mlp", "lenet")
CONCENTRATIONS = (250.0, 150_000.0)
"""kappa; half of what directional privacy calls ε (Faustini et al. 2023)."""
NOISES = (("none", 0.0), ("gaussian", 1.0), *(("von_mises_fisher", kappa) for kappa in (25.0, *CONCENTRATIONS)))
"""With σ over the clipping norm, or with kappa."""


def membership(options: argparse.Namespace) -> dict[str, Any]:
    """Area under the curve of each attack, for each way of training."""
    ways: dict[str, tuple[Train, float | None]] = {}
    for network in ("mlp", "lenet_relu"):
        ways[f"{network}, no privacy"] = (_train_plainly(network), None)
        ways[f"{network}, dp_sgd, ε = 1"] = (_train_privately(1.0, network), mu_for_epsilon(1.0, DELTA))
        for kappa in CONCENTRATIONS:
            way = _train_by_directions(kappa, network), _mu_of_directions(kappa, network)
            ways[f"{network}, von Mises–Fisher, ε_V = {2 * kappa:g}"] = way
    ways["moments, ε = 1"] = (_draw_privately(1.0), mu_for_epsilon(1.0, DELTA))
    names = [name for name in ways if options.only in name]
    return {"records_per_model": RECORDS_PER_MODEL, "rows": [_row(name, *ways[name], options) for name in names]}


def success(options: argparse.Namespace) -> dict[str, Any]:
    """Share of right guesses of a loss threshold, one for all classes, beside the largest that μ allows."""
    mu = mu_for_epsilon(1.0, DELTA)
    ways = {"no privacy": (_train_plainly("mlp"), None), "dp_sgd, ε = 1": (_train_privately(1.0, "mlp"), mu)}
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


def _digits() -> Dataset:
    bunch = load_digits()
    images, labels = (bunch.images[..., None] * 15).astype(np.uint8), bunch.target.astype(np.int64)
    schema = Schema(channels=1, height=8, width=8, class_names=tuple("0123456789"), num_units=len(labels))
    return Dataset(schema, Split(images, labels), None, PARTITION_KEY)


def _row(name: str, train: Train, mu: float | None, options: argparse.Namespace) -> dict[str, Any]:
    began, audits = time.process_time(), []
    for seed in range(options.seeds):
        data = _part("fashion_mnist", 4 * RECORDS_PER_MODEL, seed)
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
    data = dataset(name)
    rows = np.random.default_rng(seed).choice(len(data.train.labels), records, replace=False)
    schema = data.schema.model_copy(update={"num_units": records})
    return Dataset(schema, Split(data.train.images[rows], data.train.labels[rows]), None, PARTITION_KEY)


def _train_plainly(network: str) -> Train:
    """Thirty passes of Adam, no clipping, no noise."""
    return lambda data, seed: train_unprotected(data, seed, passes=30, architecture=network)


def _train_privately(epsilon: float, network: str) -> Train:
    return _train_by({"name": "dp_sgd", "architecture": network, "steps": 10}, epsilon)


def _train_by_directions(kappa: float, network: str) -> Train:
    """Three passes of the same network over noisy directions."""
    return lambda data, seed: train_without_books(_by_directions(kappa, network), data, seed, NoiseSource())


def _by_directions(kappa: float, network: str) -> DpSgd:
    return DpSgd(
        architecture=network, steps=60, batch=100, sampling="partition", noise="von_mises_fisher", kappa=kappa,
        optimizer="adam", learning_rate=0.001, averaging=0.0,
    )  # fmt: skip


def _mu_of_directions(kappa: float, network: str) -> float:
    """Of all passes, by the price of the product."""
    schema = _part("fashion_mnist", RECORDS_PER_MODEL, 0).schema
    return mu_of_units(directions(_by_directions(kappa, network), schema).partition.units_zero_out)


def _draw_privately(epsilon: float) -> Train:
    return _train_by({"name": "moments"}, epsilon)


def _train_by(method: dict[str, Any], epsilon: float) -> Train:
    def train(data: Dataset, seed: int) -> Any:
        request = {"method": method, "epsilon": epsilon, "delta": DELTA, "seed": seed}
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
    return {"records": options.records, "iterations": options.iterations, "spread": SPREAD, "rows": rows}


def _invert(architecture: str, noise: str, strength: float, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    data = _part("fashion_mnist", options.records, seed)
    network = build_network({"architecture": architecture}, data.schema, seed)
    images = torch.from_numpy(data.train.images.transpose(0, 3, 1, 2) / 255).float()
    labels = torch.from_numpy(data.train.labels)
    observed = _observed(network, images, labels, noise, strength, seed)
    settings = InversionSettings(iterations=options.iterations, seed=seed)
    inverted = invert_gradients(network, observed, labels, images.shape[1:], settings)
    if options.pictures is not None and seed == 0:
        options.pictures.mkdir(parents=True, exist_ok=True)
        _draw(images, inverted, options.pictures / f"inversion-{architecture}-{noise}-{strength:g}.png")
    errors = squared_errors(inverted, images, SPREAD)
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
    random = torch.Generator().manual_seed(seed)
    clipped = rows * (1 / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1)
    return clipped + strength * torch.randn(rows.shape, generator=random)


def _draw(images: torch.Tensor, inverted: torch.Tensor, path: Path) -> None:
    """Eight originals above what the attacker made of them, three times enlarged."""
    rows = [torch.cat(list(part[:8, 0]), dim=1) for part in (images, inverted)]
    pixels = (torch.cat(rows) * 255).round().byte().numpy()
    Image.fromarray(pixels).resize((pixels.shape[1] * 3, pixels.shape[0] * 3), Image.Resampling.NEAREST).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Attacks on models with and without privacy.")
    parser.add_argument("what", choices=["membership", "success", "inversion"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--records", type=int, default=50, help="Of inversion.")
    parser.add_argument("--iterations", type=int, default=1000, help="Of inversion.")
    parser.add_argument("--pictures", type=Path, help="Folder for originals and inverted images.")
    parser.add_argument("--only", default="", help="Part of the name of a row, or of a noise.")
    options = parser.parse_args()
    report = {"membership": membership, "success": success, "inversion": inversion}[options.what](options)
    print_result(report | {"environment": provenance()})


if __name__ == "__main__":
    main()
