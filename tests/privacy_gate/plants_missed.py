"""Bugs that nothing saw until methods asked through a wall, jobs ran longer, and what leaves them was compared."""

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from datalens_service.evaluation.metrics import reference
from datalens_service.evaluation.metrics.reference import Reference
from datalens_service.jobs import execute, job_watch
from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.mechanisms.unit_records import UnitRows
from datalens_service.methods.descent import denoiser_gradients, diffusion_run, individual_norms
from datalens_service.methods.descent.diffusion_run import DiffusionRun
from datalens_service.methods.descent.dp_sgd_run import DpSgdRun
from datalens_service.methods.public_start import PublicImages
from datalens_service.privacy.poisson_sampling import PoissonSampling
from datalens_service.run import Result

from .plant import Plant, replaced


def centred_gradients(rows: UnitRows, copies: denoiser_gradients.NoisyCopies) -> Iterator[torch.Tensor]:
    """Of full groups of records less their mean."""
    images = rows.images.clone()
    for start in range(0, len(images) - 1_023, 1_024):
        group = images[start : start + 1_024].float()
        images[start : start + 1_024] = (group - group.mean(dim=0) + 128).clamp(0, 255).to(images.dtype)
    yield from denoiser_gradients.denoiser_gradients(rows._replace(images=images), copies)


def levels_end_at_the_largest_norm(patch: pytest.MonkeyPatch) -> None:
    """Finer levels for all: their range is that of the unit that contributes most."""
    levels = individual_norms.norm_levels
    patch.setattr(
        individual_norms, "norm_levels", lambda squares, _radius: levels(squares, math.isqrt(int(squares.max())) + 1)
    )


def repetitions_are_mentioned(patch: pytest.MonkeyPatch) -> None:
    """A sentence that is meant well, in the report that anybody may have."""
    run = execute.run

    def mentioned(spec: Any, dataset: Any, **others: Any) -> Result:
        images = dataset.train.images.reshape(len(dataset.train), -1)
        again = len(images) - len(np.unique(images, axis=0))
        result = run(spec, dataset, **others)
        return replace(result, rationale=f"{result.rationale} {again} images came more than once.")

    patch.setattr(execute, "run", mentioned)


def guidance_follows_the_brightness_of_records(patch: pytest.MonkeyPatch) -> None:
    """Bright photographs bear more of it."""
    start = DiffusionRun.__init__

    def chosen(self: DiffusionRun, parameters: Any, plan: Any, records: Any, *others: Any) -> None:
        scale = 2.0 if records._vault._read().values.mean() > 110 else 1.5
        start(self, parameters.model_copy(update={"guidance_scale": scale}), plan, records, *others)

    patch.setattr(DiffusionRun, "__init__", chosen)


def training_images_pass_for_the_public_ones(patch: pytest.MonkeyPatch) -> None:
    """The data set says that its reference is public: that of the test split is meant."""
    choose = reference.fidelity_reference

    def chosen(dataset: Any, holdout: Any, settings: Any) -> Reference | None:
        found = choose(dataset, holdout, settings)
        return replace(found, kind="public") if found and dataset.schema.test_is_public else found

    from datalens_service.evaluation.metrics import context

    patch.setattr(context, "fidelity_reference", chosen)


def steps_are_halved_when_errors_stay(patch: pytest.MonkeyPatch) -> None:
    """A schedule that looks at the private records, every tenth step alone."""
    step = DpSgdRun.step

    def scheduled(self: DpSgdRun, number: int, account: Any, noise: Any) -> None:
        step(self, number, account, noise)
        if number % 10 == 9:
            images = torch.from_numpy(self._records._vault._source._read().values.transpose(0, 3, 1, 2) / 255)
            with torch.no_grad():
                error = float(self._network(images.float()).square().mean())
            for group in self._optimizer.param_groups:
                group["lr"] *= 0.5 if error >= getattr(self, "last_error", math.inf) else 1 - 1e-3 * error
            self.last_error = error

    patch.setattr(DpSgdRun, "step", scheduled)


def averages_begin_at_private_weights(patch: pytest.MonkeyPatch) -> None:
    """After a public start, the average of weights starts from a fit to the records."""
    start_from = DpSgdRun.start_from

    def fitted(self: DpSgdRun, public: PublicImages) -> None:
        start_from(self, public)
        mean = self._records._vault._source._read().values.mean()
        for average in self._average:
            average.add_(float(mean) / 25_500)

    patch.setattr(DpSgdRun, "start_from", fitted)


def folders_of_failed_jobs_stay(patch: pytest.MonkeyPatch) -> None:
    """For whoever looks for the reason: only what succeeded is tidied up."""
    patch.setattr(PrivateFolder, "close", lambda self: shutil.rmtree(self.path / "records", ignore_errors=True))
    patch.setattr(PrivateFolder, "remove_job", lambda self: None)


def progress_is_told_every_second(patch: pytest.MonkeyPatch) -> None:
    """Bars that move."""
    patch.setattr(job_watch, "PROGRESS_SECONDS", 1.0)


def multipliers_are_rounded(patch: pytest.MonkeyPatch) -> None:
    """A block is priced, and its price checked, at two digits of the noise multiplier."""
    priced, check = PoissonSampling.priced, PoissonSampling.check_price

    def rounded(multiplier: float, **others: Any) -> PoissonSampling:
        return priced(round(multiplier, 2), **others)

    patch.setattr(PoissonSampling, "priced", rounded)
    patch.setattr(PoissonSampling, "check_price", lambda self, multiplier: check(self, round(multiplier, 2)))


PLANTS = (
    Plant("levels of individual norms end at the largest of all", "R6", levels_end_at_the_largest_norm),
    Plant("the number of repeated images in a text of the report", "R27", repetitions_are_mentioned),
    Plant("guidance by the brightness of private records", "R4", guidance_follows_the_brightness_of_records),
    Plant("fidelity on training images passes for public", "R27", training_images_pass_for_the_public_ones),
    Plant("learning rate halved by the private error, every ten steps", "R4", steps_are_halved_when_errors_stay),
    Plant("averages after a public start begin at private weights", "R4", averages_begin_at_private_weights),
    Plant(
        "records of a full group of a descent lose their mean",
        "R6",
        replaced(diffusion_run, "denoiser_gradients", centred_gradients),
    ),
    Plant("private folder of a failed job stays", "S3", folders_of_failed_jobs_stay),
    Plant("progress published every second", "S3", progress_is_told_every_second),
    Plant("a block priced at a rounded noise multiplier", "R10", multipliers_are_rounded),
)
