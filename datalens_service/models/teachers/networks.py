"""Teacher discriminators Γ(x, y), written for a block of teachers at once.

The parameters of a block are stacked along the first axis; every operation keeps that axis apart, so nothing
of one teacher can reach another. For the same reason no network here has batch norm.

Each network is cut behind its first linear map:

    first(images) → features → rest(features) → logits          pull_back: ∂/∂features → ∂/∂images

The images that all teachers share then meet the first weights of all of them in one matrix product, and
images never take part in automatic differentiation. Features carry the batch in their last axis: B
private images of each teacher, then S shared ones.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.models.teachers.tensor_store import Scratch

Parameters = dict[str, Tensor]
Shape = tuple[int, ...]

_SLOPE: Final = 0.2


class TeacherNetwork(ABC):
    """An architecture.

    Shapes below are for n teachers, B private images of each teacher, S shared ones, C classes, d numbers per image.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @abstractmethod
    def shapes(self) -> dict[str, Shape]:
        """Return the shape of every parameter of one teacher."""

    @abstractmethod
    def initial_stddev(self, name: str) -> float:
        """Return the standard deviation of the initial weights of a parameter; 0 starts at 0."""

    @abstractmethod
    def activations(self) -> int:
        """Estimate the numbers kept per teacher and image between the forward and the backward pass."""

    @abstractmethod
    def first(self, parameters: Parameters, private: Tensor, shared: Tensor, classes: Tensor) -> Tensor:
        """Apply the first linear map: features with n first and B + S last.

        Args:
            parameters: Parameters of a block, stacked.
            private: (n, B, d) images, each seen by one teacher, uint8 in 0..255 or float32 in [0, 1]; B may be 0.
            shared: (S, d) images that all teachers of the block see.
            classes: (n, C, B + S) one-hot labels.
        """

    @abstractmethod
    def rest(self, parameters: Parameters, features: Tensor, classes: Tensor) -> Tensor:
        """Return logits (n, B + S) of the features of `first`."""

    @abstractmethod
    def pull_back(self, parameters: Parameters, gradient: Tensor) -> Tensor:
        """Return the gradient by S images (n, S, d), from the gradient by their features."""


class Dense(TeacherNetwork):
    """One hidden layer: the fast teacher.

    Initial weights: He et al. 2015.
    """

    def __init__(self, schema: Schema, hidden: int = 16) -> None:
        super().__init__(schema)
        self.hidden = hidden
        self._scratch = Scratch()

    def shapes(self) -> dict[str, Shape]:
        return {
            "input.weight": (self.hidden, self.schema.dimensions),
            "input.label": (self.hidden, self.schema.num_classes),
            "input.bias": (self.hidden,),
            "output.weight": (1, self.hidden),
            "output.bias": (1,),
        }

    def initial_stddev(self, name: str) -> float:
        """Return √(2 / fan-in)."""
        fan_in = {"input": self.schema.dimensions + self.schema.num_classes, "output": self.hidden}
        layer, kind = name.split(".")
        return 0.0 if kind == "bias" else math.sqrt(2 / fan_in[layer])

    def activations(self) -> int:
        return self.schema.dimensions + 4 * self.hidden + self.schema.num_classes

    def first(self, parameters: Parameters, private: Tensor, shared: Tensor, classes: Tensor) -> Tensor:
        """Return features (n, hidden, B + S)."""
        products: Tensor = _FirstProduct.apply(parameters["input.weight"], private, shared, self._scratch)
        return products + _labels_and_bias(parameters, "input", classes)

    def rest(self, parameters: Parameters, features: Tensor, classes: Tensor) -> Tensor:
        # Not a product of matrices: the derivative of one with a single row is far slower than the multiplication.
        hidden = functional.leaky_relu(features, _SLOPE).mT
        return (hidden * parameters["output.weight"]).sum(dim=-1) + parameters["output.bias"]

    def pull_back(self, parameters: Parameters, gradient: Tensor) -> Tensor:
        return torch.bmm(gradient.mT, parameters["input.weight"])


class Conv(TeacherNetwork):
    """The original's discriminator: two 5×5 convolutions of stride 2, a dense layer of 256, one logit.

    DataLens (CCS 2021): maps (channels + classes), then (32 + classes); the label is appended at every layer.
    A constant label map under a convolution is a sum over the kernel taps that fall inside the image; it is
    computed as such, not as C more input maps. Differences from the original: no batch norm.

    Initial weights: normal of standard deviation 0.02 (DCGAN, Radford et al. 2016), biases 0.
    """

    def __init__(self, schema: Schema, maps: int = 32, hidden: int = 256) -> None:
        super().__init__(schema)
        self.hidden = hidden
        self.maps = (schema.channels + schema.num_classes, maps + schema.num_classes)
        first = (halved(schema.height), halved(schema.width))
        self.sides = (first, (halved(first[0]), halved(first[1])))
        self._inside = [taps_inside(schema.height, schema.width), taps_inside(*first)]

    def shapes(self) -> dict[str, Shape]:
        classes, (first, second) = self.schema.num_classes, self.maps
        return {
            "conv1.weight": (first, self.schema.channels * TAPS),
            "conv1.label": (first, TAPS, classes),
            "conv1.bias": (first,),
            "conv2.weight": (second, first * TAPS),
            "conv2.label": (second, TAPS, classes),
            "conv2.bias": (second,),
            "dense.weight": (self.hidden, second * math.prod(self.sides[1])),
            "dense.label": (self.hidden, classes),
            "dense.bias": (self.hidden,),
            "output.weight": (1, self.hidden),
            "output.label": (1, classes),
            "output.bias": (1,),
        }

    def initial_stddev(self, name: str) -> float:
        return 0.0 if name.endswith("bias") else 0.02

    def activations(self) -> int:
        """Count the patches of both convolutions, and their outputs before and after the rectifier."""
        (first, second), (area, small) = self.maps, (math.prod(side) for side in self.sides)
        patches = TAPS * (self.schema.channels * area + 2 * first * small)
        return self.schema.dimensions + patches + 5 * first * area + 5 * second * small + 4 * self.hidden

    def first(self, parameters: Parameters, private: Tensor, shared: Tensor, classes: Tensor) -> Tensor:
        """Return features (n, maps, height, width, B + S), the sides those of the convolution's output."""
        weight = parameters["conv1.weight"]
        private_maps = torch.bmm(weight, unfold(self._planes(_as_floats(private))))
        shared_maps = weight.flatten(0, 1) @ unfold(self._planes(shared[None]))[0]
        offset = self._label_maps(parameters, 0, classes)
        features = [
            maps.view(*weight.shape[:2], *self.sides[0], batch)
            for maps, batch in ((private_maps, private.shape[1]), (shared_maps, len(shared)))
        ]
        return torch.cat(features, dim=-1) + offset.view(*weight.shape[:2], *self.sides[0], -1)

    def rest(self, parameters: Parameters, features: Tensor, classes: Tensor) -> Tensor:
        patches = Unfold.apply(functional.leaky_relu(features, _SLOPE))
        maps = torch.baddbmm(self._label_maps(parameters, 1, classes), parameters["conv2.weight"], patches)
        flat = functional.leaky_relu(maps, _SLOPE).view(len(maps), -1, classes.shape[-1])
        products: Tensor = _DenseProduct.apply(parameters["dense.weight"], flat)
        hidden = functional.leaky_relu(products + _labels_and_bias(parameters, "dense", classes), _SLOPE)
        logits = torch.bmm(parameters["output.weight"], hidden) + _labels_and_bias(parameters, "output", classes)
        return logits[:, 0]

    def pull_back(self, parameters: Parameters, gradient: Tensor) -> Tensor:
        patches = torch.bmm(parameters["conv1.weight"].mT, gradient.flatten(2))
        shape = (self.schema.channels, self.schema.height, self.schema.width, gradient.shape[-1])
        return fold(patches, torch.Size((len(gradient), *shape))).flatten(1, 3).mT.contiguous()

    def _planes(self, images: Tensor) -> Tensor:
        """Reshape images (n, B, d) to (n, channels, height, width, B)."""
        shape = (self.schema.channels, self.schema.height, self.schema.width, images.shape[1])
        return images.mT.view(len(images), *shape)

    def _label_maps(self, parameters: Parameters, layer: int, classes: Tensor) -> Tensor:
        """Return the part of constant label maps and the bias in a convolution, (n, maps, height·width·B)."""
        kernels, bias = parameters[f"conv{layer + 1}.label"], parameters[f"conv{layer + 1}.bias"]
        # Kept there: a copy would wait for the device.
        inside = self._inside[layer] = self._inside[layer].to(kernels.device)
        chosen = torch.bmm(kernels.flatten(1, 2), classes).view(-1, TAPS, classes.shape[-1])
        sums = torch.bmm(inside.expand(len(chosen), *inside.shape), chosen)
        return sums.view(*kernels.shape[:2], -1) + bias[..., None]


ARCHITECTURES: dict[str, Callable[[Schema], TeacherNetwork]] = {"conv": Conv, "dense": Dense}


def _as_floats(images: Tensor) -> Tensor:
    return images.to(torch.float32).div_(255) if images.dtype == torch.uint8 else images


def _labels_and_bias(parameters: Parameters, layer: str, classes: Tensor) -> Tensor:
    """Return the part of a dense layer that does not depend on its input, (n, out, B), the batch in front in memory."""
    return torch.baddbmm(parameters[f"{layer}.bias"][:, None], classes.mT, parameters[f"{layer}.label"].mT).mT


class _FirstProduct(torch.autograd.Function):
    """First weights (n, out, in) times private (n, B, in) and shared (S, in) images: (n, out, B + S).

    One product with the images in front reads the weights once and along their rows, forth and back: they are the
    largest array of the dense teacher. Its images and its gradient lie in `scratch`, so the gradient is to be used
    before the next block. Bytes are multiplied as they are: the far fewer products are divided by 255.
    """

    @staticmethod
    def forward(context: Any, weight: Tensor, private: Tensor, shared: Tensor, scratch: Scratch) -> Tensor:
        if not private.shape[1]:
            return torch.bmm(shared.expand(len(weight), -1, -1), weight.mT).mT
        context.scale, context.scratch = 1 / 255 if private.dtype == torch.uint8 else 1.0, scratch
        rows = scratch.tensor("rows", (len(private), private.shape[1] + len(shared), private.shape[2]), weight.device)
        rows[:, : private.shape[1]] = private
        rows[:, private.shape[1] :] = shared / context.scale
        context.save_for_backward(rows)
        return torch.bmm(rows, weight.mT).mul_(context.scale).mT

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (rows,) = context.saved_tensors
        shape = (len(rows), gradient.shape[1], rows.shape[2])
        by_weight = context.scratch.tensor("by_weight", shape, rows.device)
        return torch.bmm(gradient * context.scale, rows, out=by_weight), None, None, None


class _DenseProduct(torch.autograd.Function):
    """Weights (n, out, in) times features (n, in, B): (n, out, B).

    With the batch in front each product reads the weights along their rows, which is a third faster.
    """

    @staticmethod
    def forward(context: Any, weight: Tensor, features: Tensor) -> Tensor:
        rows = features.mT.contiguous()
        context.save_for_backward(weight, rows)
        return torch.bmm(rows, weight.mT).mT

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
        weight, rows = context.saved_tensors
        by_weight = torch.bmm(gradient, rows) if context.needs_input_grad[0] else None
        return by_weight, torch.bmm(gradient.mT, weight).mT


KERNEL: Final = 5
TAPS: Final = KERNEL * KERNEL
STRIDE: Final = 2


def halved(side: int) -> int:
    """Return the output side of a convolution of stride 2 with "same" padding."""
    return -(-side // STRIDE)


def _padding(side: int) -> tuple[int, int]:
    """Return the zeros before and after; an odd one goes behind, as in the original's framework."""
    total = max((halved(side) - 1) * STRIDE + KERNEL - side, 0)
    return total // 2, total - total // 2


def taps_inside(height: int, width: int) -> Tensor:
    """Mark by 1 where a kernel tap reads the image, by 0 where it reads padding, (height·width of the output, taps)."""
    return unfold(torch.ones(1, 1, height, width, 1)).view(TAPS, -1).T.contiguous()


def _windows(height: int, width: int) -> list[tuple[slice, slice]]:
    """Return the slices of a padded plane that each kernel tap reads, for an output of `height` by `width`."""
    rows = [slice(tap, tap + STRIDE * height - 1, STRIDE) for tap in range(KERNEL)]
    columns = [slice(tap, tap + STRIDE * width - 1, STRIDE) for tap in range(KERNEL)]
    return [(row, column) for row in rows for column in columns]


def unfold(planes: Tensor) -> Tensor:
    """Return patches (n, maps·taps, h·w·B) that a 5×5 convolution of stride 2 reads from (n, maps, H, W, B).

    The batch is innermost, so that the one copy moves runs of B numbers.
    """
    teachers, maps, height, width, batch = planes.shape
    padded = functional.pad(planes, (0, 0, *_padding(width), *_padding(height)))
    *outer, row, column, one = padded.stride()
    shape = (teachers, maps, KERNEL, KERNEL, halved(height), halved(width), batch)
    windows = padded.as_strided(shape, (*outer, row, column, STRIDE * row, STRIDE * column, one))
    return windows.reshape(teachers, maps * TAPS, -1)


def fold(patches: Tensor, shape: torch.Size) -> Tensor:
    """Sum patches into planes of `shape`: the transpose of `unfold`."""
    teachers, maps, height, width, batch = shape
    (top, bottom), (left, right) = _padding(height), _padding(width)
    padded = patches.new_zeros(teachers, maps, top + height + bottom, left + width + right, batch)
    patches = patches.view(teachers, maps, TAPS, halved(height), halved(width), batch)
    for tap, (rows, columns) in enumerate(_windows(halved(height), halved(width))):
        padded[:, :, rows, columns] += patches[:, :, tap]
    return padded[:, :, top : top + height, left : left + width]


class Unfold(torch.autograd.Function):
    """`unfold` with its derivative."""

    @staticmethod
    def forward(context: Any, planes: Tensor) -> Tensor:
        context.shape = planes.shape
        return unfold(planes)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return fold(gradient.contiguous(), context.shape)
