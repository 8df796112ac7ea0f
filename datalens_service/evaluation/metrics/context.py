"""The view of a metric: whatever its `reads` names, and nothing that is more private."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from datalens_service.base.errors import PersonsInBothSplits
from datalens_service.data.dataset import Dataset, Schema, Split, Upload
from datalens_service.evaluation.metrics.classifier_benchmark import ClassifierBenchmark, StepCounter
from datalens_service.evaluation.metrics.classifiers import JudgeClassifier
from datalens_service.evaluation.metrics.outcome import OWNER_ONLY, PublicFacts, Reads, Standing
from datalens_service.evaluation.metrics.reference import Reference, fidelity_reference, test_reference
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.models.generators.generator import Generator

PRIVATE_READS = ("figures on test images", "baselines and figures of training images")

Value = TypeVar("Value")

_PERMITTED: Final[dict[Reads, frozenset[Reads]]] = {
    "public": frozenset(),
    "released": frozenset({"released"}),
    "test": frozenset({"released", "test"}),
    "reference": frozenset({"released", "reference"}),
    "training": frozenset({"released", "test", "reference", "training"}),
}


class UndeclaredRead(TypeError):
    """A metric looks at images that its `Metric.reads` does not name."""


@dataclass(frozen=True)
class EvaluatedModel:
    """The model that is measured, and everything that it is measured with.

    Attributes:
        generator: The generator that the job released.
        dataset: Its private dataset.
        epsilon: ε of the job (zero-out), for the baseline of noisy class averages.
        folder: Private; for files in the making.
        moments_generator: A moments generator at the same budget; None leaves that baseline out.
        holdout: A dataset that was set aside, or None.
        inception_weights: The operator's file, or None.
    """

    generator: Generator
    dataset: Dataset
    epsilon: float
    delta: float
    device: str
    folder: Path
    moments_generator: Generator | None = None
    holdout: Upload | None = None
    inception_weights: Path | None = None


@dataclass(frozen=True)
class Sources:
    """Everything an evaluation has. Private: metrics see it through a `Context`.

    Attributes:
        test: Test images; None without a test split.
        reference: Images for fidelity; None without any.
        shared: Results that several metrics use, by standing and key.
    """

    subject: EvaluatedModel
    settings: EvaluationSettings
    test: Reference | None
    reference: Reference | None
    shared: dict[tuple[Standing, Hashable], Any] = field(default_factory=dict)

    @classmethod
    def from_job(cls, subject: EvaluatedModel, settings: EvaluationSettings) -> Self:
        """Collect the images that the settings name, as far as they exist."""
        reference = fidelity_reference(subject.dataset, subject.holdout, settings) if settings.fidelity else None
        return cls(subject, settings, test_reference(subject.dataset), reference)

    def facts(self) -> PublicFacts:
        return PublicFacts(
            settings=self.settings,
            num_units=self.subject.dataset.schema.num_units,
            has_test=self.test is not None,
            has_reference=self.reference is not None,
            has_moments=self.subject.moments_generator is not None,
        )

    def standing(self, reads: Reads) -> Standing:
        """Tell who may see figures that were computed from these images."""
        if reads == "public":
            return Standing("public", "public")
        if reads == "released":
            return Standing("public", "covered")
        images = {"test": self.test, "reference": self.reference}.get(reads)
        return OWNER_ONLY if images is None else Standing(images.audience, images.status)


class Context:
    """The images that one metric may look at."""

    def __init__(self, sources: Sources, reads: Reads, progress: StepCounter) -> None:
        self._sources = sources
        self._reads = reads
        self.progress = progress
        self.settings: EvaluationSettings = sources.settings
        self.schema: Schema = sources.subject.dataset.schema
        self.epsilon: float = sources.subject.epsilon
        self.delta: float = sources.subject.delta
        self.device: str = sources.subject.device
        self.folder: Path = sources.subject.folder
        self.inception_weights: Path | None = sources.subject.inception_weights

    @property
    def generator(self) -> Generator:
        self._check("released")
        return self._sources.subject.generator

    @property
    def test_images(self) -> Reference:
        return self._images("test", self._sources.test)

    @property
    def reference(self) -> Reference:
        """Return the images that synthetic ones are compared with for fidelity."""
        return self._images("reference", self._sources.reference)

    @property
    def reference_is_public(self) -> bool:
        """Tell whether everybody may see figures of the reference."""
        return self._sources.reference is not None and self._sources.reference.kind == "public"

    @property
    def training_images(self) -> Split:
        self._check("training")
        return self._sources.subject.dataset.train

    @property
    def moments_generator(self) -> Generator:
        """Return a `moments` generator at the same budget, not charged: as private as the training images."""
        self._check("training")
        if (generator := self._sources.subject.moments_generator) is None:
            raise UndeclaredRead("There is no moments generator; the metric must ask for it.")
        return generator

    def benchmark(self, classifier: JudgeClassifier) -> ClassifierBenchmark:
        """Trains a classifier and tests it on the test images."""
        return ClassifierBenchmark(self.test_images, self.schema, self.settings, classifier, self.device, self.progress)

    def once(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Compute a result once for several metrics; only metrics with the same audience share it."""
        place = (self._sources.standing(self._reads), key)
        if place not in self._sources.shared:
            self._sources.shared[place] = compute()
        value: Value = self._sources.shared[place]
        return value

    def recall(self, key: Hashable) -> Any:
        """Return the result that `once` computed; None if it did not."""
        return self._sources.shared.get((self._sources.standing(self._reads), key))

    def _images(self, kind: Reads, images: Reference | None) -> Reference:
        if images is None:
            raise UndeclaredRead(f"There are no {kind} images; the metric must ask for them.")
        if images.kind != "public":
            self._check(kind)
        if not len(images.split.labels):
            raise PersonsInBothSplits("All of these images are of persons who have training images.")
        return images

    def _check(self, kind: Reads) -> None:
        if kind not in _PERMITTED[self._reads]:
            raise UndeclaredRead(f"A metric that reads {self._reads} looked at {kind} images.")
