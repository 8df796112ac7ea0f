"""The training loop of DP-GAN: noisy gradients of records and exact ones of generated images move a discriminator."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from datalens_service.mechanisms import Account
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import ExecutionOptions, Plan
from datalens_service.methods.descent.dp_sgd import DpSgd
from datalens_service.methods.descent.dp_sgd_run import DpSgdRun
from datalens_service.methods.descent.iterates import descent_state, restore_descent
from datalens_service.methods.sums.moments import Moments, MomentsRun
from datalens_service.methods.sums.record_sums import StatelessRun
from datalens_service.models.discriminator import image_directions, logits_of_labels
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.networks import build_network
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.models.released import select_part
from datalens_service.models.trainer import StudentTrainer
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

_CLASS_HIDDEN = 128
_FREQUENCIES = 64
_STEPS_PER_STATE = 50
"""Of a sampled run: so many sums are kept until the state takes their place."""


@dataclass(frozen=True)
class GeneratorSchedule:
    """How the generator learns; the fields of `DpGan`, in short.

    Attributes:
        generator: Architecture, unless there is a warm start.
        z_dim: Length of its latent vector.
        refiner_width: Maps of the network after a warm start.
        averaging: Decay of the average of its weights.
        images: Generated per step.
        updates: Steps of the discriminator for one of the generator.
        warm_start: Released first, or None.
    """

    generator: str
    z_dim: int
    refiner_width: int
    learning_rate: float
    averaging: float
    images: int
    updates: int
    warm_start: Moments | None


def real_loss(logits: Tensor, _image: Tensor, label: Tensor) -> Tensor:
    """Of a record: −log sigmoid of the output of its class."""
    return -functional.logsigmoid(logits_of_labels(logits, label)).sum()


def generated_loss(logits: Tensor, _image: Tensor, label: Tensor) -> Tensor:
    """Of a generated image."""
    return -functional.logsigmoid(-logits_of_labels(logits, label)).sum()


class DiscriminatorRun(DpSgdRun):
    """DP-SGD on a discriminator: the loss of records is private, that of generated images is added exactly."""

    loss = staticmethod(real_loss)
    generated: tuple[Tensor, Tensor]
    """Released images (n, d) and labels (n,) of the step."""

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """One gradient; whoever holds the generator keeps the state of both."""
        self._follow_gradient(step, account, noise)

    def descent_state(self) -> dict[str, NDArray[Any]]:
        """Released: where the descent stands."""
        return descent_state(self._weights(), self._average, self._optimizer)

    def restore_descent(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from what `descent_state` gave."""
        restore_descent(state, self._weights(), self._average, self._optimizer)

    def directions(self, images: Tensor, labels: Tensor) -> NDArray[np.float32]:
        """(n, d): where generated images look more real."""
        return image_directions(self._network, self._schema, images, labels)

    def _apply_gradient(self, gradient: NDArray[np.float64]) -> None:
        """The released gradient of records and the exact one of as much weight of generated images."""
        super()._apply_gradient(gradient + self._generated_gradient())

    def _generated_gradient(self) -> NDArray[np.float64]:
        """Mean over generated images of gradients clipped as those of records are: a function of released numbers."""
        images, labels = self.generated
        schema, clip_norm = self._schema, self._parameters.clip_norm
        shaped = images.view(-1, schema.channels, schema.height, schema.width)
        total = torch.zeros(self.mechanism.dimensions, dtype=torch.float64)
        for rows in PerRecordGradients(self._network, generated_loss).chunks([shaped, labels]):
            norms = rows.norm(dim=1, keepdim=True)
            total += (rows * (clip_norm / norms.clamp(min=clip_norm))).sum(dim=0).to("cpu", torch.float64)
        return np.asarray((total / len(images)).numpy())


class DpGanRun(StatelessRun):
    """A run of DP-GAN in progress.

    Private: gradients of records. Released: noisy sums; discriminator and generator are functions of them.
    """

    def __init__(
        self,
        descent: DpSgd,
        schedule: GeneratorSchedule,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._schedule, self._randomness, self._schema = schedule, randomness, records.schema
        self._warm = MomentsRun(schedule.warm_start, plan, records) if schedule.warm_start else None
        self._warm_steps = self._warm.steps if self._warm else 0
        gradients = Plan(releases=plan.releases[-1:])
        self._discriminator = DiscriminatorRun(descent, gradients, records, randomness, options)
        self._first_step = self._warm_steps
        self._generator = StudentTrainer(
            build_network(self._architecture(), self._schema, randomness.seed("student")),
            self._schema,
            options.device,
            learning_rate=schedule.learning_rate,
            averaging=schedule.averaging,
        )

    @property
    def steps(self) -> int:
        """Releases of the warm start and gradients."""
        return self._warm_steps + self._discriminator.steps

    def may_stop_before(self, step: int) -> bool:
        """There is a generator after the warm start, or after the first gradient."""
        return step >= max(1, self._warm_steps)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """A release of the warm start, or a step of the discriminator and now and then one of the generator."""
        if self._warm and step < self._warm_steps:
            self._warm.step(step, account, noise)
            if step == self._warm_steps - 1:
                self._generator.load_initial(self._warm.result().tensors)
            return
        if step == self._warm_steps:
            self._continue_from(account)
        if step >= self._first_step:
            self._follow_gradient(step, account, noise)

    def _follow_gradient(self, step: int, account: Account, noise: NoiseSource) -> None:
        self._discriminator.generated = self._propose("generated", step)
        self._discriminator.step(step, account, noise)
        if (step - self._warm_steps + 1) % self._schedule.updates == 0:
            images, labels = self._propose("latent", step)
            self._generator.update(self._discriminator.directions(images, labels), 1.0)
        if self._discriminator.mechanism.sampling is not None and (step + 1) % _STEPS_PER_STATE == 0:
            account.advance(step + 1, self._state_of_both())

    def _state_of_both(self) -> dict[str, NDArray[Any]]:
        """Released: discriminator and generator after a step."""
        parts = {"discriminator": self._discriminator.descent_state(), "generator": self._generator.state()}
        return {f"{part}/{name}": value for part, named in parts.items() for name, value in named.items()}

    def _continue_from(self, account: Account) -> None:
        """Take up the state that stands in the place of the first sums."""
        latest = account.latest()
        if latest is None:
            return
        self._first_step, state = latest
        self._discriminator.restore_descent(select_part(state, "discriminator/"))
        self._generator.restore(select_part(state, "generator/"))

    def result(self) -> Generator:
        """The generator after the steps so far."""
        return Generator("network", self._schema, self._generator.settings(), self._generator.tensors())

    def initial_generator(self) -> Generator | None:
        """The warm start, before any gradient."""
        return self._warm.result() if self._warm else None

    def _propose(self, purpose: str, step: int) -> tuple[Tensor, Tensor]:
        return self._generator.propose(self._randomness.seed(purpose, step), self._schedule.images)

    def _architecture(self) -> dict[str, Any]:
        schedule, dimensions = self._schedule, self._schema.dimensions
        if schedule.warm_start is not None:
            rank = schedule.warm_start.basis_columns(self._schema)
            return {"architecture": "refined", "rank": rank, "width": schedule.refiner_width}
        if schedule.generator == "deconv":
            return {"architecture": "student", "z_dim": schedule.z_dim}
        frequencies = min(_FREQUENCIES, dimensions)
        return {
            "architecture": "class_networks", "z_dim": schedule.z_dim, "frequencies": frequencies,
            "hidden": _CLASS_HIDDEN,
        }  # fmt: skip
