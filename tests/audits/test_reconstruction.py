"""Gradient inversion of an owner's records: what is released of a gradient is what the method would release."""

import io
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image

from datalens_service.audits.inversion import observe_releases
from datalens_service.audits.inversion_figures import InversionFigures, InversionSettings, measure_errors
from datalens_service.audits.reconstruction import Reconstruction, check_invertible, invert_records
from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import GradientSum
from datalens_service.methods import DpSgd, Moments

RECORDS = 6
SEARCH = InversionSettings(iterations=60, restarts=1)


def inverted(dataset: Dataset, **settings: object) -> Reconstruction:
    method = DpSgd.model_validate({"architecture": "mlp", "steps": 5, **settings})
    plan = method.plan_within(dataset.schema, 1.0, 1e-5)
    return invert_records(dataset, method, plan, RECORDS, SEARCH)


@pytest.fixture(scope="module")
def gaussian(digits: Dataset) -> Reconstruction:
    return inverted(digits)


def check_protection(figures: InversionFigures) -> None:
    assert figures.released is not None
    assert figures.raw.interval[1] < 0.3
    assert figures.released.interval[0] > 0.7


def test_a_raw_gradient_shows_its_image_and_a_released_one_does_not(gaussian: Reconstruction) -> None:
    check_protection(gaussian.figures)
    assert (gaussian.figures.noise, gaussian.figures.kappa) == ("gaussian", None)
    assert gaussian.figures.noise_multiplier == pytest.approx(8.34, rel=0.01)


@pytest.mark.parametrize(
    "settings",
    [{"compression": "normtopk", "keep": 0.8}, {"noise": "von_mises_fisher", "sampling": "partition"}],
    ids=["normtopk", "directions"],
)
def test_other_noise_protects_as_well(digits: Dataset, settings: dict[str, object]) -> None:
    figures = inverted(digits, **settings).figures
    check_protection(figures)
    assert figures.noise == settings.get("noise", "gaussian")
    assert (figures.noise_multiplier is None) == (figures.kappa is not None)


def test_a_release_without_noise_shows_the_image(digits: Dataset) -> None:
    """The comparison can fail: what protects the image is the noise of the mechanism."""
    with mock.patch.object(GradientSum, "noisy_sum", lambda self, chunks, _batch, _noise: self.exact_sum(chunks)):
        figures = inverted(digits).figures
    assert figures.released is not None
    assert figures.released.median < 0.3


def test_the_noise_is_that_of_the_mechanism_on_each_record_alone() -> None:
    mechanism = GradientSum(dimensions=400, clip_norm=2.0, noise_stddev=2**17)
    rows = torch.zeros(30, 400)
    seen = observe_releases(mechanism, iter([rows]))
    assert seen.shape == rows.shape
    assert float(seen.std()) == pytest.approx(2 * 2.0, rel=0.05)
    assert len(torch.unique(seen, dim=0)) == 30


def test_a_network_without_privacy_has_no_released_gradient(digits: Dataset) -> None:
    reconstruction = invert_records(digits, None, None, RECORDS, SEARCH)
    assert (reconstruction.figures.released, reconstruction.figures.noise) == (None, "none")
    assert reconstruction.figures.raw.median < 0.3


def test_the_picture_has_originals_above_what_was_made_of_them(gaussian: Reconstruction) -> None:
    picture = np.asarray(Image.open(io.BytesIO(gaussian.picture)))
    height = picture.shape[0] // 3
    originals, raw, released = (picture[part * height : (part + 1) * height].astype(float) for part in range(3))
    near, far = (np.corrcoef(originals.ravel(), row.ravel())[0, 1] for row in (raw, released))
    assert near > 0.9 > 0.6 > far
    assert Image.open(io.BytesIO(gaussian.picture)).info["Comment"].startswith("Private records")


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    figures = [measure_errors(rng.exponential(size=8)) for _ in range(2000)]
    covered = np.mean([row.interval[0] <= np.log(2) <= row.interval[1] for row in figures])
    assert 0.95 <= covered < 1
    more = [measure_errors(rng.exponential(size=50)).interval for _ in range(200)]
    assert np.mean([high - low for low, high in more]) < 0.8


def test_what_has_no_gradient_of_a_single_record_is_refused(digits: Dataset) -> None:
    with pytest.raises(InvalidSpec, match="dp_sgd"):
        check_invertible(digits.schema, Moments())
    with pytest.raises(InvalidSpec, match="several"):
        check_invertible(digits.schema.model_copy(update={"unit": "patient", "records_per_unit": 3}), DpSgd())
