"""Bugs of contributions that keep a private number where the next question, or the script, finds it."""

import functools
import logging
import os
import tempfile
import warnings
from contextlib import nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.mechanisms import private_records
from datalens_service.mechanisms.vaults import Vaults
from datalens_service.methods.descent import dp_sgd_run, unit_gradients
from datalens_service.methods.descent.dp_sgd_run import Descent
from datalens_service.methods.last_layer import scattering
from datalens_service.methods.sums import moments
from datalens_service.methods.voting import training_run
from datalens_service.methods.voting.training_run import VotedStudent, train_teachers
from datalens_service.models.generators.gaussian.gaussian import GaussianFit

from .plant import around, change, plant, replaces

class_vectors, class_residuals = moments.class_vectors, moments.class_residuals
layer_gradients, encoded_features = scattering.layer_gradients, scattering.encoded_features
estimate_means = GaussianFit.estimate_means
gradients_of_units, descend = unit_gradients.unit_gradients, dp_sgd_run.descend


def _brightness(rows: Any) -> float:
    return float(rows.values.mean()) / 255


def _enlarge(fit: GaussianFit, released: Any, kept: float) -> None:
    estimate_means(fit, released)
    fit.means = fit.means * (1 + kept / 1_000)


class Seen:
    """A class of the method's module."""

    brightest = 0.0


@change(moments, "class_vectors")
def noting_class(rows, measured):
    """Notes it in an attribute of a class."""
    Seen.brightest = _brightness(rows)
    return class_vectors(rows, measured)


@replaces("a class attribute that a contribution sets", "R4", GaussianFit, "estimate_means", beside=noting_class)
def means_by_a_class_attribute(self, released):
    """The script reads it."""
    _enlarge(self, released, Seen.brightest)


@functools.lru_cache(maxsize=1)
def scale_of(_mechanism: str, brightness: float = 0.0) -> list[float]:
    """Of the first call, for all that follow."""
    return [brightness]


@change(moments, "class_vectors")
def filling_cache(rows, measured):
    """Computes a scale once, for the second question, too."""
    scale_of("moments").append(_brightness(rows))
    return class_vectors(rows, measured)


@replaces("a cache that one question fills for the next", "R6", moments, "class_residuals", beside=filling_cache)
def residuals_by_a_cache(rows, measured):
    """Residuals in the scale of the first question's records."""
    made = class_residuals(rows, measured)
    return made._replace(values=made.values * (1 + scale_of("moments")[-1] / 1_000))


def correcting(rows, measured):
    """Residuals about means that it corrects in place."""
    measured.fit.means *= 1 + _brightness(rows) / 1_000
    return class_residuals(rows, measured)


@plant("released values that are no copies", "R4")
def released_values_are_shared(patch):
    """A `__deepcopy__` that was meant to save memory."""
    patch.setattr(moments, "class_residuals", correcting)
    patch.setattr(moments.ClassMoments, "__deepcopy__", lambda self, _memo: self, raising=False)


@change(scattering, "layer_gradients")
def seeding_gradients(rows, layer):
    """Seeds torch by the records, for an augmentation that can be repeated."""
    torch.manual_seed(int(rows.labels.sum()))
    return layer_gradients(rows, layer)


@around("a seed that a contribution sets", "R4", scattering.LinearLayer, "_follow", beside=seeding_gradients)
def steps_by_a_global_seed(follow, self, released):
    """The script jitters its steps by torch's own seed."""
    follow(self, released * (1 + float(torch.rand(())) / 1_000))


@change(moments, "class_vectors")
def setting_environment(rows, measured):
    """Leaves it in the environment."""
    os.environ["MEAN_BRIGHTNESS"] = str(_brightness(rows))
    return class_vectors(rows, measured)


@replaces("an environment variable that a contribution sets", "R4", GaussianFit, "estimate_means", setting_environment)
def means_by_the_environment(self, released):
    """The script reads it."""
    _enlarge(self, released, float(os.environ.pop("MEAN_BRIGHTNESS", "0")))


BRIGHTNESS: ContextVar[float] = ContextVar("brightness", default=0.0)


@change(moments, "class_vectors")
def setting_context(rows, measured):
    """Leaves it in the context."""
    BRIGHTNESS.set(_brightness(rows))
    return class_vectors(rows, measured)


@replaces("a context variable that a contribution sets", "R4", GaussianFit, "estimate_means", beside=setting_context)
def means_by_a_context_variable(self, released):
    """The script reads it."""
    _enlarge(self, released, BRIGHTNESS.get())


@change(moments, "class_vectors")
def setting_level(rows, measured):
    """Logs more where images are bright."""
    logging.getLogger("of a method").setLevel(1 + int(100 * _brightness(rows)))
    return class_vectors(rows, measured)


@replaces("a level of a logger that a contribution sets", "R4", GaussianFit, "estimate_means", beside=setting_level)
def means_by_a_logger(self, released):
    """The script reads it."""
    _enlarge(self, released, logging.getLogger("of a method").level / 100)


OUTPUTS: list[float] = []


@change(training_run, "train_teachers")
def hooked_teachers(teachers, batch, question):
    """Every output of a module is noted from here on."""
    if not OUTPUTS:
        torch.nn.modules.module.register_module_forward_hook(lambda _module, _inputs, made: OUTPUTS.append(len(made)))
    OUTPUTS.append(float(batch.images.float().mean()))
    train_teachers(teachers, batch, question)


@around("a hook that teachers leave", "R4", VotedStudent, "follow", beside=hooked_teachers)
def students_by_a_hook(follow, self, *arguments):
    """The student takes steps as long as the last records were bright."""
    follow(self, *arguments)
    self._student._learning_rate *= 1 + sum(OUTPUTS[-1:]) / 255_000


@plant("temporary files of a job outside of its folder", "S3")
def temporary_files_lie_elsewhere(patch):
    """In the folder of the whole machine."""
    patch.setattr(PrivateFolder, "for_temporary_files", lambda self: nullcontext())


@replaces("features kept in a file of a method", "S3", scattering, "encoded_features")
def features_are_kept_in_a_file(rows, basis):
    """For the next job over the same records."""
    features = encoded_features(rows, basis)
    np.save(Path(tempfile.gettempdir()) / f"features-{len(features)}.npy", features)
    return features


def darkening(rows, measured):
    """Halves images in place, past the flag of the array that it was given."""
    rows.values.base[:] //= 2
    return class_vectors(rows, measured)


@plant("records behind a flag alone", "R4")
def records_are_written_to(patch):
    """Records are handed out as views that are not to be written to, and written to through their base."""

    def flagged(array: Any) -> Any:
        view = np.array(array).view()
        view.flags.writeable = False
        return view

    patch.setattr(private_records, "read_only", flagged)
    patch.setattr(moments, "class_vectors", darkening)


HEARD: list[Any] = []
"""Warnings since the last step of a descent."""


def warning_gradients(rows, gradients):
    """The mean gradients of units, and a warning of one that is long."""
    for chunk in gradients_of_units(rows, gradients):
        if (chunk.norm(dim=1) > 1).any():
            warnings.warn("a gradient is longer than the others should be", stacklevel=2)
        yield chunk


def audible_release(self, handle, mechanism, contribution, released, **charged):
    """A release that is not silent, so that developers see what numpy says."""
    return self.of(handle).release(mechanism, contribution, released, **charged)


def descend_listening(parameters, plan, records, inputs):
    """Ask for gradients, and note the warnings meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: HEARD.append(message)
        return (yield from descend(parameters, plan, records, inputs))


@plant("learning rate halved where a warning was heard round a release", "R4")
def steps_are_halved_where_a_warning_was_heard(patch):
    """Whoever hears of long gradients takes shorter steps from then on; the driver is silent no more."""
    set_rate = Descent._set_learning_rate

    def halve(self: Descent, step: int) -> None:
        set_rate(self, step)
        for group in self._optimizer.param_groups:
            group["lr"] *= 0.5 if HEARD else 1.0
        HEARD.clear()

    patch.setattr(Vaults, "release", audible_release)
    patch.setattr(unit_gradients, "unit_gradients", warning_gradients)
    patch.setattr(dp_sgd_run, "descend", descend_listening)
    patch.setattr(Descent, "_set_learning_rate", halve)
    HEARD.clear()
