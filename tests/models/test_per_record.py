"""Gradients per record: those of plain differentiation, and a function of their own record alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.base.errors import InvalidSpec, WorkerUnavailable
from datalens_service.data.dataset import Schema
from datalens_service.methods.descent.denoiser_gradients import PackedDenoiser, denoising_error
from datalens_service.models import per_record
from datalens_service.models.classifiers.architectures import ARCHITECTURES, build_network
from datalens_service.models.generators.denoiser.denoiser import Denoiser
from datalens_service.models.generators.denoiser.denoiser_shape import DenoiserShape
from datalens_service.models.per_record import (
    PerRecordGradients,
    _chunk_size,
    ignores_placement,
    products_ignore_placement,
)
from tests.torch_threads import torch_threads

RECORDS, CLASSES = 21, 3


def network() -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 4, 3, stride=2)
    return nn.Sequential(convolution, nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(36, CLASSES))


def records(seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(RECORDS, 1, 8, 8, generator=generator)
    return images, torch.randint(CLASSES, (RECORDS,), generator=generator)


def loss(scores: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores, labels)


def rows(gradients: PerRecordGradients, inputs: tuple[Tensor, Tensor]) -> Tensor:
    return torch.cat(list(gradients.chunks(inputs)))


@pytest.mark.parametrize("chunk_size", [1, 16, 64])
def test_rows_are_gradients_of_each_record_by_itself(chunk_size: int) -> None:
    trained, (images, labels) = network(), records()
    gradients = PerRecordGradients(trained, loss, chunk_size)
    together = rows(gradients, (images, labels))
    for record in range(RECORDS):
        one = slice(record, record + 1)
        alone = torch.autograd.grad(loss(trained(images[one]), images[one], labels[one]), list(trained.parameters()))
        torch.testing.assert_close(together[record], torch.cat([part.flatten() for part in alone]))
    assert together.shape == (RECORDS, gradients.dimensions)


def test_a_row_depends_on_its_own_record_to_the_last_bit(device: str) -> None:
    trained, (images, labels) = network().to(device), (values.to(device) for values in records())
    gradients = PerRecordGradients(trained, loss, 16)
    before = rows(gradients, (images, labels))
    changed = images.clone()
    changed[2] = 1e6
    after = rows(gradients, (changed, labels))
    others = [record for record in range(RECORDS) if record != 2]
    assert torch.equal(before[others], after[others])
    assert not torch.equal(before[2], after[2])


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("chunk_size", [16, None], ids=["small chunks", "one chunk"])
def test_rows_of_every_architecture_are_functions_of_their_own_record(
    architecture: str, chunk_size: int | None, classes: int
) -> None:
    """To the last bit, wherever in a chunk they stand: a record is replaced, is missing, or all change places."""
    count, changed = 70, 5
    images = torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(count) % classes
    schema = Schema(channels=1, height=28, width=28, class_names=tuple(map(str, range(classes))), num_units=count)
    gradients = PerRecordGradients(build_network({"architecture": architecture}, schema), loss, chunk_size)
    before = rows(gradients, (images, labels))
    others = [record for record in range(count) if record != changed]
    replaced = images.clone()
    replaced[changed] = 1e3
    assert torch.equal(rows(gradients, (replaced, labels))[others], before[others])
    assert torch.equal(rows(gradients, (images[others], labels[others])), before[others])
    places = torch.randperm(count, generator=torch.Generator().manual_seed(3))
    assert torch.equal(rows(gradients, (images[places], labels[places])), before[places])
    assert len(before.unique(dim=0)) == count


@pytest.mark.parametrize("chunk_size", [16, None], ids=["small chunks", "one chunk"])
def test_rows_of_a_denoiser_are_functions_of_their_own_record(chunk_size: int | None, device: str) -> None:
    count, side = 40, 16
    generator = torch.Generator().manual_seed(4)
    schema = Schema(channels=1, height=side, width=side, class_names=("a", "b", "c"), num_units=count)
    denoiser = Denoiser(DenoiserShape(schema, 8, 1))
    with torch.no_grad():
        for weight in denoiser.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    clean, stddevs = torch.rand(count, side**2, generator=generator), torch.rand(count, 2, generator=generator) + 0.1
    noisy = clean[:, None] + stddevs[:, :, None] * torch.randn(count, 2, side**2, generator=generator)
    one_hot = functional.one_hot(torch.arange(count) % 3, 3).to(torch.float32)
    packed, clean = torch.cat([noisy.flatten(1), stddevs, one_hot], dim=1).to(device), clean.to(device)
    gradients = PerRecordGradients(PackedDenoiser(denoiser.to(device), 2), denoising_error, chunk_size)
    before = rows(gradients, (packed, clean))
    places = torch.randperm(count, generator=generator)[1:]
    assert torch.equal(rows(gradients, (packed[places], clean[places])), before[places])
    assert len(before.unique(dim=0)) == count


@pytest.mark.parametrize("chunk_size", [1, 16])
@pytest.mark.parametrize("width", [7, 49, 785])
def test_rows_do_not_depend_on_where_in_memory_a_record_starts(width: int, chunk_size: int) -> None:
    generator = torch.Generator().manual_seed(5)
    values, labels = torch.randn(33, width, generator=generator), torch.arange(33) % CLASSES
    layers = nn.Sequential(nn.Linear(width, 10), nn.Tanh(), nn.Linear(10, CLASSES))
    gradients = PerRecordGradients(layers, loss, chunk_size)
    places = torch.randperm(33, generator=generator)[1:]
    assert torch.equal(rows(gradients, (values[places], labels[places])), rows(gradients, (values, labels))[places])


@pytest.mark.parametrize("chunk_size", [2, 8, 15])
def test_few_records_at_once_are_refused(chunk_size: int) -> None:
    with pytest.raises(ValueError, match="at least 16"):
        PerRecordGradients(network(), loss, chunk_size)


@pytest.mark.parametrize(
    ("kind", "dimensions", "size"),
    [
        ("cpu", 1, 512), ("cpu", 26_010, 256), ("cpu", 101_770, 64), ("cpu", 10**6, 16), ("cpu", 2**21, 16),
        ("cpu", 2**21 + 1, 1), ("cuda", 101_770, 512), ("cuda", 10**6, 256), ("cuda", 2**24, 16),
        ("cuda", 2**24 + 1, 1),
    ],
)  # fmt: skip
def test_chunks_fill_the_device_but_are_never_a_few_records(kind: str, dimensions: int, size: int) -> None:
    assert _chunk_size(dimensions, torch.device(kind)) == size


@pytest.mark.parametrize(
    ("error", "sizes"),
    [
        pytest.param(lambda _full: 0, [16, RECORDS - 16], id="none"),
        pytest.param(lambda full: 0 if full else 2.0**-11, [16, RECORDS - 16], id="of TF32"),
        pytest.param(lambda _full: 2.0**-23, [1] * RECORDS, id="of all kernels"),
    ],
)
def test_records_come_one_by_one_where_even_kernels_of_full_precision_round_by_place(
    error: Callable[[bool], float], sizes: list[int]
) -> None:
    gradients = PerRecordGradients(network(), loss, 16)

    def compute(part: list[Tensor]) -> Tensor:
        products = part[0].flatten(1) * 3
        products[0] *= 1 + error(gradients._full_precision)
        return products

    gradients._try_places(compute, records())
    assert [len(chunk) for chunk in gradients.chunks(records())] == sizes


def test_fewer_records_go_together_where_memory_is_short() -> None:
    gradients, tried = PerRecordGradients(network(), loss, 100), []

    def compute(part: list[Tensor]) -> Tensor:
        tried.append(len(part[0]))
        if len(part[0]) > 20:
            raise torch.OutOfMemoryError
        return part[0].flatten(1) * 3

    gradients._try_places(compute, records())
    assert tried == [100, 50, 25, 16, 16]
    assert [len(chunk) for chunk in gradients.chunks(records())] == [16, RECORDS - 16]


def test_a_device_that_does_not_repeat_its_results_does_not_train() -> None:
    gradients = PerRecordGradients(network(), loss, 16)
    with pytest.raises(WorkerUnavailable, match="train with device cpu"):
        gradients._try_places(lambda part: torch.rand(len(part[0]), 3), records())


def test_weights_that_are_not_trained_have_no_column() -> None:
    trained = network()
    for weight in trained[0].parameters():
        weight.requires_grad_(False)
    gradients = PerRecordGradients(trained, loss, 16)
    assert rows(gradients, records()).shape[1] == gradients.dimensions == 4 + 4 + 36 * CLASSES + CLASSES


def test_rows_follow_the_weights() -> None:
    trained, inputs = network(), records()
    gradients = PerRecordGradients(trained, loss, 16)
    before = rows(gradients, inputs)
    with torch.no_grad():
        trained[4].weight.mul_(2)
    assert not torch.equal(before, rows(gradients, inputs))


def test_no_records_make_no_chunk() -> None:
    images, labels = records()
    assert list(PerRecordGradients(network(), loss, 16).chunks((images[:0], labels[:0]))) == []


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(1), nn.Dropout(0.5), nn.SyncBatchNorm(1)])
def test_layers_that_mix_records_or_draw_are_refused(layer: nn.Module) -> None:
    with pytest.raises(InvalidSpec, match=type(layer).__name__):
        PerRecordGradients(nn.Sequential(layer, network()), loss)


def squares(output: Tensor, _image: Tensor) -> Tensor:
    return output.square().sum()


def test_threads_change_no_bit_and_keep_the_order() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten())
    images = torch.randn(37, 1, 6, 6, generator=torch.Generator().manual_seed(0))

    rows = []
    for threads in (1, 3):
        with torch_threads(threads):
            rows.append(torch.cat(list(PerRecordGradients(network, squares, chunk_size=16).chunks([images]))))
            assert torch.get_num_threads() == threads
    assert torch.equal(rows[0], rows[1])


class Meeting(torch.nn.Module):
    """Goes on when two threads are here, so that their calls surely overlap."""

    def __init__(self, meet: threading.Barrier) -> None:
        super().__init__()
        self.meet = [meet]

    def __deepcopy__(self, _memo: object) -> Meeting:
        return Meeting(self.meet[0])

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if threading.current_thread() is not threading.main_thread():
            self.meet[0].wait(timeout=60)
        return values


def test_calls_that_overlap_share_neither_weights_nor_inputs() -> None:
    meeting = Meeting(threading.Barrier(2))
    together = torch.nn.Sequential(
        meeting, torch.nn.Conv2d(1, 2, 3), meeting, torch.nn.Flatten(), torch.nn.Linear(32, 3), meeting
    )
    alone = torch.nn.Sequential(*(layer for layer in together if layer is not meeting))
    images = torch.randn(32, 1, 6, 6, generator=torch.Generator().manual_seed(1))

    with torch_threads(2):
        rows = torch.cat(list(PerRecordGradients(together, squares, chunk_size=16).chunks([images])))
    expected = [torch.autograd.grad(squares(alone(image[None]), image), alone.parameters()) for image in images]
    expected_rows = torch.stack([torch.cat([gradient.flatten() for gradient in row]) for row in expected])
    torch.testing.assert_close(rows, expected_rows)


_IMPORTED_LATE = """
import torch
torch.ones(32, 7) @ torch.ones(7, 3)
from tests.models.test_per_record import rows_of_moved_records
print(torch.equal(*rows_of_moved_records()))
"""


def rows_of_moved_records() -> tuple[Tensor, Tensor]:
    """Gradients of the same records at two places in memory and in their chunk."""
    generator = torch.Generator().manual_seed(0)
    values, labels = torch.randn(33, 49, generator=generator), torch.arange(33) % 3
    layers = nn.Sequential(nn.Linear(49, 10), nn.Tanh(), nn.Linear(10, 3))
    gradients = PerRecordGradients(layers, lambda scores, _values, label: functional.cross_entropy(scores, label))
    together = torch.cat(list(gradients.chunks((values, labels))))
    return together[1:], torch.cat(list(gradients.chunks((values[1:].clone(), labels[1:]))))


def test_products_of_this_process_ignore_placement() -> None:
    assert products_ignore_placement()


def test_rows_are_the_same_in_a_process_that_multiplied_before_the_import() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    command = [sys.executable, "-c", _IMPORTED_LATE]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["True"]


def test_products_that_round_by_place_are_noticed() -> None:
    def product(rows: Tensor, weights: Tensor) -> Tensor:
        products = functional.linear(rows, weights)
        products[0] *= 1 + 2.0**-23
        return products

    assert not ignores_placement(product)


def test_records_come_one_by_one_where_products_round_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_record, "products_ignore_placement", lambda: False)
    values, labels = torch.rand(20, 6), torch.zeros(20, dtype=torch.int64)
    gradients = PerRecordGradients(nn.Linear(6, 2), lambda scores, _, label: functional.cross_entropy(scores, label))
    chunks = list(gradients.chunks((values, labels)))
    assert [len(chunk) for chunk in chunks] == [1] * 20
