"""Random convolutions: they learn nothing, and order images of photographs and digits as people do."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.data.dataset import Images, Split
from datalens_service.evaluation.metrics.fidelity import Comparisons, compare
from datalens_service.evaluation.metrics.reference import Reference
from datalens_service.evaluation.metrics.reference_checks import spoil, why_unknown
from tests.evaluation.conftest import split
from tests.photographs import photographs

EACH = 100


def digits() -> Split:
    bunch = load_digits()
    return Split((bunch.images[..., None] * 15).astype(np.uint8)[: 4 * EACH], bunch.target[: 4 * EACH].astype(np.int64))


def colours(side: int = 32) -> Split:
    return photographs(side, 4 * EACH, 1).train


def against_real(images: Images, real: Split, folder: Path) -> Comparisons:
    reference = Reference(Split(real.images[-2 * EACH :], real.labels[-2 * EACH :]), "public", "images")
    settings = {"most_images": EACH, "inception_weights": None, "device": "cpu"}
    return compare("random", images, reference, 10, folder=folder, **settings)


def distance(images: Images, real: Split, folder: Path) -> float:
    return against_real(images, real, folder).synthetic.figures["fid"]


@pytest.mark.parametrize("make", [digits, colours])
def test_worse_images_are_farther(make, tmp_path):
    real = make()
    images = real.images[:EACH]
    noise = np.random.default_rng(0).normal(size=images.shape)
    noised = [np.clip(images + stddev * noise, 0, 255).astype(np.uint8) for stddev in (40, 80, 160)]
    blurred = [gaussian_filter(images, (0, width, width, 0)) for width in (1.5, 3, 6)]
    for worse_and_worse in (noised, blurred):
        distances = [distance(one, real, tmp_path) for one in (images, *worse_and_worse)]
        assert distances == sorted(distances)
        assert distances[-1] > 5 * distances[0]


@pytest.mark.parametrize("make", [digits, colours])
def test_real_images_are_nearest_and_class_averages_are_far(make, tmp_path):
    real = make()
    compared = against_real(real.images[:EACH], real, tmp_path)
    nearest = compared.synthetic.figures["fid"]
    assert compared.baseline.figures["fid"] > 1.5 * nearest
    assert compared.baseline.figures["recall"] < 20 < compared.synthetic.figures["recall"]
    for name, images in spoil(real.images[:EACH]):
        assert distance(images, real, tmp_path) > 1.5 * nearest, name
    assert not list(tmp_path.iterdir())


def test_weights_depend_on_the_number_of_channels_alone(tmp_path):
    from datalens_service.evaluation.metrics.extractors import write_random

    digests = [write_random(channels, tmp_path / f"weights{number}") for number, channels in enumerate((1, 1, 3))]
    assert digests[0] == digests[1] != digests[2]


def test_features_are_numbers_around_one_also_of_tiny_images(tmp_path):
    from datalens_service.evaluation.metrics.extractors import RandomExtractor, write_random

    write_random(3, tmp_path / "weights")
    extractor = RandomExtractor("random", ["features"], str(tmp_path / "weights"))
    for side in (4, 7, 32):
        images = colours(32).images[:20, :side, :side].transpose(0, 3, 1, 2)
        (features,) = extractor(torch.from_numpy(images.copy()))
        assert features.shape == (20, 64)
        assert 0.01 < float(features.square().mean().sqrt()) < 10


def test_it_refuses_a_reference_of_which_it_sees_nothing(tmp_path):
    """Images of one grey each: blurred and scrambled they are what they were."""
    grey = np.random.default_rng(0).integers(0, 256, (4 * EACH, 1, 1, 1)).repeat(8, 1).repeat(8, 2).astype(np.uint8)
    flat = Split(grey, np.arange(4 * EACH) % 3)
    with pytest.raises(WorkerUnavailable, match="Fidelity is unknown"):
        against_real(flat.images[:EACH], flat, tmp_path)


SETTINGS = {"most_images": 200, "inception_weights": None, "device": "cpu"}


def blind(reference, num_classes, path, **_settings):
    """An extractor with weights 0: all images look the same to it."""
    from datalens_service.evaluation.metrics.extractors import small_network

    shape = reference.images.shape[1:]
    weights = {key: value * 0 for key, value in small_network(shape, num_classes).state_dict().items()}
    save_file({**weights, "scale": torch.ones(())}, path, {"shape": ",".join(map(str, (*shape, num_classes)))})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_blind_extractor_gives_no_figures(tmp_path, monkeypatch):
    monkeypatch.setattr("datalens_service.evaluation.metrics.extractors.train_domain", blind)
    reference = Reference(split(400, 1), "public", "public images")
    with pytest.raises(WorkerUnavailable, match="Fidelity is unknown"):
        compare(
            "domain", dict(spoil(split(200, 2).images))["coloured noise"], reference, 3, folder=tmp_path, **SETTINGS
        )
    assert not list(tmp_path.iterdir())


def test_every_spoiled_set_must_be_farther_than_real_images():
    assert why_unknown(2.0, {"blurred": 3.1, "noised": 40.0}) is None
    assert why_unknown(2.0, {"blurred": 2.9, "noised": 40.0}) is not None
    assert why_unknown(0.0, {"blurred": 0.0}) is not None


def test_the_reason_says_nothing_else_of_the_reference():
    reasons = {why_unknown(2.0, {"blurred": 1.0}), why_unknown(7.0, {"noised": 3.0, "blurred": 90.0})}
    assert len(reasons) == 1


def test_spoiled_images_are_images_and_do_not_change_from_run_to_run():
    images = np.concatenate([split(20, 3).images] * 3, axis=3)
    again = dict(spoil(images))
    for name, changed in spoil(images):
        assert changed.shape == images.shape
        assert changed.dtype == np.uint8
        assert (changed != images).any()
        assert (changed == again[name]).all()
