"""Gradient inversion of an owner's records: from a raw gradient, and from what a method releases of it.

Figures and picture depend on private records: they are for the owner alone, and not to be passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from datalens_service.audits.audit import AuditResult, split_generator, take_units
from datalens_service.audits.inversion_figures import (
    InversionFigures,
    InversionSettings,
    ReconstructionErrors,
    measure_errors,
)
from datalens_service.audits.targets import ARCHITECTURE
from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Dataset, Images, Schema
from datalens_service.data.export.png import encode_private_png
from datalens_service.mechanisms import GradientSum, VonMisesFisherSum
from datalens_service.mechanisms.private_records import Rows
from datalens_service.mechanisms.unit_records import as_tensors
from datalens_service.methods import AnyMethod, DpSgd, Plan
from datalens_service.privacy.randomness import TrainingRandomness

if TYPE_CHECKING:
    from torch import Tensor

PRIVATE_READS = ("attacks",)

NO_MODEL: Final = AuditResult(result="gradient", mu=None, units_per_model=1, references=0, attacks=(), classes=())
"""The result of an audit without attacks on membership."""
_SHOWN: Final = 8
_SMALLEST_SIDE: Final = 56
_SMALLEST_SPREAD: Final = 1e-3
_GAP: Final = 2


class Reconstruction(NamedTuple):
    """The results of inversion, and a picture of some.

    `picture` is a PNG: originals, below them images from the raw gradient, then images from the released one.
    """

    figures: InversionFigures
    picture: bytes


def check_invertible(schema: Schema, method: AnyMethod | None) -> None:
    """Refuse methods and data sets that have no gradient of a single record.

    Args:
        method: None without privacy.

    Raises:
        InvalidSpec: The method is not `dp_sgd`, or a unit may have several records.
    """
    if method is not None and not isinstance(method, DpSgd):
        raise InvalidSpec("inversion attacks gradients of a classifier: choose dp_sgd, or a network without privacy.")
    if schema.unit != "record" or schema.records_per_unit > 1:
        raise InvalidSpec("inversion attacks the gradient of one record; a unit of this data set may have several.")


def invert_records(
    dataset: Dataset,
    method: DpSgd | None,
    plan: Plan | None,
    records: int,
    settings: InversionSettings,
    on_iteration: Callable[[], None] = lambda: None,
) -> Reconstruction:
    """Invert the gradients of single records at the first weights of a network.

    Args:
        method: The method whose contributions are attacked; None for a network without privacy.
        plan: Plan of the whole job, which says how noisy a release is; None without privacy.
        on_iteration: Called before each; may raise to end the search.

    Raises:
        InvalidSpec: The data set has no gradients of single records.
    """
    check_invertible(dataset.schema, method)
    chosen = _choose(dataset, records, settings.seed)
    search = _Search(chosen, method, plan, settings, on_iteration)
    raw = search.invert(search.raw())
    released = None if plan is None else search.invert(search.released())
    shown = [search.images] + [images for images in (raw, released) if images is not None]
    return Reconstruction(search.figures(raw, released), _draw(shown))


class _Search:
    """The attacked records and the network, with weights that the seed makes public."""

    def __init__(
        self,
        chosen: Dataset,
        method: DpSgd | None,
        plan: Plan | None,
        settings: InversionSettings,
        on_iteration: Callable[[], None],
    ) -> None:
        import torch

        from datalens_service.models.classifiers.architectures import build_network

        self._chosen, self._method, self._plan, self._settings = chosen, method, plan, settings
        self._on_iteration = on_iteration
        self._architecture = ARCHITECTURE if method is None else method.architecture
        # The seed purpose of a run of dp_sgd: these are the weights of its first step.
        seed = TrainingRandomness(settings.seed).seed("classifier")
        self._network = build_network({"architecture": self._architecture}, chosen.schema, seed)
        pixels = np.ascontiguousarray(chosen.train.images.transpose(0, 3, 1, 2))
        self.images, self._labels = torch.from_numpy(pixels).float() / 255, torch.from_numpy(chosen.train.labels)

    def raw(self) -> Tensor:
        """Return the gradients without clipping and noise."""
        from datalens_service.audits.inversion import observe_gradients

        return observe_gradients(self._network, self.images, self._labels)

    def released(self) -> Tensor:
        """Return the gradients as the method would release each, in a batch of one."""
        from datalens_service.audits.inversion import observe_releases
        from datalens_service.methods.descent.unit_gradients import choose_question, image_gradients

        if self._method is None or self._plan is None:
            raise TypeError("without a method nothing is released")
        contribution, seen = choose_question(image_gradients(self._network, self._chosen.schema), self._method)
        train = self._chosen.train
        rows = as_tensors(Rows(train.images, train.labels, train.unit_ids), "cpu")
        return observe_releases(self._plan.releases[0].mechanism, contribution(rows, seen))

    def invert(self, observed: Tensor) -> Tensor:
        """Search images by their contributions."""
        from datalens_service.audits.inversion import invert_gradients

        shape = self.images.shape[1:]
        return invert_gradients(self._network, observed, self._labels, shape, self._settings, self._on_iteration)

    def figures(self, raw: Tensor, released: Tensor | None) -> InversionFigures:
        """State the errors of both searches."""
        mechanism = None if self._plan is None else self._plan.releases[0].mechanism
        return InversionFigures(
            architecture=self._architecture,
            records=len(self.images),
            iterations=self._settings.iterations,
            restarts=self._settings.restarts,
            noise="none" if self._method is None else self._method.noise,
            noise_multiplier=mechanism.noise_multiplier() if isinstance(mechanism, GradientSum) else None,
            kappa=mechanism.kappa if isinstance(mechanism, VonMisesFisherSum) else None,
            raw=self._errors(raw),
            released=None if released is None else self._errors(released),
        )

    def _errors(self, inverted: Tensor) -> ReconstructionErrors:
        from datalens_service.audits.inversion import squared_errors

        spread = max(float(self.images.std(correction=0)), _SMALLEST_SPREAD)
        return measure_errors(squared_errors(inverted, self.images, spread).numpy().astype(np.float64))


def _choose(dataset: Dataset, records: int, seed: int) -> Dataset:
    units = split_generator(dataset, seed).permutation(np.unique(dataset.train.unit_ids))[:records]
    return take_units(dataset, np.sort(units))


def _draw(shown: list[Tensor]) -> bytes:
    """Stack the images, enlarged to a visible size."""
    rows: list[Images] = [
        np.ascontiguousarray((images[:_SHOWN] * 255).round().byte().numpy().transpose(0, 2, 3, 1)) for images in shown
    ]
    factor = -(-_SMALLEST_SIDE // min(rows[0].shape[1:3]))
    lines = [np.concatenate([_framed(image, factor) for image in row], axis=1) for row in rows]
    return encode_private_png(np.concatenate(lines, axis=0))


def _framed(image: Images, factor: int) -> Images:
    enlarged = image.repeat(factor, axis=0).repeat(factor, axis=1)
    return np.pad(enlarged, ((0, _GAP), (0, _GAP), (0, 0)), constant_values=255)
