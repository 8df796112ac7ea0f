"""What figures may be measured on, and who may see them then.

public      images that the owner declared public: figures may be passed on
hold-out    private images that no release of the job read: for the owner alone
private     the private training images: for the owner alone, and never in a bundle
"""

from dataclasses import dataclass
from typing import NamedTuple

from datalens_service.data.dataset import Dataset, Split, Upload
from datalens_service.evaluation.metrics.outcome import Audience, ReferenceKind, Status
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.privacy.randomness import TrainingRandomness

PRIVATE_READS = ("figures on test images", "figures of the classifier on test images", "fidelity")


@dataclass(frozen=True)
class Reference:
    """Real images to measure on."""

    split: Split
    kind: ReferenceKind
    name: str

    @property
    def audience(self) -> Audience:
        """Who may see a figure that depends on them and on released artefacts alone."""
        return "public" if self.kind == "public" else "owner"

    @property
    def status(self) -> Status:
        """What such a figure is."""
        return "covered" if self.kind == "public" else "private"


class Halves(NamedTuple):
    """A reference in two: one half to learn from, the other to compare with."""

    learned: Split
    compared: Split


def test_reference(dataset: Dataset) -> Reference | None:
    """The owner's test images; None without a test split."""
    if dataset.test is None:
        return None
    public = dataset.schema.test_is_public
    name = (
        f"the {len(dataset.test):,} public test images" if public else f"the owner's {len(dataset.test):,} test images"
    )
    return Reference(dataset.test, "public" if public else "hold-out", name)


def fidelity_reference(dataset: Dataset, holdout: Upload | None, settings: EvaluationSettings) -> Reference | None:
    """What the settings name; None if it is not there."""
    if settings.reference == "training":
        return Reference(dataset.train, "private", f"the {len(dataset.train):,} private training images")
    if settings.reference == "holdout":
        if holdout is None:
            return None
        return Reference(holdout.train, "hold-out", f"the {len(holdout.train):,} images set aside")
    return test_reference(dataset)


def halves(reference: Reference, most: int) -> Halves:
    """Two halves without a common image, at most `most` images each; the same ones every time."""
    half = min(most, len(reference.split) // 2)
    both = drawn_from(reference.split, 2 * half)
    images, labels = both.images, both.labels
    return Halves(Split(images[:half], labels[:half]), Split(images[half:], labels[half:]))


def drawn_from(split: Split, most: int) -> Split:
    """At most `most` of the images, in an order without meaning; the same ones every time."""
    rows = TrainingRandomness(0).numpy("evaluation.reference").permutation(len(split))[:most]
    return Split(split.images[rows], split.labels[rows])
