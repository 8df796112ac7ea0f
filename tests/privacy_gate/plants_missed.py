"""Bugs that nothing saw until methods asked through a wall, jobs ran longer, and what leaves them was compared."""

import math
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from datalens_service.evaluation.metrics import context
from datalens_service.jobs import execute, job_watch
from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.methods.descent import denoiser_gradients, diffusion_run, dp_sgd_run, individual_norms
from datalens_service.methods.descent.dp_sgd_run import Descent
from datalens_service.privacy.poisson_sampling import PoissonSampling

from .plant import around, change, plant, replaces, vault_of
from .plants_wall import VAULTS, remembered_units


@replaces("records of a full group of a descent lose their mean", "R6", diffusion_run, "denoiser_gradients")
def centred_gradients(rows, copies):
    """Of full groups of records less their mean."""
    images = rows.images.clone()
    for start in range(0, len(images) - 1_023, 1_024):
        group = images[start : start + 1_024].float()
        images[start : start + 1_024] = (group - group.mean(dim=0) + 128).clamp(0, 255).to(images.dtype)
    yield from denoiser_gradients.denoiser_gradients(rows._replace(images=images), copies)


@around("levels of individual norms end at the largest of all", "R6", individual_norms, "norm_levels")
def levels_end_at_the_largest_norm(levels, squares, _radius):
    """Finer levels for all: their range is that of the unit that contributes most."""
    return levels(squares, math.isqrt(int(squares.max())) + 1)


@around("the number of repeated images in a text of the report", "R27", execute, "run")
def repetitions_are_mentioned(run, spec, dataset, **others):
    """A sentence that is meant well, in the report that anybody may have."""
    images = dataset.train.images.reshape(len(dataset.train.labels), -1)
    again = len(images) - len(np.unique(images, axis=0))
    result = run(spec, dataset, **others)
    return replace(result, rationale=f"{result.rationale} {again} images came more than once.")


@around("guidance by the brightness of private records", "R4", diffusion_run, "denoise")
def guidance_follows_the_brightness_of_records(denoise, parameters, plan, records, inputs):
    """Bright photographs bear more of it."""
    scale = 2.0 if vault_of(records)._read().values.mean() > 110 else 1.5
    return denoise(parameters.model_copy(update={"guidance_scale": scale}), plan, records, inputs)


@around("fidelity on training images passes for public", "R27", context, "fidelity_reference")
def training_images_pass_for_the_public_ones(choose, dataset, holdout, settings):
    """The data set says that its reference is public: that of the test split is meant."""
    found = choose(dataset, holdout, settings)
    return replace(found, kind="public") if found and dataset.schema.test_is_public else found


@around(
    "learning rate halved by the private error, every ten steps", "R4", Descent, "follow", beside=remembered_units
)  # fmt: skip
def steps_are_halved_when_errors_stay(follow, self, released, step):
    """A schedule that looks at the private records, every tenth step alone."""
    follow(self, released, step)
    if step % 10 == 9:
        images = torch.from_numpy(VAULTS[-1]._source._read().values.transpose(0, 3, 1, 2) / 255)
        with torch.no_grad():
            error = float(self._network(images.float()).square().mean())
        for group in self._optimizer.param_groups:
            group["lr"] *= 0.5 if error >= getattr(self, "last_error", math.inf) else 1 - 1e-3 * error
        self.last_error = error


BRIGHTNESS: list[float] = []
"""Of the records of a job that starts from public images."""
descend = dp_sgd_run.descend


@change(dp_sgd_run, "descend")
def remembered_brightness(parameters, plan, records, inputs):
    """As the product, and not forgotten."""
    BRIGHTNESS[:] = [] if inputs.public is None else [float(vault_of(records)._read().values.mean())]
    return descend(parameters, plan, records, inputs)


@around(
    "averages after a public start begin at private weights", "R4", Descent, "__init__", beside=remembered_brightness
)  # fmt: skip
def averages_begin_at_private_weights(start, self, *arguments):
    """After a public start, the average of weights starts from a fit to the records."""
    start(self, *arguments)
    for average in self._average:
        average.add_(sum(BRIGHTNESS) / 25_500)


@plant("private folder of a failed job stays", "S3")
def folders_of_failed_jobs_stay(patch):
    """For whoever looks for the reason: only what succeeded is tidied up."""
    patch.setattr(PrivateFolder, "close", lambda self: shutil.rmtree(self.path / "records", ignore_errors=True))
    patch.setattr(PrivateFolder, "remove_job", lambda self: None)


@plant("progress published every second", "S3")
def progress_is_told_every_second(patch):
    """Bars that move."""
    patch.setattr(job_watch, "PROGRESS_SECONDS", 1.0)


@plant("a block priced at a rounded noise multiplier", "R10")
def multipliers_are_rounded(patch):
    """A block is priced, and its price checked, at two digits of the noise multiplier."""
    priced, check = PoissonSampling.priced, PoissonSampling.check_price

    def rounded(multiplier: float, **others: Any) -> PoissonSampling:
        return priced(round(multiplier, 2), **others)

    patch.setattr(PoissonSampling, "priced", rounded)
    patch.setattr(PoissonSampling, "check_price", lambda self, multiplier: check(self, round(multiplier, 2)))
