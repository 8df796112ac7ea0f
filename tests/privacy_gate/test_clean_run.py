"""The product as it is raises no alarm; a file of its own, because processes of the tests take whole files."""

import pytest

from tests.torch_threads import torch_threads

from .gate import first_alarm


@pytest.fixture(autouse=True)
def one_thread():
    with torch_threads(1):
        yield


# It takes minutes beside three other processes on two cores: an end in time says nothing of the product.
@pytest.mark.timeout(3600)
def test_the_product_raises_no_alarm():
    """The command makes twenty runs; this one has all detectors and takes two minutes of a core."""
    assert first_alarm(seed=0) is None
