"""An extractor that cannot tell spoiled images from real ones has no figures."""

import hashlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from datalens_service.errors import WorkerUnavailable
from datalens_service.evaluation.metrics.fidelity import compare
from datalens_service.evaluation.metrics.reference import Reference
from datalens_service.evaluation.metrics.reference_checks import spoiled, why_unknown
from tests.evaluation.conftest import split

SETTINGS = {"most_images": 200, "inception_weights": None, "device": "cpu"}


def blind(reference, num_classes, path, **_settings):
    """An extractor with weights 0: all images look the same to it."""
    from datalens_service.evaluation.metrics.classifiers import standard_network

    shape = reference.images.shape[1:]
    weights = {key: value * 0 for key, value in standard_network(shape, num_classes).state_dict().items()}
    save_file({**weights, "scale": torch.ones(())}, path, {"shape": ",".join(map(str, (*shape, num_classes)))})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_blind_extractor_gives_no_figures(tmp_path, monkeypatch):
    monkeypatch.setattr("datalens_service.evaluation.metrics.domain_extractor.train", blind)
    reference = Reference(split(400, 1), "public", "public images")
    with pytest.raises(WorkerUnavailable, match="Fidelity is unknown"):
        compare(
            "domain", dict(spoiled(split(200, 2).images))["coloured noise"], reference, 3, folder=tmp_path, **SETTINGS
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
    again = dict(spoiled(images))
    for name, changed in spoiled(images):
        assert changed.shape == images.shape
        assert changed.dtype == np.uint8
        assert (changed != images).any()
        assert (changed == again[name]).all()
