"""Linear layers whose gradients are outer products: which they are, and that all others are differentiated."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.models.classifiers.architectures import ARCHITECTURES, build_network
from datalens_service.models.linear_taps import LinearTaps
from datalens_service.models.per_record import PerRecordGradients

RECORDS, WIDTH, CLASSES = 21, 6, 3


class Twice(nn.Module):
    """Calls its layers by hand, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.out(self.layer(torch.relu(self.layer(values))))


def sharing() -> nn.Module:
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(WIDTH, CLASSES))


def sequences() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (2, WIDTH // 2)), nn.Linear(WIDTH // 2, 4), nn.Flatten(), nn.Linear(8, CLASSES)
    )


def frozen() -> nn.Module:
    network = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    network[0].weight.requires_grad_(False)
    return network


NETWORKS = {
    "called by hand": (Twice, set()),
    "sharing weights": (sharing, {"3"}),
    "on sequences": (sequences, {"3"}),
    "partly frozen": (frozen, {"2"}),
    "without biases": (lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES, bias=False)), {"0"}),
}


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(RECORDS, WIDTH, generator=generator), torch.randint(CLASSES, (RECORDS,), generator=generator)


def loss(scores: Tensor, _values: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores, labels)


def layers(network: nn.Module, values: Tensor) -> set[str]:
    return {name.rpartition(".")[0] for name in LinearTaps(network, values[:1]).names}


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_are_gradients_whichever_layers_are_tapped(name: str) -> None:
    torch.manual_seed(0)
    build, tapped = NETWORKS[name]
    network, (values, labels) = build(), records()
    assert layers(network, values) == tapped
    rows = torch.cat(list(PerRecordGradients(network, loss, 16).chunks((values, labels))))
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    for record in range(RECORDS):
        one = slice(record, record + 1)
        alone = torch.autograd.grad(loss(network(values[one]), values[one], labels[one]), weights)
        torch.testing.assert_close(rows[record], torch.cat([part.flatten() for part in alone]))


@pytest.mark.parametrize(
    ("architecture", "count"), [("small_cnn", 2), ("lenet", 3), ("lenet_relu", 3), ("mlp", 2), ("linear", 1)]
)
def test_all_linear_layers_of_the_architectures_are_tapped(architecture: str, count: int) -> None:
    assert set(ARCHITECTURES) == {"small_cnn", "lenet", "lenet_relu", "mlp", "linear"}
    schema = Schema(channels=1, height=28, width=28, class_names=("a", "b"), num_units=9)
    network = nn.Sequential(nn.Identity(), build_network({"architecture": architecture}, schema))
    assert len(layers(network, torch.zeros(1, 1, 28, 28))) == count


def test_the_network_is_as_it_was_after_each_chunk_and_after_an_error() -> None:
    network, (values, labels) = sequences(), records()
    before = network(values)
    chunks = PerRecordGradients(network, loss, 16).chunks((values, labels))
    next(chunks)
    torch.testing.assert_close(network(values), before, rtol=0, atol=0)
    assert not any(module._forward_hooks for module in network.modules())

    def failing(_scores: Tensor, _values: Tensor, _labels: Tensor) -> Tensor:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        next(PerRecordGradients(network, failing, 16).chunks((values, labels)))
    assert not any(module._forward_hooks for module in network.modules())
