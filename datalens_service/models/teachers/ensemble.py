"""The teacher ensemble: N discriminators trained and differentiated in blocks, none of which sees another.

DataLens (CCS 2021), Algorithm 1: teacher i trains on its own shard and on synthetic images, then returns for
every synthetic image the direction in which it should move. Everything here is private until a mechanism has
released a noisy sum of it; losses are never computed as numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from datalens_service.base.errors import CheckpointMismatch, InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.models.adam import AdamState, adam_step
from datalens_service.models.teachers.base import TeacherBackend, reduced_precision_products
from datalens_service.models.teachers.base import block_bytes as usual_block_bytes
from datalens_service.models.teachers.networks import ARCHITECTURES, Parameters, Shape, TeacherNetwork
from datalens_service.models.teachers.partitions import TeacherPartition, local_blocks, partition_teachers
from datalens_service.models.teachers.tensor_store import GIBIBYTE, MEMORY_GIB, spill_to_file, total_bytes

_DRAWN_AT_ONCE: Final = 2**20

_Answer = Callable[[slice, Tensor, Tensor], Tensor]
"""The answer of a block of teachers to images (images, d) of classes (teachers, classes, images)."""


class TeacherEnsemble(TeacherBackend):
    """N teachers with stacked parameters and an optimiser state each.

    Formal guarantee: parameters, Adam moments and gradients of teacher i are a function of its own batches,
    of the synthetic images and of public numbers. No operation mixes entries of the first axis.

    Args:
        architecture: Key of `ARCHITECTURES`, or a network of one's own size.
        seed: Public seed of the initial weights, which depend on it, the partition and the kind of device.
        active: (local,) False for a teacher whose shard is empty: it never trains and its gradients are 0.
        partitions: Partitions of this rank's teachers, one after another; None: all teachers.
        memory_gib: Weights and optimiser states beyond so many GiB lie in a file without a name, all but the block
            in use. It changes speed, and no result.
        folder: Folder of that file, on a disk and private; None takes the system's folder for temporary files.
        block_bytes: Memory for the activations and gradients of the teachers handled at once; None chooses
            by device. It changes speed, and results by rounding only.
        coarse: True if a graphics processor may round the factors of matrix products (TF32).

    Attributes:
        large: True if it exceeds its limit of memory, on a graphics processor too: `state` is then too large to be
            kept between steps.
        in_basis: False: gradients are by pixels.

    Raises:
        InvalidSpec: Unknown architecture, or more teachers than fit on the disk.
    """

    in_basis = False

    def __init__(
        self,
        architecture: str | TeacherNetwork,
        num_teachers: int,
        schema: Schema,
        device: str,
        seed: int,
        learning_rate: float = 1e-3,
        *,
        active: Tensor | None = None,
        partitions: Sequence[TeacherPartition] | None = None,
        memory_gib: float = MEMORY_GIB,
        folder: Path | None = None,
        block_bytes: int | None = None,
        coarse: bool = True,
    ) -> None:
        self.num_teachers = num_teachers
        self._partitions = partition_teachers(num_teachers) if partitions is None else partitions
        self.local = range(self._partitions[0].start, self._partitions[-1].stop)
        self.device = torch.device(device)
        self._network = _network(architecture, schema)
        self._learning_rate = learning_rate
        self._idle = _idle(active, len(self.local)).to(self.device)
        self._some_idle = bool(self._idle.any())
        self._coarse = coarse
        self._block_bytes = block_bytes or usual_block_bytes(self.device)
        shapes = {name: (len(self.local), *shape) for name, shape in self._network.shapes().items()}
        tensors = [*shapes.values()] * len(AdamState._fields)
        self._file = spill_to_file(memory_gib, tensors, self.device, folder)
        self.large = self._file is not None or total_bytes(tensors) > memory_gib * GIBIBYTE
        self._adam_state = AdamState.zeros(shapes, self._zeros)
        self._draw(seed)
        self._steps = 0

    def train_step(
        self, real_images: Tensor, real_labels: Tensor, synthetic_images: Tensor, synthetic_labels: Tensor
    ) -> None:
        """Take one Adam step per teacher on binary cross-entropy: real → 1, synthetic → 0.

        Args:
            real_images: (local, B, d), uint8 in 0..255 or float32 in [0, 1].
            real_labels: int64 (local, B).
            synthetic_images: float32 (S, d) for all teachers, or (groups, S, d): the teachers are cut into
                that many equal groups, and group g sees images g. One group per class suits class-pure shards.

        Raises:
            InvalidSpec: N is no multiple of the number of groups.
        """
        images = synthetic_images if synthetic_images.ndim == 3 else synthetic_images[None]
        labels = synthetic_labels if synthetic_labels.ndim == 2 else synthetic_labels[None]
        if self.num_teachers % len(images):
            raise InvalidSpec("⟦method.num_teachers⟧ must be a multiple of the number of groups of synthetic images.")
        group_size = self.num_teachers // len(images)
        for group in range(len(images)):
            for block in self._blocks(
                range(group * group_size, (group + 1) * group_size), real_images.shape[1] + images.shape[1]
            ):
                with reduced_precision_products(self.device, self._coarse):
                    self._train_block(block, real_images[block], real_labels[block], images[group], labels[group])
                self._drop(block)
        self._steps += 1

    def image_gradients(
        self, synthetic_images: Tensor, synthetic_labels: Tensor, teachers: slice = slice(None)
    ) -> Iterator[Tensor]:
        """Yield every teacher's own direction for every image: −∂L_G/∂x.

        L_G is the mean of −log sigmoid(Γ(x, y)) over the images.

        Returns:
            (teachers of a block, images, d) in the order of the teachers. Rows of a teacher that has
            diverged are not finite, rows of one without records are 0.
        """
        return self._answers(self._gradient_block, synthetic_images, synthetic_labels, teachers)

    def scores(
        self, synthetic_images: Tensor, synthetic_labels: Tensor, teachers: slice = slice(None)
    ) -> Iterator[Tensor]:
        """Yield every teacher's logit Γ(x, y) for every image; 0 for a teacher without records."""
        return self._answers(self._score_block, synthetic_images, synthetic_labels, teachers)

    def _answers(self, answer: _Answer, synthetic_images: Tensor, labels: Tensor, teachers: slice) -> Iterator[Tensor]:
        images, labels = synthetic_images.to(self.device), labels.to(self.device)
        for block in self._blocks(range(*teachers.indices(self.num_teachers)), len(images)):
            classes = self._one_hot(labels).expand(block.stop - block.start, -1, -1)
            with reduced_precision_products(self.device, self._coarse):
                answers = answer(block, images, classes)
            self._drop(block)
            yield answers

    def teachers_per_block(self, images: int) -> int:
        """Return how many teachers are handled at once when each sees `images` images."""
        weights = sum(value[0].numel() for value in self._adam_state.parameters.values())
        return max(1, self._block_bytes // (4 * (2 * weights + images * self._network.activations())))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of parameters, Adam moments and the step count; private.

        They are copies in memory, whatever the limit: do not ask for them when `large`, train again instead.
        """
        state: dict[str, NDArray[np.generic]] = {"steps": np.array(self._steps, dtype=np.int64)}
        for name, value in self._adam_state.arrays().items():
            state[name] = value.cpu().numpy().copy()
            self._drop()
        return state

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        arrays = self._adam_state.arrays()
        shapes = {name: tuple(value.shape) for name, value in arrays.items()} | {"steps": ()}
        if shapes != {name: value.shape for name, value in state.items()}:
            raise CheckpointMismatch("The checkpoint holds other teachers than this job asks for.")
        for name, value in arrays.items():
            value.copy_(torch.from_numpy(state[name]))
            self._drop()
        self._steps = int(state["steps"])

    def _zeros(self, shape: Shape) -> Tensor:
        return torch.zeros(shape, device=self.device) if self._file is None else self._file.zeros(shape)

    def _drop(self, block: slice = slice(None)) -> None:
        """Release the memory of some teachers to others, where it is scarce."""
        if self._file is not None:
            self._file.drop(block)

    def _draw(self, seed: int) -> None:
        # A stream per partition: the same numbers on every rank. Piece by piece, since memory may be scarce.
        generator = torch.Generator(self.device)
        for partition in self._partitions:
            generator.manual_seed((seed + partition.start) % 2**63)
            rows = slice(partition.start - self.local.start, partition.stop - self.local.start)
            for name, value in self._adam_state.block(rows).parameters.items():
                if stddev := self._network.initial_stddev(name):
                    for piece in torch.split(value.view(-1), _DRAWN_AT_ONCE):
                        piece.normal_(0.0, stddev, generator=generator)
                        self._drop()

    def _blocks(self, teachers: range, images: int) -> Iterator[slice]:
        """Yield the rows of those of `teachers` that are local."""
        return local_blocks(self._partitions, teachers, self.teachers_per_block(images))

    def _train_block(
        self, block: slice, real_images: Tensor, real_labels: Tensor, images: Tensor, labels: Tensor
    ) -> None:
        adam_state = self._adam_state.block(block)
        leaves = {name: value.detach().requires_grad_() for name, value in adam_state.parameters.items()}
        real = real_images.to(self.device)
        classes = torch.cat([self._one_hot(real_labels), self._one_hot(labels).expand(len(real), -1, -1)], dim=-1)
        features = self._network.first(leaves, real, images.to(self.device), classes)
        logits = self._network.rest(leaves, features, classes)
        gradients = torch.autograd.grad(_cross_entropy(logits, real.shape[1]), list(leaves.values()))
        self._apply_adam(adam_state, dict(zip(leaves, gradients, strict=True)), self._idle[block])

    def _apply_adam(self, adam_state: AdamState, gradients: Parameters, idle: Tensor) -> None:
        """Take one Adam step of a block; a teacher without records has gradient 0 and stays where it is."""
        if self._some_idle:
            shape = {name: (-1, *[1] * (value.ndim - 1)) for name, value in gradients.items()}
            gradients = {name: value.masked_fill(idle.view(shape[name]), 0.0) for name, value in gradients.items()}
        adam_step(adam_state, gradients, self._steps, self._learning_rate)

    def _first(self, parameters: Parameters, images: Tensor, classes: Tensor) -> Tensor:
        """Compute features of images that all teachers of a block see."""
        return self._network.first(parameters, images.new_empty(len(classes), 0, images.shape[1]), images, classes)

    def _gradient_block(self, block: slice, images: Tensor, classes: Tensor) -> Tensor:
        parameters = self._adam_state.block(block).parameters
        features = self._first(parameters, images, classes).requires_grad_()
        logits = self._network.rest(parameters, features, classes)
        (gradient,) = torch.autograd.grad(functional.logsigmoid(logits).mean(dim=1).sum(), features)
        directions = self._network.pull_back(parameters, gradient)
        if self._some_idle:
            directions = directions.masked_fill(self._idle[block][:, None, None], 0.0)
        return directions

    def _score_block(self, block: slice, images: Tensor, classes: Tensor) -> Tensor:
        parameters = self._adam_state.block(block).parameters
        logits = self._network.rest(parameters, self._first(parameters, images, classes), classes).detach()
        return logits.masked_fill(self._idle[block][:, None], 0.0)[..., None]

    def _one_hot(self, labels: Tensor) -> Tensor:
        """Encode labels (…, B) as (…, C, B), at least three axes."""
        classes = functional.one_hot(labels.to(self.device), self._network.schema.num_classes)
        return classes.mT.to(torch.float32).reshape(-1, classes.shape[-1], classes.shape[-2])


def _network(architecture: str | TeacherNetwork, schema: Schema) -> TeacherNetwork:
    if isinstance(architecture, TeacherNetwork):
        return architecture
    if architecture not in ARCHITECTURES:
        raise InvalidSpec(f"There is no teacher '{architecture}'; choose one of: {', '.join(sorted(ARCHITECTURES))}.")
    return ARCHITECTURES[architecture](schema)


def _idle(active: Tensor | None, num_teachers: int) -> Tensor:
    return torch.zeros(num_teachers, dtype=torch.bool) if active is None else ~active.to(torch.bool)


def _cross_entropy(logits: Tensor, num_real: int) -> Tensor:
    """Sum the mean losses of teachers: the derivative by one teacher's logits is its own alone."""
    real = functional.logsigmoid(logits[:, :num_real]).mean(dim=1)
    synthetic = functional.logsigmoid(-logits[:, num_real:]).mean(dim=1)
    return -(real + synthetic).sum()
