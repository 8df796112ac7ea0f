"""Rows of products are the same to the last bit wherever they lie; where they are not, records come one by one."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.models import per_record
from datalens_service.models.per_record import PerRecordGradients, ignores_placement, products_ignore_placement

_IMPORTED_LATE = """
import torch
torch.ones(32, 7) @ torch.ones(7, 3)
from tests.models.test_row_placement import rows_of_moved_records
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
