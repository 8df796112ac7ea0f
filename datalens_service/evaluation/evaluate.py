"""Measures the usefulness of a generator on the owner's test split, with floors and ceiling beside it.

Everything here reads private images without a charge. Its result is for the owner alone, and every measure says
so. What the observer hears (epochs done, epochs in all) depends on the settings only.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from datalens_service.data.dataset import Dataset, Images, Labels, Split
from datalens_service.evaluation import downstream, floors
from datalens_service.evaluation.measures import Measure
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.models.generator import Generator

PHASE = "evaluation"

Observe = Callable[[str, int, int], None]
Draw = Callable[[int], tuple[Images, Labels]]


def evaluate(
    generator: Generator,
    dataset: Dataset,
    *,
    settings: EvaluationSettings,
    epsilon: float,
    delta: float,
    device: str,
    observe: Observe,
    floor_generator: Generator | None = None,
) -> list[Measure]:
    """Accuracy of classifier A on the owner's test images, trained on synthetic, floor and real images.

    Args:
        generator: What the job released.
        dataset: Its private data set.
        settings: What to measure and how often.
        epsilon: Of the job, for floor A (zero-out).
        delta: Of the job.
        device: Where the classifier is trained.
        observe: Called with (phase, epochs done, epochs in all); it may raise to stop.
        floor_generator: A moments generator at the same budget, for floor B; None leaves floor B out.

    Returns:
        Private measures; none if the data set has no test split or the settings are off.
    """
    if dataset.test is None or not settings.enabled:
        return []
    with_moments = settings.floors and floor_generator is not None
    epochs = settings.epochs * (1 + with_moments) + settings.ceiling * _ceiling_epochs(
        settings, dataset.schema.num_units
    )
    bench = _Bench(dataset.test, dataset.schema.num_classes, settings, device, observe, settings.seeds * epochs)
    measures = [_trained_on_samples("accuracy", generator, bench)]
    if settings.floors:
        measures.append(_floor_averages(dataset, bench, epsilon, delta))
    if settings.floors and floor_generator is not None:
        measures.append(_trained_on_samples("floor_moments", floor_generator, bench))
    if settings.ceiling:
        measures.append(_ceiling(dataset, bench))
    return measures


@dataclass
class _Bench:
    """One test split and one protocol for every training set; counts the epochs done."""

    test: Split
    num_classes: int
    settings: EvaluationSettings
    device: str
    observe: Observe
    epochs_in_all: int
    epochs_done: int = field(default=0, init=False)

    def accuracies(self, draw: Draw, epochs: int) -> list[float]:
        """Accuracy of classifier A per seed, each trained on `draw(seed)`."""
        return [self._accuracy(*draw(seed), epochs, seed) for seed in range(self.settings.seeds)]

    def _accuracy(self, images: Images, labels: Labels, epochs: int, seed: int) -> float:
        return downstream.accuracy(
            images,
            labels,
            self.test.images,
            self.test.labels,
            self.num_classes,
            epochs=epochs,
            seed=seed,
            device=self.device,
            observe=self._epoch_done,
        )

    def _epoch_done(self, _done: int, _epochs: int) -> None:
        self.epochs_done += 1
        self.observe(PHASE, self.epochs_done, self.epochs_in_all)


def _trained_on_samples(name: str, generator: Generator, bench: _Bench) -> Measure:
    """Classifier A on images of `generator`; every seed draws its own."""
    count, epochs = bench.settings.synthetic_images, bench.settings.epochs
    values = bench.accuracies(lambda seed: generator.sample(count, seed=seed), epochs)
    return _private_percent(name, values, _classifier_protocol(f"{count:,} synthetic images", epochs, bench))


def _ceiling(dataset: Dataset, bench: _Bench) -> Measure:
    """Classifier A on the real training images."""
    train = dataset.train
    epochs = _ceiling_epochs(bench.settings, dataset.schema.num_units)
    values = bench.accuracies(lambda _seed: (train.images, train.labels), epochs)
    protocol = _classifier_protocol(f"{len(train):,} real training images", epochs, bench)
    return _private_percent("ceiling", values, protocol)


def _ceiling_epochs(settings: EvaluationSettings, num_units: int) -> int:
    """A small real set is passed over more often, so that it gets no fewer steps than the synthetic one.

    The number of units is public; the number of records may not be.
    """
    return max(settings.epochs, -(-settings.epochs * settings.synthetic_images // num_units))


def _floor_averages(dataset: Dataset, bench: _Bench, epsilon: float, delta: float) -> Measure:
    """Nearest noisy class average; every seed draws its own noise."""
    values = [
        floors.class_average_accuracy(
            dataset.train,
            bench.test,
            bench.num_classes,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            records_per_unit=dataset.schema.records_per_unit,
        )
        for seed in range(bench.settings.seeds)
    ]
    protocol = (
        f"nearest of {bench.num_classes} class averages, released once by a Gaussian mechanism with "
        f"ε = {epsilon:g} at δ = {delta:g} (zero-out), computed for comparison and not charged; "
        f"tested on {_reference(bench)}"
    )
    return _private_percent("floor_averages", values, protocol)


def _classifier_protocol(training_set: str, epochs: int, bench: _Bench) -> str:
    return f"{downstream.PROTOCOL}, {epochs} epochs on {training_set}; tested on {_reference(bench)}"


def _reference(bench: _Bench) -> str:
    return f"the owner's {len(bench.test):,} test images"


def _private_percent(name: str, values: Sequence[float], protocol: str) -> Measure:
    return Measure(
        name=name,
        value=statistics.fmean(values),
        unit="percent",
        audience="owner",
        status="private",
        protocol=protocol,
        spread=statistics.stdev(values) if len(values) > 1 else None,
        seeds=len(values),
    )
