"""The training loop of a denoiser: noisy gradients of records move it, after it has learned from released samples."""

import json
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.base.progress import tell_part
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum, PlannedRelease
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.mechanisms.unit_records import UnitRecords
from datalens_service.methods.base import Plan
from datalens_service.methods.descent.denoiser_gradients import NoisyCopies, denoiser_gradients
from datalens_service.methods.descent.diffusion_parameters import DiffusionParameters
from datalens_service.methods.descent.dp_sgd_parameters import summed_units
from datalens_service.methods.descent.iterates import copy_array, descent_state, restore_descent
from datalens_service.methods.last_layer.scattering import ScatteringGradients
from datalens_service.methods.script import Ask, Kept, Outcome, RunInputs, Script, as_start
from datalens_service.models.generators.denoiser.denoiser import Denoiser, fit_denoiser, update_average
from datalens_service.models.generators.denoiser.denoiser_shape import DenoiserShape
from datalens_service.models.generators.denoiser.diffusion import pack
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import select_part

_STEPS_PER_STATE: Final = 25
_HIDES_REJECTION: Final = 2.0
"""Noise on pixels from -1 to 1, after which a rejected sample of the warm start is as good a start as an accepted one.
"""

_CHOOSING: Final = 0.25
"""Share of the time for learning in which samples are drawn, if most are rejected."""
_WARMUP_STEPS: Final = 20
_LAST_RATE: Final = 0.05
_MOMENTS: Final = (0.9, 0.99)
_START = "start/"
_DESCENT = "descent/"
_HEADER = "header"


def denoise(parameters: DiffusionParameters, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
    """Ask for the sums of the warm start, learn from its samples, then ask for gradients and follow each.

    Private: records. Released: noisy sums; the denoiser is a function of them and of samples of the warm start.
    """
    gradients, resumed = plan.releases[-1], inputs.resumed
    denoiser = NoisyDenoiser(parameters, gradients, records.schema, inputs)
    units, first = UnitRecords(records, inputs.options.device), plan.steps - gradients.count
    if resumed is None:
        begin = parameters.warm_start.run(Plan(releases=plan.releases[:-1]), records, inputs)
        denoiser.learn_from((yield from as_start(begin)).generator)
    else:
        denoiser.restore(resumed.state, resumed.step - first)
    for step in range(first if resumed is None else resumed.step, plan.steps):
        # Nobody draws a batch again, nor learns from samples again.
        due = step == first or step % _STEPS_PER_STATE == 0
        keep = Kept(denoiser.state()) if due and (resumed is None or step > resumed.step) else None
        copies = denoiser.copies._replace(seed=inputs.randomness.seed("denoiser.noise", step))
        asked = Ask(units, gradients.mechanism, denoiser_gradients, copies, denoiser.outcome, keep)
        denoiser.follow((yield asked), step - first)
    return denoiser.outcome()


class NoisyDenoiser:
    """A denoiser that starts from released samples and follows released gradients, and the average of its weights."""

    start: Generator

    def __init__(
        self, parameters: DiffusionParameters, gradients: PlannedRelease, schema: Schema, inputs: RunInputs
    ) -> None:
        if not isinstance(gradients.mechanism, GradientSum):
            raise TypeError("the last releases of a diffusion plan are gradients")
        self._parameters, self._schema, self._inputs = parameters, schema, inputs
        self._count, self._made = gradients.count, 0
        self._divisor = summed_units(gradients.mechanism, schema.num_units)
        shape = DenoiserShape(schema, parameters.width, parameters.blocks)
        self._network = Denoiser(shape, inputs.randomness.seed("denoiser")).to(torch.device(inputs.options.device))
        self.copies = NoisyCopies.from_denoiser(self._network, parameters.noise_draws)
        self._weights: list[Tensor] = list(self._network.parameters())
        self._average = [weight.detach().clone() for weight in self._weights]
        self._optimizer = torch.optim.Adam(self._weights, parameters.learning_rate, betas=_MOMENTS)

    def learn_from(self, start: Generator) -> None:
        """Learn from samples of the warm start, to begin with."""
        self.start, parameters, seed = start, self._parameters, self._inputs.randomness.seed
        share = _CHOOSING if isinstance(parameters.warm_start, ScatteringGradients) else 0.0
        drawing, fitting = (tell_part(self._inputs.options.tell, *part) for part in ((0.0, share), (share, 1.0)))
        images, labels = start.to_learn_from().sample(
            parameters.pretraining_samples,
            seed=seed("pretraining.samples"),
            observe=lambda drawn, asked: drawing(drawn / asked),
        )
        steps = parameters.pretraining_steps
        fit_denoiser(self._network, images, labels, steps=steps, seed=seed("pretraining"), tell=fitting)
        for average, weight in zip(self._average, self._weights, strict=True):
            average.copy_(weight.detach())

    def follow(self, released: NDArray[np.float64], done: int) -> None:
        """Take one step of Adam along a noisy sum of gradients, divided by a public number.

        Args:
            released: Sum over all weights.
            done: Steps before it.
        """
        rate = min(1.0, (done + 1) / _WARMUP_STEPS) * max(_LAST_RATE, min(1.0, 2 - 2 * done / self._count))
        for group in self._optimizer.param_groups:
            group["lr"] = self._parameters.learning_rate * rate
        whole = torch.from_numpy(released / self._divisor).to(self._weights[0].device, torch.float32)
        parts = torch.split(whole, [weight.numel() for weight in self._weights])
        for weight, part in zip(self._weights, parts, strict=True):
            weight.grad = part.view_as(weight).clone()
        self._optimizer.step()
        update_average(self._average, self._weights, done, self._parameters.averaging)
        self._made = done + 1

    def outcome(self) -> Outcome:
        """Return the denoiser with averaged weights, and its start; before any gradient, the warm start alone."""
        parameters, start = self._parameters, self.start
        if not self._made:
            return Outcome(start, start)
        names = [name for name, _ in self._network.named_parameters()]
        denoiser = {name: copy_array(value) for name, value in zip(names, self._average, strict=True)}
        settings: dict[str, Any] = {
            **self._network.shape.settings(),
            "path": parameters.path,
            "start_stddev": parameters.start_stddev,
            "start_proposals": parameters.start_stddev is not None and parameters.start_stddev >= _HIDES_REJECTION,
            "end_stddev": parameters.last_stddev(),
            "guidance_scale": parameters.strength_of_guidance(),
            "start": {"kind": start.kind, "settings": start.settings},
        }
        model = Generator("diffusion", self._schema, settings, pack(denoiser, start.tensors))
        return Outcome(model.with_class_shares(start.class_shares), start)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the released state: position of the descent, and the warm start."""
        header = json.dumps({"kind": self.start.kind, "settings": self.start.settings}).encode()
        descent = descent_state(self._weights, self._average, self._optimizer)
        state = {_DESCENT + name: value for name, value in descent.items()}
        state |= {_START + name: value for name, value in self.start.tensors.items()}
        return state | {_HEADER: np.frombuffer(header, dtype=np.uint8)}

    def restore(self, state: dict[str, NDArray[Any]], made: int) -> None:
        """Continue from `state`, after so many gradients."""
        header, self._made = json.loads(state[_HEADER].tobytes()), made
        tensors = {name: np.asarray(value, np.float32) for name, value in select_part(state, _START).items()}
        self.start = Generator(header["kind"], self._schema, header["settings"], tensors)
        restore_descent(select_part(state, _DESCENT), self._weights, self._average, self._optimizer)
