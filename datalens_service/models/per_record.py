"""Gradients of a network, one for each record: the only place that differentiates per record.

Records never mix: every chunk has the same shape, the last one padded, and layers that look across a batch are
refused. A row is then a function of its own record and of the weights, to the last bit on a given machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from datalens_service.errors import InvalidSpec
from datalens_service.models.chunk_threads import map_in_threads

_CHUNK_BYTES: Final = 2**25
"""Of the rows of a chunk. Larger blocks are handed back to the operating system after each chunk, and their pages
have to be cleared anew: on a processor that costs more than the gradients."""

Parameters = dict[str, Tensor]
Loss = Callable[..., Tensor]
"""Takes what the network returns for a batch of one record, then that record's inputs; returns a scalar."""


class PerRecordGradients:
    """Differentiates the loss of every record by all trainable weights (`torch.func`).

    Args:
        network: Called with the first input of a record; its weights are read at each call of `chunks`.
        loss: Of one record.
        chunk_size: Records that are differentiated together; left out, the power of two whose rows fill 32 MiB.

    Raises:
        InvalidSpec: A layer of the network looks across the records of a batch, or is random.
    """

    def __init__(self, network: nn.Module, loss: Loss, chunk_size: int | None = None) -> None:
        _check_layers(network)
        self._network = network
        self._loss = loss
        self._chunk_size = chunk_size or _chunk_size(self.dimensions)
        self._differentiate = vmap(grad(self._loss_of_one), in_dims=(None, None, 0))

    @property
    def dimensions(self) -> int:
        """Weights that are differentiated by: columns of a chunk."""
        return sum(weight.numel() for weight in self._trainable().values())

    def chunks(self, inputs: Sequence[Tensor]) -> Iterator[Tensor]:
        """(records, dimensions) gradients, in the order of the records, at most `chunk_size` at once.

        Args:
            inputs: Tensors whose first axis counts records, on the network's device.
        """
        trainable = self._trainable()
        fixed = {name: value.detach() for name, value in self._network.named_buffers()}
        size = self._chunk_size
        parts = ([values[start : start + size] for values in inputs] for start in range(0, len(inputs[0]), size))
        yield from map_in_threads(partial(self._rows, trainable, fixed), parts, inputs[0].device)

    def _rows(self, trainable: Parameters, fixed: Parameters, part: list[Tensor]) -> Tensor:
        """(records, dimensions) of one chunk."""
        gradients = self._differentiate(trainable, fixed, [_padded(values, self._chunk_size) for values in part])
        rows = [gradients[name].flatten(start_dim=1) for name in trainable]
        return torch.cat(rows, dim=1)[: len(part[0])]

    def _trainable(self) -> Parameters:
        parameters = self._network.named_parameters()
        return {name: weight.detach() for name, weight in parameters if weight.requires_grad}

    def _loss_of_one(self, trainable: Parameters, fixed: Parameters, record: list[Tensor]) -> Tensor:
        batch = [values.unsqueeze(0) for values in record]
        output = functional_call(self._network, {**fixed, **trainable}, (batch[0],))
        return self._loss(output, *batch)


class BytesToNumbers(nn.Module):
    """Images of bytes as numbers in [0, 1], a chunk at a time."""

    def forward(self, images: Tensor) -> Tensor:
        """float32, of the same shape."""
        return images.to(torch.float32) / 255


def _chunk_size(dimensions: int) -> int:
    return 2 ** min(9, (_CHUNK_BYTES // (4 * dimensions)).bit_length() - 1) if 4 * dimensions < _CHUNK_BYTES else 1


def _padded(values: Tensor, size: int) -> Tensor:
    """The same kernels run whatever the number of records: the last chunk is filled up with zeros."""
    missing = size - len(values)
    return torch.cat([values, values.new_zeros(missing, *values.shape[1:])]) if missing else values


def _check_layers(network: nn.Module) -> None:
    mixing = [type(module).__name__ for module in network.modules() if isinstance(module, _BatchNorm | _DropoutNd)]
    if mixing:
        raise InvalidSpec(f"A network with {mixing[0]} has no gradient of its own for each record.")
