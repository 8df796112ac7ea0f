"""Small labelled data sets, and runs on them without a service around."""

from typing import Any

import numpy as np

from datalens_service.data.dataset import Dataset, Schema, Split, Upload
from datalens_service.methods import Method, Plan
from datalens_service.privacy.budget import MemoryAccount
from tests.stepped_runs import SteppedRun


class NoNoise:
    """For comparing runs; a job cannot be given one."""

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)


def dataset(
    images: np.ndarray,
    labels: np.ndarray,
    names: tuple[str, ...] = ("a", "b"),
    records_per_unit: int = 1,
    units: np.ndarray | None = None,
    **declared: Any,
) -> Dataset:
    """Images (n, height, width, channels) of any numbers, cut to bytes; in their order so many to a unit."""
    count, height, width, channels = images.shape
    if records_per_unit > 1:
        units = np.arange(count) // records_per_unit if units is None else units
        classes = min(len(names), records_per_unit)
        declared = {"records_per_unit": records_per_unit, "classes_per_unit": classes, **declared}
    num_units = count if units is None else len(np.unique(units))
    schema = Schema(channels=channels, height=height, width=width, class_names=names, num_units=num_units, **declared)
    return Dataset(schema, Split(images.clip(0, 255).astype(np.uint8), labels, units), None, b"k" * 32)


def stripes(seed: int = 0, *, count: int = 400, side: int = 12, channels: int = 1, **declared: Any) -> Dataset:
    """Class 0 is bright above, class 1 below."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count)
    images = rng.integers(0, 60, (count, side, side, channels))
    images[labels == 0, : side // 2] += 150
    images[labels == 1, side // 2 :] += 150
    return dataset(images, labels, ("up", "down"), **declared)


def pool() -> Upload:
    """Images like the private stripes, under the name of one class, and half of them turned by a quarter."""
    like = stripes(seed=1)
    images = np.concatenate([like.train.images, np.rot90(like.train.images, axes=(1, 2))])
    schema = like.schema.model_copy(
        update={"class_names": ("thing",), "num_units": len(images), "records_are_public": True}
    )
    return Upload(schema, Split(images, np.zeros(len(images), np.int64)), None)


def share_of_pool_right(images: np.ndarray, labels: np.ndarray) -> float:
    """Of those images of the `pool` that show stripes and were not turned."""
    known = stripes(seed=1).train
    classes = {image.tobytes(): label for image, label in zip(known.images, known.labels, strict=True)}
    seen = [(classes.get(image.tobytes()), label) for image, label in zip(images, labels, strict=True)]
    return float(np.mean([own == given for own, given in seen if own is not None]))


def share_bright_right(images: np.ndarray, labels: np.ndarray) -> float:
    """Of any images of stripes: the brighter half is that of the label."""
    above, below = (half.mean(axis=(1, 2, 3)) for half in np.array_split(images, 2, axis=1))
    return float(np.mean((above > below) == (labels == 0)))


def start(method: Method, data: Dataset, plan: Plan | int, **inputs: Any) -> SteppedRun:
    """A run that has made no step yet.

    Args:
        plan: Or ledger units to plan for.
        inputs: As of `SteppedRun`.
    """
    return SteppedRun(method, method.plan(data.schema, plan) if isinstance(plan, int) else plan, data, **inputs)


def advance(run: SteppedRun, account: Any, last: int | None = None, noise: Any = None) -> Any:
    """The run after its steps up to `last`, or to the end."""
    training = run.begin(account)
    # How many there are may be decided on the way.
    while training.made < (training.plan.steps if last is None else last):
        run.step(training.made, account, noise)
        training.look()
    return run


def share_right(model: Any) -> float:
    """Of other `stripes`, by a classifier of them."""
    other = stripes(seed=1).train
    return float((model.predict(other.images).argmax(axis=1) == other.labels).mean())


def train(method: Method, data: Dataset, units: int, account: MemoryAccount | None = None, noise: Any = None) -> Any:
    """A run after its last step."""
    return advance(start(method, data, units), account or MemoryAccount(units), noise=noise)
