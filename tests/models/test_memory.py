"""Teachers that do not fit are refused with a sentence, not killed."""

import pytest

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidSpec
from datalens_service.models import memory

MNIST = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)


def test_the_original_ensemble_needs_more_than_eight_gibibytes(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 8 * 2**30)
    with pytest.raises(InvalidSpec, match=r"conv need 2\d\.\d GiB .* 8\.0 GiB .*dense"):
        memory.check_memory("conv", 4000, MNIST, "cpu")
    memory.check_memory("dense", 4000, MNIST, "cpu")


def test_this_machine_has_memory():
    assert memory.available_bytes("cpu") > 2**27
