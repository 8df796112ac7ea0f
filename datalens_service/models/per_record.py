"""Gradients of a network, one for each record: the only place that differentiates per record.

Records never mix: every chunk has the same shape, the last one padded, and layers that look across a batch are
refused. A row is then a function of its own record and of the weights, to the last bit on a given machine, wherever in
a chunk it stands. Where a library rounds products of rows by their place (`products_ignore_placement`), records are
differentiated one by one.

The gradient of a linear layer's weights is an outer product, of the gradient at its outputs and of its inputs
(`LinearTaps`). It is written to its place in a row once, and by nothing else.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import linear
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from datalens_service.base.errors import InvalidSpec, WorkerUnavailable
from datalens_service.models.linear_taps import LinearTaps

_ROWS: Final = 16
_CHUNKS: Final = 4
_WIDTHS: Final = (3, 7, 10, 49, 84, 785)

Product = Callable[[Tensor, Tensor], Tensor]


@cache
def products_ignore_placement() -> bool:
    """Try on this processor, once, whether products of matrices round a row the same way wherever it lies.

    Some kernels read the numbers of a row up to the next aligned address by themselves, and so add in another order
    where the row starts elsewhere. MKL does this on AMD EPYC, unless its mode for reproducible results is on
    (MKL_CBWR, set when the package is imported; Intel oneMKL developer guide, "Obtaining Numerically Reproducible
    Results"). It is off in a process that multiplied matrices before the import.
    """
    return ignores_placement(linear)


@contextmanager
def repeatable_kernels(device: torch.device, full_precision: bool) -> Iterator[None]:
    """Make convolutions on a graphics processor add in the same order every time.

    Some kernels for gradients add by atomic operations, in the order in which their threads happen to finish. The
    settings belong to the process and are restored afterwards.

    Args:
        full_precision: True if factors keep all bits of float32. TF32 drops 13 of them and is faster.
    """
    if device.type != "cuda":
        yield
        return
    kernels = torch.backends.cudnn
    before = (kernels.deterministic, kernels.benchmark, kernels.allow_tf32)
    kernels.deterministic, kernels.benchmark, kernels.allow_tf32 = True, False, not full_precision
    try:
        yield
    finally:
        kernels.deterministic, kernels.benchmark, kernels.allow_tf32 = before


def ignores_placement(product: Product) -> bool:
    """Try whether a product is the same to the last bit wherever a row stands.

    Args:
        product: Takes rows (16, width) and weights (outputs, width).
    """
    return all(_ignores_placement(product, width, outputs) for width in _WIDTHS for outputs in (1, *_WIDTHS))


def _ignores_placement(product: Product, width: int, outputs: int) -> bool:
    generator = torch.Generator().manual_seed(width)
    rows = torch.randn(_ROWS * _CHUNKS, width, generator=generator)
    weights = torch.randn(outputs, width, generator=generator)
    places = torch.randperm(len(rows), generator=generator)
    return all(
        torch.equal(_products(product, rows, layout)[places], _products(product, rows[places], layout))
        for layout in (weights, weights.T.contiguous().T)
    )


def _products(product: Product, rows: Tensor, weights: Tensor) -> Tensor:
    chunks = (rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS))
    return torch.cat([product(chunk, weights) for chunk in chunks])


Chunk = TypeVar("Chunk")
Rows = TypeVar("Rows")


def map_in_threads(compute: Callable[[Chunk], Rows], chunks: Iterable[Chunk], device: torch.device) -> Iterator[Rows]:
    """Yield results in the order of the chunks; each is computed by one thread, whatever the number of threads is.

    The operations of a chunk are many and small. Split over threads, each of them waits for all; chunks do not.

    Args:
        compute: Computes one chunk; called in several threads at once.
        chunks: Taken from as results are.
        device: Device of the computation; other devices than a processor take one chunk at a time.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield from map(compute, chunks)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from _in_order(pool, compute, chunks, threads + 1)
    finally:
        # Threads that start later take over the number that was set last.
        torch.set_num_threads(threads)


def _in_order(
    pool: ThreadPoolExecutor, compute: Callable[[Chunk], Rows], chunks: Iterable[Chunk], most: int
) -> Iterator[Rows]:
    """Compute at most so many results ahead, since each is as large as its gradients."""
    pending: deque[Future[Rows]] = deque()
    for chunk in chunks:
        pending.append(pool.submit(compute, chunk))
        if len(pending) == most:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


_CHUNK_BYTES: Final = 2**25
"""Bytes of the rows of a chunk. Larger blocks are handed back to the operating system after each chunk, and their pages
have to be cleared anew: on a processor that costs more than the gradients.
"""

_CUDA_CHUNK_BYTES: Final = 2**30
"""Bytes on a graphics processor, where small chunks leave it waiting for the next call."""

_FEWEST_RECORDS: Final = 16
"""Fewest records of a chunk, unless it is one record. For products of 2 to 8 rows MKL has kernels that round rows
differently by their place, seen on an Intel Xeon with AVX-512 and layers of up to three outputs.
"""

_LARGEST_CHUNK_BYTES: Final = 2**27
"""Every thread has a chunk of its own. Where 16 rows are longer, one row is work enough for a call."""

Parameters = dict[str, Tensor]
Loss = Callable[..., Tensor]
"""Takes the network's result for a batch of one record, then that record's inputs; returns a scalar."""


class PerRecordGradients:
    """Differentiates the loss of every record by all trainable weights (`torch.func`).

    Args:
        network: Called with the first input of a record; its weights are read at each call of `chunks`.
        loss: Loss of one record.
        chunk_size: Records that are differentiated together; left out, the power of two whose rows fill 32 MiB (1 GiB
            on a graphics processor), but at least 16 and at most 512, or one by one if 16 rows are longer than 128 MiB
            (1 GiB). Always one where products depend on placement.

    Raises:
        InvalidSpec: A layer of the network looks across the records of a batch, or is random.
        ValueError: The chunk size is 2 to 15.
    """

    def __init__(self, network: nn.Module, loss: Loss, chunk_size: int | None = None) -> None:
        mixing = [type(module).__name__ for module in network.modules() if isinstance(module, _BatchNorm | _DropoutNd)]
        if mixing:
            raise InvalidSpec(f"A network with {mixing[0]} has no gradient of its own for each record.")
        self._network = network
        self._loss = loss
        self._device = next(network.parameters()).device
        self._chunk_size = chunk_size or _chunk_size(self.dimensions, self._device)
        if 1 < self._chunk_size < _FEWEST_RECORDS:
            raise ValueError(f"a chunk holds one record, or at least {_FEWEST_RECORDS}")
        self._tried = self._full_precision = False
        if self._device.type == "cpu" and not products_ignore_placement():
            self._chunk_size = 1

    @property
    def dimensions(self) -> int:
        """Return the number of weights that are differentiated by: columns of a chunk."""
        return sum(self.tensor_sizes)

    @property
    def tensor_sizes(self) -> list[int]:
        """Return the number of weights of each tensor, in the order of the columns."""
        return [weight.numel() for weight in self._trainable().values()]

    def chunks(self, inputs: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield gradients (records, dimensions), in the order of the records, at most `chunk_size` at once.

        Args:
            inputs: Tensors whose first axis counts records, on the network's device.
        """
        self.settle(inputs)
        compute, size = self._differentiation(inputs), self._chunk_size
        parts = ([values[start : start + size] for values in inputs] for start in range(0, len(inputs[0]), size))
        yield from map_in_threads(compute, parts, self._device)

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace the trainable weights of the network by other ones (dimensions,)."""
        parts = torch.split(torch.from_numpy(weights), self.tensor_sizes)
        for weight, part in zip(self._trainable().values(), parts, strict=True):
            weight.copy_(part.view_as(weight))

    def settle(self, inputs: Sequence[Tensor]) -> None:
        """Find out on a graphics processor how many records go together; copies remember it.

        Args:
            inputs: Like those of `chunks`; shapes and types matter alone.

        Raises:
            WorkerUnavailable: The same record has another row each time.
        """
        if self._device.type == "cuda" and not self._tried:
            self._try_places(self._differentiation(inputs), inputs)

    def _try_places(self, compute: Callable[[list[Tensor]], Tensor], inputs: Sequence[Tensor]) -> None:
        """Try made-up records at two places each, and fall back to slower computation if that moves a bit of a row.

        The first fallback is kernels of full precision, the second records one by one. A graphics processor has other
        kernels for every shape, so the network itself is tried. On an H200 some of those with TF32 depend on places,
        and one record at a time takes 100 times as long.
        """
        self._tried = True
        for self._full_precision in (False, True):
            if self._ignores_places(compute, inputs):
                return
        self._chunk_size = 1
        one = [_made_up(values, 1) for values in inputs]
        if not torch.equal(compute(one), compute(one)):
            raise WorkerUnavailable("This graphics processor does not repeat its results: train with device cpu.")

    def _ignores_places(self, compute: Callable[[list[Tensor]], Tensor], inputs: Sequence[Tensor]) -> bool:
        """Compare rows at two places; half as many records go together until they fit into memory."""
        try:
            made_up = [_made_up(values, self._chunk_size) for values in inputs]
            order = torch.arange(self._chunk_size, device=made_up[0].device).roll(self._chunk_size // 3 + 1)
            return torch.equal(compute(made_up)[order], compute([values[order] for values in made_up]))
        except torch.OutOfMemoryError:
            if self._chunk_size == _FEWEST_RECORDS:
                return False
            self._chunk_size = max(_FEWEST_RECORDS, self._chunk_size // 2)
        return self._ignores_places(compute, inputs)

    def _differentiation(self, inputs: Sequence[Tensor]) -> Callable[[list[Tensor]], Tensor]:
        return partial(self._rows, self._trainable(), LinearTaps(self._network, inputs[0][:1]))

    def _rows(self, weights: Parameters, taps: LinearTaps, part: list[Tensor]) -> Tensor:
        """Return the gradients of one chunk (records, dimensions), each weight's columns written once."""
        others = {name: weight for name, weight in weights.items() if name not in taps.names}
        # A call puts weights into a network and hooks on its layers: threads that share one would mix their records.
        loss = partial(self._loss_of_one, _copy_of_layers(self._network), taps)
        differentiate = vmap(grad(loss, argnums=(0, 1), has_aux=True), in_dims=(None, None, None, 0))
        records = [_placed(values, self._chunk_size) for values in part]
        with repeatable_kernels(self._device, self._full_precision):
            (gradients, at_outputs), at_inputs = differentiate(
                others, taps.probes(), self._fixed(weights, taps), records
            )
        sizes = [weight.numel() for weight in weights.values()]
        rows = next(iter(weights.values())).new_empty((self._chunk_size, sum(sizes)))
        for name, columns in zip(weights, torch.split(rows, sizes, dim=1), strict=True):
            if name in taps.names:
                taps.write(name, at_outputs, at_inputs, columns)
            else:
                columns.copy_(gradients[name].flatten(start_dim=1))
        return rows[: len(part[0])]

    def _trainable(self) -> Parameters:
        parameters = self._network.named_parameters()
        return {name: weight.detach() for name, weight in parameters if weight.requires_grad}

    def _fixed(self, weights: Parameters, taps: LinearTaps) -> Parameters:
        """Return the arguments of the network that it is not differentiated by."""
        buffers = {name: value.detach() for name, value in self._network.named_buffers()}
        return buffers | {name: weights[name] for name in taps.names}

    def _loss_of_one(
        self,
        network: nn.Module,
        taps: LinearTaps,
        trainable: Parameters,
        probes: Parameters,
        fixed: Parameters,
        record: list[Tensor],
    ) -> tuple[Tensor, Parameters]:
        batch = [values.unsqueeze(0) for values in record]
        with taps.tapped(network, probes) as inputs:
            output = functional_call(network, {**fixed, **trainable}, (batch[0],))
        return self._loss(output, *batch), inputs


class BytesToNumbers(nn.Module):
    """Turns images of bytes into numbers in [0, 1], a chunk at a time."""

    def forward(self, images: Tensor) -> Tensor:
        return images.to(torch.float32) / 255


def _chunk_size(dimensions: int, device: torch.device) -> int:
    row = 4 * dimensions
    chunk_bytes = _CUDA_CHUNK_BYTES if device.type == "cuda" else _CHUNK_BYTES
    if _FEWEST_RECORDS * row > max(chunk_bytes, _LARGEST_CHUNK_BYTES):
        return 1
    return min(512, max(_FEWEST_RECORDS, 1 << (chunk_bytes // row or 1).bit_length() - 1))


def _copy_of_layers(network: nn.Module) -> nn.Module:
    """Copy the modules, but share their weights and buffers."""
    tensors = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, tensors)


def _placed(values: Tensor, size: int) -> Tensor:
    """Pad the last chunk with zeros, so that the same kernels run whatever the records.

    One record by itself is moved to memory of its own, where it starts at the same place.
    """
    missing = size - len(values)
    if missing:
        return torch.cat([values, values.new_zeros(missing, *values.shape[1:])])
    return values.clone() if size == 1 else values


def _made_up(values: Tensor, count: int) -> Tensor:
    """Make up public records like these in shape and type."""
    generator = torch.Generator(values.device).manual_seed(0)
    shape = (count, *values.shape[1:])
    if values.is_floating_point():
        return torch.rand(shape, generator=generator, device=values.device, dtype=values.dtype)
    return torch.randint(2, shape, generator=generator, device=values.device, dtype=values.dtype)
