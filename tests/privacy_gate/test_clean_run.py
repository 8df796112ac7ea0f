"""The product as it is raises no alarm; a file of its own, because processes of the tests take whole files."""

import pytest
import torch

from .gate import first_alarm


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# It takes minutes beside three other processes on two cores: an end in time says nothing of the product.
@pytest.mark.timeout(3600)
def test_the_product_raises_no_alarm():
    """The command makes twenty runs; this one has all detectors and takes two minutes of a core."""
    assert first_alarm(seed=0) is None
