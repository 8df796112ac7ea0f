"""The training loop of a denoiser: noisy gradients of records move it, after it has learned from released samples."""

import json
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.errors import InvalidSpec
from datalens_service.mechanisms import Account, GradientSum
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.mechanisms.unit_records import UnitRecords
from datalens_service.methods.base import ExecutionOptions, Plan, step_lengths
from datalens_service.methods.descent.denoiser_gradients import NoisyCopies, denoiser_gradients
from datalens_service.methods.descent.diffusion_parameters import DiffusionParameters
from datalens_service.methods.descent.dp_sgd_parameters import summed_units
from datalens_service.methods.descent.iterates import copy_array, descent_state, restore_descent
from datalens_service.methods.last_layer.scattering import ScatteringGradientsRun
from datalens_service.methods.public_start import PublicImages
from datalens_service.methods.sums.record_sums import StatelessRun
from datalens_service.models.generators.denoiser.denoiser import BATCH, Denoiser, fit_denoiser, update_average
from datalens_service.models.generators.denoiser.denoiser_shape import DenoiserShape
from datalens_service.models.generators.denoiser.diffusion import pack
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import select_part
from datalens_service.phases import tell_part
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

_STEPS_PER_STATE: Final = 25
_HIDES_REJECTION: Final = 2.0
"""Noise on pixels from -1 to 1 after which a rejected sample of the warm start is as good to begin at as another."""

_LEARNING_LENGTH: Final = 0.27
"""Times a record's gradient, to learn from a sample once."""
_CHOOSING: Final = 0.25
"""Part of that time in which samples are drawn, if most are rejected."""
_WARMUP_STEPS: Final = 20
_LAST_RATE: Final = 0.05
_MOMENTS: Final = (0.9, 0.99)
_START = "start/"
_DESCENT = "descent/"
_HEADER = "header"


class DiffusionRun(StatelessRun):
    """Releases of the warm start, then gradients of the denoiser.

    Private: records. Released: noisy sums; the denoiser is a function of them and of samples of the warm start.
    """

    def __init__(
        self,
        parameters: DiffusionParameters,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        gradients = plan.releases[-1]
        if not isinstance(gradients.mechanism, GradientSum):
            raise TypeError("the last releases of a diffusion plan are gradients")
        self._parameters, self._schema, self._randomness = parameters, records.schema, randomness
        self._mechanism, self._count = gradients.mechanism, gradients.count
        self._warm = parameters.warm_start.start_run(Plan(releases=plan.releases[:-1]), records, randomness, options)
        self._device, self._tell = torch.device(options.device), options.tell
        self._records = UnitRecords(records, options.device)
        self._divisor = summed_units(gradients.mechanism, records.schema.num_units)
        shape = DenoiserShape(records.schema, parameters.width, parameters.blocks)
        self._network = Denoiser(shape, randomness.seed("denoiser")).to(self._device)
        self._copies = NoisyCopies.from_denoiser(self._network, parameters.noise_draws)
        self._weights: list[Tensor] = list(self._network.parameters())
        self._average = [weight.detach().clone() for weight in self._weights]
        self._optimizer = torch.optim.Adam(self._weights, parameters.learning_rate, betas=_MOMENTS)
        self._start: Generator | None = None
        self._first_step = 0
        self._followed_gradient = False

    def start_from(self, public: PublicImages) -> None:
        """Let the classifier of the warm start begin with public images."""
        if not isinstance(self._warm, ScatteringGradientsRun):
            raise InvalidSpec(self._parameters.refusal_of_public_data())
        self._warm.start_from(public)

    @property
    def steps(self) -> int:
        """Those of the warm start, then one for each gradient."""
        return self._warm.steps + self._count

    def lengths(self) -> dict[int, int]:
        """Those of the warm start, and the samples that the denoiser sees before its first gradient."""
        parameters = self._parameters
        batch = self._divisor * self._schema.records_per_unit * parameters.noise_draws
        learned = parameters.pretraining_steps * BATCH / batch
        return step_lengths(self._warm) | {self._warm.steps: 1 + round(_LEARNING_LENGTH * learned)}

    def may_stop_before(self, step: int) -> bool:
        """The warm start is a generator; the block of gradients does not fit after a crash that lost a release."""
        return step >= self._warm.steps

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """A release of the warm start, or one noisy gradient and a step of the optimizer along it."""
        if step == 0:
            self._continue_from(account)
        if step < self._first_step:
            return
        if step < self._warm.steps:
            self._warm.step(step, account, noise)
            return
        if self._first_step < step == self._warm.steps:
            self._learn_from_samples()
            account.advance(step, self._released_state())
        seen = self._copies._replace(seed=self._randomness.seed("denoiser.noise", step))
        released = self._records.release(
            self._mechanism, denoiser_gradients, seen, step=step, account=account, noise=noise
        )
        self._follow(released, step)
        if (step + 1) % _STEPS_PER_STATE == 0:
            account.advance(step + 1, self._released_state())

    def result(self) -> Generator:
        """The denoiser with the average of its weights so far and its start; before any gradient, the warm start."""
        parameters, start = self._parameters, self.initial_generator()
        if not self._followed_gradient:
            return start
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
        return Generator("diffusion", self._schema, settings, pack(denoiser, start.tensors))

    def initial_generator(self) -> Generator:
        """The warm start by itself."""
        if self._start is None:
            model = self._warm.result()
            if not isinstance(model, Generator):
                raise TypeError("a denoiser starts from a generator")
            self._start = model
        return self._start

    def _learn_from_samples(self) -> None:
        parameters = self._parameters
        share = _CHOOSING if isinstance(self._warm, ScatteringGradientsRun) else 0.0
        drawing, fitting = tell_part(self._tell, 0.0, share), tell_part(self._tell, share, 1.0)
        images, labels = self.initial_generator().sample(
            parameters.pretraining_samples,
            seed=self._randomness.seed("pretraining.samples"),
            observe=lambda drawn, asked: drawing(drawn / asked),
        )
        seed = self._randomness.seed("pretraining")
        fit_denoiser(self._network, images, labels, steps=parameters.pretraining_steps, seed=seed, tell=fitting)
        for average, weight in zip(self._average, self._weights, strict=True):
            average.copy_(weight.detach())

    def _follow(self, released: NDArray[np.float64], step: int) -> None:
        """One step of Adam along a noisy sum of gradients, divided by a public number."""
        done = step - self._warm.steps
        rate = min(1.0, (done + 1) / _WARMUP_STEPS) * max(_LAST_RATE, min(1.0, 2 - 2 * done / self._count))
        for group in self._optimizer.param_groups:
            group["lr"] = self._parameters.learning_rate * rate
        whole = torch.from_numpy(released / self._divisor).to(self._device, torch.float32)
        parts = torch.split(whole, [weight.numel() for weight in self._weights])
        for weight, part in zip(self._weights, parts, strict=True):
            weight.grad = part.view_as(weight).clone()
        self._optimizer.step()
        update_average(self._average, self._weights, done, self._parameters.averaging)
        self._followed_gradient = True

    def _released_state(self) -> dict[str, NDArray[Any]]:
        """Where the descent stands, and the warm start: functions of released sums."""
        start = self.initial_generator()
        header = json.dumps({"kind": start.kind, "settings": start.settings}).encode()
        descent = descent_state(self._weights, self._average, self._optimizer)
        state = {_DESCENT + name: value for name, value in descent.items()}
        state |= {_START + name: value for name, value in start.tensors.items()}
        return state | {_HEADER: np.frombuffer(header, dtype=np.uint8)}

    def _continue_from(self, account: Account) -> None:
        """Take up the state that stands in the place of the first sums."""
        latest = account.latest()
        if latest is None:
            return
        self._first_step, state = latest
        self._followed_gradient = self._first_step > self._warm.steps
        header = json.loads(state[_HEADER].tobytes())
        tensors = {name: np.asarray(value, np.float32) for name, value in select_part(state, _START).items()}
        self._start = Generator(header["kind"], self._schema, header["settings"], tensors)
        restore_descent(select_part(state, _DESCENT), self._weights, self._average, self._optimizer)
