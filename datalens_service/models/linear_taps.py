"""The factors of gradients of linear layers: the inputs of a layer, and the gradient at its outputs.

A probe of zeros is added to the outputs of each layer; the gradient of the loss by the probe is the gradient at the
outputs. For one record the gradient of the weights is the outer product of the two (Goodfellow 2015, "Efficient
Per-Example Gradient Computations").
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class LinearTaps:
    """The linear layers of a network whose gradients are outer products.

    These are layers of plain chains (`nn.Sequential`) that are called once, on a vector, with weights that no other
    module has; a network may not use these weights in another way. All other layers are left to differentiation.

    Args:
        record: First input of one record, as a batch of one; or of none.
    """

    def __init__(self, network: nn.Module, record: Tensor) -> None:
        self._layers = _layers_on_vectors(network, record) if len(record) else {}
        self.names = frozenset(
            f"{layer}.{name}" for layer, module in self._layers.items() for name, _ in module.named_parameters()
        )

    def probes(self) -> dict[str, Tensor]:
        """Return zeros (1, outputs) by layer."""
        return {name: layer.weight.new_zeros(1, layer.out_features) for name, layer in self._layers.items()}

    @contextmanager
    def tapped(self, network: nn.Module, probes: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """Add the probes, and note inputs (1, inputs) by layer, while the network is called."""
        inputs: dict[str, Tensor] = {}
        with ExitStack() as hooks:
            for name in self._layers:
                hooks.enter_context(_hooked(network.get_submodule(name), _tap(name, probes[name], inputs)))
            yield inputs

    def write(self, name: str, at_outputs: dict[str, Tensor], at_inputs: dict[str, Tensor], columns: Tensor) -> None:
        """Write gradients of a layer's weights or biases.

        Args:
            at_outputs: (records, 1, outputs) gradients by layer.
            at_inputs: (records, 1, inputs) by layer.
            columns: (records, size of the parameter), written to.
        """
        layer, _, kind = name.rpartition(".")
        outputs, inputs = at_outputs[layer].squeeze(1), at_inputs[layer].squeeze(1)
        if kind == "bias":
            columns.copy_(outputs)
        else:
            torch.mul(outputs[:, :, None], inputs[:, None, :], out=columns.view(len(columns), outputs.shape[1], -1))


_Hook = Callable[[nn.Module, Any, Tensor], Tensor]


def _tap(name: str, probe: Tensor, inputs: dict[str, Tensor]) -> _Hook:
    def hook(_layer: nn.Module, arguments: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
        inputs[name] = arguments[0]
        return outputs + probe

    return hook


@contextmanager
def _hooked(layer: nn.Module, hook: _Hook) -> Iterator[None]:
    handle = layer.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def _layers_on_vectors(network: nn.Module, record: Tensor) -> dict[str, nn.Linear]:
    """Find the linear layers on vectors, by name."""
    owners = Counter(id(weight) for _, weight in network.named_parameters(remove_duplicate=False))
    candidates = {
        f"{chain}.{name}" if chain else name: layer
        for chain, module in network.named_modules()
        if type(module) is nn.Sequential
        for name, layer in module.named_children()
        if type(layer) is nn.Linear and all(_is_alone(weight, owners) for weight in layer.parameters())
    }
    calls = Counter[str]()
    with ExitStack() as hooks:
        for name, layer in candidates.items():
            hooks.enter_context(_hooked(layer, _count(name, calls)))
        network(record)
    return {name: layer for name, layer in candidates.items() if calls[name] == 1}


def _is_alone(weight: nn.Parameter, owners: Counter[int]) -> bool:
    return weight.requires_grad and owners[id(weight)] == 1


def _count(name: str, calls: Counter[str]) -> _Hook:
    def hook(_layer: nn.Module, arguments: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
        # A call on anything but a vector counts for two.
        calls[name] += 1 if arguments[0].dim() == 2 else 2
        return outputs

    return hook
