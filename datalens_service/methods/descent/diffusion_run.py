"""The training loop of a denoiser: noisy gradients of records move it, after it has learned from released samples."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Dataset
from datalens_service.errors import InvalidSpec
from datalens_service.mechanisms import Account, GradientChunk, GradientSum
from datalens_service.methods.base import ExecutionOptions, Plan
from datalens_service.methods.descent.descent_state import descent_state, restore_descent
from datalens_service.methods.descent.diffusion_parameters import DiffusionParameters
from datalens_service.methods.descent.dp_sgd_run import summed_units
from datalens_service.methods.descent.ordered_records import OrderedRecords, Records, whole_units
from datalens_service.methods.descent.record_noise import NoiseBank, hash_images
from datalens_service.methods.last_layer.scattering import ScatteringGradientsRun
from datalens_service.methods.public_start import PublicImages
from datalens_service.methods.sums.record_sums import StatelessRun
from datalens_service.models.generators.denoiser.denoiser import Denoiser, loss_weight
from datalens_service.models.generators.denoiser.denoiser_fit import fit_denoiser, update_average
from datalens_service.models.generators.denoiser.denoiser_shape import DenoiserShape
from datalens_service.models.generators.denoiser.diffusion import pack
from datalens_service.models.generators.generator import Generator
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.randomness import Booleans, NoiseSource, TrainingRandomness

_STEPS_PER_STATE: Final = 25
_RECORDS_PER_GROUP: Final = 1024
"""Whose noisy copies are made together."""

_HIDES_REJECTION: Final = 2.0
"""Noise on pixels from -1 to 1 after which a rejected sample of the warm start is as good to begin at as another."""

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
        dataset: Dataset,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        gradients = plan.releases[-1]
        if not isinstance(gradients.mechanism, GradientSum):
            raise TypeError("the last releases of a diffusion plan are gradients")
        self._parameters, self._schema, self._randomness = parameters, dataset.schema, randomness
        self._mechanism, self._count = gradients.mechanism, gradients.count
        self._warm = parameters.warm_start.create_run(Plan(releases=plan.releases[:-1]), dataset, randomness, options)
        self._device = torch.device(options.device)
        self._records = OrderedRecords(dataset, options.device)
        self._divisor = summed_units(gradients.mechanism, dataset.schema.num_units)
        shape = DenoiserShape(dataset.schema, parameters.width, parameters.blocks)
        self._network = Denoiser(shape, randomness.seed("denoiser")).to(self._device)
        self._per_record = PerRecordGradients(_PackedDenoiser(self._network, parameters.noise_draws), _error)
        self._weights: list[Tensor] = list(self._network.parameters())
        self._average = [weight.detach().clone() for weight in self._weights]
        self._optimizer = torch.optim.Adam(self._weights, parameters.learning_rate, betas=_MOMENTS)
        self._start: Generator | None = None
        self._first_step = 0
        self._followed_gradient = False

    def start_from(self, public: PublicImages) -> None:
        """Let the classifier of the warm start begin with public images.

        Raises:
            InvalidSpec: The images have another size, or the warm start has no such classifier.
        """
        if not isinstance(self._warm, ScatteringGradientsRun):
            raise InvalidSpec(self._parameters.refusal_of_public_data())
        self._warm.start_from(public)

    @property
    def steps(self) -> int:
        """Those of the warm start, then one for each gradient."""
        return self._warm.steps + self._count

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
        contributions = partial(self._gradients, step)
        self._follow(self._mechanism.release(contributions, step=step, account=account, noise=noise), step)
        if (step + 1) % _STEPS_PER_STATE == 0:
            account.advance(step + 1, self._released_state())

    def result(self) -> Generator:
        """The denoiser with the average of its weights so far and its start; before any gradient, the warm start."""
        parameters, start = self._parameters, self.initial_generator()
        if not self._followed_gradient:
            return start
        names = [name for name, _ in self._network.named_parameters()]
        denoiser = {name: _array(value) for name, value in zip(names, self._average, strict=True)}
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
        images, labels = self.initial_generator().sample(
            parameters.pretraining_samples, seed=self._randomness.seed("pretraining.samples")
        )
        seed = self._randomness.seed("pretraining")
        fit_denoiser(self._network, images, labels, steps=parameters.pretraining_steps, seed=seed)
        for average, weight in zip(self._average, self._weights, strict=True):
            average.copy_(weight.detach())

    def _gradients(self, step: int, coins: Booleans) -> Iterator[GradientChunk]:
        """Private: the gradient of every record in the batch, units side by side."""
        records = self._records.sampled(coins)
        bank = NoiseBank.draw(self._schema.dimensions, self._randomness.numpy("denoiser.noise", step), self._device)
        return whole_units(self._rows(records, bank), records.units)

    def _rows(self, records: Records, bank: NoiseBank) -> Iterator[Tensor]:
        """Private (records, weights) gradients, chunk by chunk."""
        groups = (torch.split(values, _RECORDS_PER_GROUP) for values in (records.images, records.labels))
        for images, labels in zip(*groups, strict=True):
            yield from self._per_record.chunks(self._noisy(images, labels, bank))

    def _noisy(self, images: Tensor, labels: Tensor, bank: NoiseBank) -> list[Tensor]:
        """Private: packed noisy copies of records, and the records without noise."""
        draws = self._parameters.noise_draws
        stddevs, noise = bank.choose(hash_images(images), draws)
        clean = images.flatten(1).to(torch.float32) / 127.5 - 1
        copies = clean[:, None] + stddevs[:, :, None] * noise
        one_hot = functional.one_hot(labels, self._schema.num_classes).to(torch.float32)
        return [torch.cat([copies.flatten(1), stddevs, one_hot], dim=1), clean]

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
        tensors = {name: np.asarray(value, np.float32) for name, value in _part(state, _START).items()}
        self._start = Generator(header["kind"], self._schema, header["settings"], tensors)
        restore_descent(_part(state, _DESCENT), self._weights, self._average, self._optimizer)


class _PackedDenoiser(nn.Module):
    """A denoiser that takes noisy copies of one record, their noise levels and the class in one row.

    Args:
        denoiser: Whose weights are differentiated by.
        draws: Copies.
    """

    def __init__(self, denoiser: Denoiser, draws: int) -> None:
        super().__init__()
        self.denoiser, self._draws = denoiser, draws

    def forward(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """(draws, d) images without noise, and weights (draws,) of their errors, of one row (1, …)."""
        schema, draws = self.denoiser.shape.schema, self._draws
        sizes = [draws * schema.dimensions, draws, schema.num_classes]
        copies, stddevs, one_hot = torch.split(packed, sizes, dim=1)
        images = copies.view(draws, schema.channels, schema.height, schema.width)
        denoised = self.denoiser(images, stddevs[0], one_hot.expand(draws, -1))
        return denoised.flatten(1), loss_weight(stddevs[0])


def _error(denoised: tuple[Tensor, Tensor], _packed: Tensor, clean: Tensor) -> Tensor:
    """Weighted squared error of one record, averaged over its noisy copies."""
    images, weights = denoised
    return (weights * (images - clean).square().mean(dim=1)).mean()


def _part(state: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _array(value: Tensor) -> NDArray[np.float32]:
    return np.array(value.detach().cpu().numpy())
