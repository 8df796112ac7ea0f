"""Whether a method learns what it should is measured on the same noise in every run."""

import pytest

from datalens_service.methods.sums import record_sums
from datalens_service.models.generators import networks


@pytest.fixture(autouse=True)
def _same_noise(seeded_entropy: None) -> None:
    """No test here is of the noise itself."""


@pytest.fixture
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The released network has the same shape and fewer maps; few frequencies of images are summed, seldom all."""
    monkeypatch.setattr(record_sums, "MAXIMUM_DIMENSIONS", 500)
    monkeypatch.setattr(record_sums, "_FREQUENCIES", 200)
    monkeypatch.setattr(networks, "HIDDEN", 8)
    monkeypatch.setattr(networks, "MAPS", 2)
