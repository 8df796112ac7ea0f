"""Whether a method learns what it should is measured on the same noise in every run."""

import pytest


@pytest.fixture(autouse=True)
def _same_noise(seeded_entropy: None) -> None:
    """No test here is of the noise itself."""
