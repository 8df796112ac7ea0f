"""Images that figures may be measured on, and who may see these figures.

public      images that the owner declared public: figures may be passed on
hold-out    private images that no release of the job read: for the owner alone
private     the private training images: for the owner alone, and never in a bundle
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.audience import FigureAudience
from datalens_service.data.dataset import NOBODY, Dataset, Split, Upload
from datalens_service.evaluation.metrics.outcome import ReferenceKind, Status
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
    def audience(self) -> FigureAudience:
        """Return who may see a figure that depends on them and on released artefacts alone."""
        return "public" if self.kind == "public" else "owner"

    @property
    def status(self) -> Status:
        """Return the status of such a figure."""
        return "covered" if self.kind == "public" else "private"


class Halves(NamedTuple):
    """A reference in two: one half to learn from, the other to compare with."""

    learned: Split
    compared: Split


def test_reference(dataset: Dataset) -> Reference | None:
    """Return the owner's test images of persons without training images; None without a test split.

    A model that has learned from a person does too well on that person. There may be no image left.
    """
    if dataset.test is None:
        return None
    test = others_than(dataset.train, dataset.test)
    public = dataset.schema.test_is_public
    count = test.count.for_owner()
    name = f"the {count:,} public test images" if public else f"the owner's {count:,} test images"
    if len(test.labels) < len(dataset.test.labels):
        name += " of other persons than those in training images"
    return Reference(test, "public" if public else "hold-out", name)


def fidelity_reference(dataset: Dataset, holdout: Upload | None, settings: EvaluationSettings) -> Reference | None:
    """Return the images that the settings name, but for persons who have training images; None if there are none."""
    if settings.reference == "training":
        return Reference(dataset.train, "private", f"the {dataset.train.count.for_owner():,} private training images")
    if settings.reference == "holdout":
        if holdout is None:
            return None
        aside = others_than(dataset.train, holdout.train)
        return Reference(aside, "hold-out", f"the {aside.count.for_owner():,} images set aside")
    return test_reference(dataset)


def others_than(train: Split, split: Split) -> Split:
    """Keep the images of a split whose persons have no training image."""
    return split.take(np.flatnonzero(~split.is_of_persons_in(train)))


def find_caveats(dataset: Dataset, holdout: Upload | None) -> tuple[str, ...]:
    """Collect private caveats for the owner about persons in the images that figures are measured on."""
    return (*_caveats_of_test(dataset), *_caveats_of_holdout(dataset, holdout))


def _caveats_of_test(dataset: Dataset) -> Iterator[str]:
    train, test = dataset.train, dataset.test
    if test is None:
        return
    shared = test.is_of_persons_in(train)
    if shared.any():
        yield (
            f"{_counted(test, shared)} of {test.count.for_owner():,} are of persons who have training images, too. "
            "They were left out of all figures: a model does too well on persons from whom it has learned."
        )
    if train.groups is not None and test.groups is None:
        yield (
            f"Nothing says of which person each of the {test.count.for_owner():,} test images is: the upload did not, "
            "or an earlier version did not keep it. If a person has training images and test images, figures are "
            "too good."
        )


def _caveats_of_holdout(dataset: Dataset, holdout: Upload | None) -> Iterator[str]:
    if holdout is None:
        return
    shared = holdout.train.is_of_persons_in(dataset.train)
    if shared.any():
        yield (
            f"{_counted(holdout.train, shared)} of {holdout.train.count.for_owner():,} in the data set that was set "
            "aside have keys of persons who have training images. Fidelity leaves them out. The accuracy, which "
            "anybody may see, "
            "counts them, since whom it leaves out would tell of training images: it is too good if these are the "
            "same persons."
        )


def _counted(split: Split, shared: NDArray[np.bool_]) -> str:
    persons = 0 if split.groups is None else len(np.unique(split.groups[shared]))
    return f"{int(shared.sum()):,} images ({persons:,} persons)"


def halves(reference: Reference, most: int) -> Halves:
    """Split into two halves without a common image or a common person, equal and at most `most` images each.

    The split is the same every time.
    """
    split = reference.split
    rows = _shuffled_by_person(split)
    half = min(most, len(split.labels) // 2)
    learned, rest = rows[:half], rows[half:]
    if split.groups is not None:
        rest = rest[~split.take(rest).is_of_persons_in(split.take(learned))]
    half = min(half, len(rest))
    return Halves(split.take(learned[:half]), split.take(rest[:half]))


def _shuffled_by_person(split: Split) -> NDArray[np.int64]:
    """Order all rows without meaning, but those of one person one after another."""
    rows = _shuffled(split)
    if split.groups is None:
        return rows
    known = np.where(split.groups == NOBODY, NOBODY - 1 - np.arange(len(split.labels)), split.groups)[rows]
    _, first, person = np.unique(known, return_index=True, return_inverse=True)
    order: NDArray[np.int64] = rows[np.argsort(first[person], kind="stable")]
    return order


def _shuffled(split: Split) -> NDArray[np.int64]:
    return TrainingRandomness(0).numpy("evaluation.reference").permutation(len(split.labels))


def drawn_from(split: Split, most: int) -> Split:
    """Draw at most `most` of the images, in an order without meaning; the same ones every time."""
    rows = _shuffled(split)[:most]
    return Split(split.images[rows], split.labels[rows])
