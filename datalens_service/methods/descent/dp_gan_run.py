"""The training loop of DP-GAN: noisy gradients of records and exact ones of generated images move a discriminator."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.mechanisms.unit_records import UnitRecords
from datalens_service.methods.base import Plan
from datalens_service.methods.descent.dp_sgd import DpSgd
from datalens_service.methods.descent.dp_sgd_run import Descent
from datalens_service.methods.descent.unit_gradients import choose_question
from datalens_service.methods.script import Ask, Kept, Outcome, RunInputs, Script
from datalens_service.methods.sums.moments import Moments
from datalens_service.models.discriminator import image_directions, logits_of_labels
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.networks import build_network
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.models.released import join_parts, select_part
from datalens_service.models.trainer import StudentTrainer

_CLASS_HIDDEN = 128
_FREQUENCIES = 64
_STEPS_PER_STATE = 50
"""A sampled run keeps so many sums before its state takes their place."""


@dataclass(frozen=True)
class GeneratorSchedule:
    """The training schedule of the generator; the fields of `DpGan`, in short.

    Attributes:
        generator: Architecture, unless there is a warm start.
        z_dim: Length of its latent vector.
        refiner_width: Maps of the network after a warm start.
        averaging: Decay of the average of its weights.
        images: Images generated per step.
        updates: Steps of the discriminator for one of the generator.
        warm_start: The method that is released first, or None.
    """

    generator: str
    z_dim: int
    refiner_width: int
    learning_rate: float
    averaging: float
    images: int
    updates: int
    warm_start: Moments | None


def play(
    parameters: DpSgd, schedule: GeneratorSchedule, plan: Plan, records: PrivateRecords, inputs: RunInputs
) -> Script:
    """Ask for the sums of the warm start, then for gradients; the generator follows the discriminator now and then."""
    schema, gradients, start = records.schema, plan.releases[-1], None
    first = warm_steps = plan.steps - gradients.count
    discriminator = DiscriminatorDescent(parameters, gradients, schema, inputs)
    generator = _build_generator(schedule, schema, inputs)
    units = UnitRecords(records, inputs.options.device)
    if schedule.warm_start is not None:
        start = (yield from schedule.warm_start.run(Plan(releases=plan.releases[:-1]), records, inputs)).generator
        generator.load_initial(start.tensors)
    if inputs.resumed is not None:
        first = inputs.resumed.step
        discriminator.restore(select_part(inputs.resumed.state, "discriminator/"))
        generator.restore(select_part(inputs.resumed.state, "generator/"))

    def outcome() -> Outcome:
        return Outcome(Generator("network", schema, generator.settings(), generator.tensors()), start)

    def propose(purpose: str, step: int) -> tuple[Tensor, Tensor]:
        return generator.propose(inputs.randomness.seed(purpose, step), schedule.images)

    def state_before(step: int) -> Kept | None:
        if gradients.mechanism.block() is None or step == first or step % _STEPS_PER_STATE:
            return None
        return Kept(join_parts({"discriminator/": discriminator.state(), "generator/": generator.state()}))

    for step in range(first, plan.steps):
        keep, discriminator.generated = state_before(step), propose("generated", step)
        contribution, seen = choose_question(discriminator.gradients, parameters)
        released = yield Ask(units, gradients.mechanism, contribution, seen, outcome, keep)
        discriminator.follow(released, step)
        if (step - warm_steps + 1) % schedule.updates == 0:
            images, labels = propose("latent", step)
            generator.update(discriminator.directions(images, labels), 1.0)
    return outcome()


def _build_generator(schedule: GeneratorSchedule, schema: Schema, inputs: RunInputs) -> StudentTrainer:
    return StudentTrainer(
        build_network(_choose_architecture(schedule, schema), schema, inputs.randomness.seed("student")),
        schema,
        inputs.options.device,
        learning_rate=schedule.learning_rate,
        averaging=schedule.averaging,
    )


def _choose_architecture(schedule: GeneratorSchedule, schema: Schema) -> dict[str, Any]:
    if schedule.warm_start is not None:
        rank = schedule.warm_start.basis_columns(schema)
        return {"architecture": "refined", "rank": rank, "width": schedule.refiner_width}
    if schedule.generator == "deconv":
        return {"architecture": "student", "z_dim": schedule.z_dim}
    return {
        "architecture": "class_networks", "z_dim": schedule.z_dim,
        "frequencies": min(_FREQUENCIES, schema.dimensions), "hidden": _CLASS_HIDDEN,
    }  # fmt: skip


def real_loss(logits: Tensor, _image: Tensor, label: Tensor) -> Tensor:
    """Compute −log sigmoid of the output for a record's class."""
    return -functional.logsigmoid(logits_of_labels(logits, label)).sum()


def generated_loss(logits: Tensor, _image: Tensor, label: Tensor) -> Tensor:
    """Compute −log(1 − sigmoid) of the output for a generated image's class."""
    return -functional.logsigmoid(-logits_of_labels(logits, label)).sum()


class DiscriminatorDescent(Descent):
    """DP-SGD on a discriminator: the loss of records is private, that of generated images is added exactly."""

    loss = staticmethod(real_loss)
    generated: tuple[Tensor, Tensor]
    """Released images (n, d) and labels (n,) of the step."""

    def directions(self, images: Tensor, labels: Tensor) -> NDArray[np.float32]:
        """Return the directions (n, d) in which generated images look more real."""
        return image_directions(self._network, self._schema, images, labels)

    def _apply_gradient(self, gradient: NDArray[np.float64]) -> None:
        super()._apply_gradient(gradient + self._generated_gradient())

    def _generated_gradient(self) -> NDArray[np.float64]:
        """Average gradients of generated images, clipped as those of records are: a function of released numbers."""
        images, labels = self.generated
        schema, clip_norm = self._schema, self._parameters.clip_norm
        shaped = images.view(-1, schema.channels, schema.height, schema.width)
        total = torch.zeros(self.mechanism.dimensions, dtype=torch.float64)
        for rows in PerRecordGradients(self._network, generated_loss).chunks([shaped, labels]):
            norms = rows.norm(dim=1, keepdim=True)
            total += (rows * (clip_norm / norms.clamp(min=clip_norm))).sum(dim=0).to("cpu", torch.float64)
        return np.asarray((total / len(images)).numpy())
