"""Fidelity through torch-fidelity: order of the figures, who may see them, and weights that are refused.

The library takes seconds to import, so that it is where it is needed.
"""

import math
from typing import NamedTuple

import httpx2
import numpy as np
import pytest
import torch

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.evaluation import METRICS, EvaluationSettings
from datalens_service.evaluation.measures import measured
from datalens_service.evaluation.metrics import fidelity as fidelity_module
from datalens_service.evaluation.metrics.classifier_benchmark import StepCounter
from datalens_service.evaluation.metrics.context import Context, EvaluatedModel, Sources
from datalens_service.evaluation.metrics.reference import Reference, halves
from tests.evaluation.conftest import split

METRICS_ROOM = "datalens_service.evaluation.metrics"


def compared(images, reference, folder, kind="domain"):
    """Figures of one extractor, as the report has them."""
    schema = Schema(channels=1, height=12, width=12, class_names=("a", "b", "c"), num_units=9)
    subject = EvaluatedModel(
        Drawn(schema, images), Dataset(schema, split(9, 0), None, b"k" * 32), 1.0, 1e-5, "cpu", folder
    )
    settings = EvaluationSettings(fidelity=(kind,), fidelity_images=400)
    sources = Sources(subject, settings, None, reference)
    progress = StepCounter(lambda *_: None, 9)
    return {
        metric.name: measured(
            metric, metric.compute(Context(sources, metric.reads, progress)), sources.standing(metric.reads)
        )
        for metric in METRICS.values()
        if metric.variant == kind
    }


class Drawn(NamedTuple):
    """In place of a generator: draws the images that it is given."""

    schema: Schema
    images: object

    def sample(self, _count):
        return self.images, None


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Few steps suffice for bright corners."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{METRICS_ROOM}.extractors._STEPS", 20)
        patch.setattr(fidelity_module, "_KID_SUBSETS", 3)
        yield


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """Real images, the same with noise, and one image over and over, against one reference."""
    reference = Reference(split(600, 1), "public", "the 600 public test images")
    real = split(300, 2).images
    noise = np.random.default_rng(0).integers(0, 256, real.shape)
    sets = {"real": real, "noisy": ((real.astype(int) + noise) // 2).astype(np.uint8), "same": real[:1].repeat(300, 0)}
    folder = tmp_path_factory.mktemp("fidelity")
    found = {name: compared(images, reference, folder) for name, images in sets.items()}
    assert not list(folder.iterdir()), "weights that learned from real images do not stay"
    return found


def test_distances_grow_with_the_distance(figures):
    for name in ("fid_domain", "kid_domain"):
        real, noisy, same = (figures[which][name].value for which in ("real", "noisy", "same"))
        assert real < noisy
        assert real < same
    assert figures["real"]["fid_domain"].ceiling < figures["real"]["fid_domain"].floor


def test_one_image_over_and_over_has_no_recall_and_no_score(figures):
    assert figures["same"]["recall_domain"].value < 5 < figures["real"]["recall_domain"].value
    assert figures["same"]["score_domain"].value == pytest.approx(1, abs=0.05)
    assert figures["real"]["precision_domain"].value > 50


def test_every_figure_says_what_it_rests_on(figures):
    from datalens_service.evaluation.metrics import extractors

    for name, measure in figures["real"].items():
        basis = measure.basis
        assert basis.extractor == extractors.DOMAIN
        assert len(basis.weights_sha256) == 64
        assert basis.weights_sha256[:12] in measure.protocol
        assert (basis.synthetic_images, basis.reference_images) == (300, 300), name
        assert basis.reference == "the 600 public test images"
        assert basis.library.startswith("torch-fidelity ")
        assert measure.floor is not None
        assert measure.ceiling is not None
    assert {measure.basis.weights_sha256 for found in figures.values() for measure in found.values()} == {
        figures["real"]["fid_domain"].basis.weights_sha256
    }


@pytest.mark.parametrize(
    ("kind", "audience", "status"),
    [("public", "public", "covered"), ("hold-out", "owner", "private"), ("private", "owner", "private")],
)
def test_the_reference_decides_who_may_see_a_figure(kind, audience, status, tmp_path):
    found = compared(split(120, 2).images, Reference(split(160, 1), kind, "images"), tmp_path)
    assert {(measure.audience, measure.status) for measure in found.values()} == {(audience, status)}
    assert all(math.isfinite(measure.value) for measure in found.values())


@pytest.mark.parametrize("kind", ["domain", "random"])
@pytest.mark.parametrize("shape", [(8, 24, 1), (24, 8, 3), (33, 17, 3)], ids=str)
def test_images_that_are_not_square_are_compared(shape, kind, tmp_path):
    height, width, channels = shape
    blobs = split(620, 1, side=48)
    images = np.tile(blobs.images[:, np.arange(height) * 48 // height][:, :, np.arange(width) * 48 // width], channels)
    reference = Reference(Split(images[:500], blobs.labels[:500]), "public", "images")
    found = compared(images[500:], reference, tmp_path, kind)
    assert found
    assert all(math.isfinite(measure.value) for measure in found.values())


def test_halves_share_no_image_and_are_the_same_every_time():
    reference = Reference(Split(np.arange(101, dtype=np.uint8).reshape(-1, 1, 1, 1), np.arange(101)), "public", "x")
    first, second = halves(reference, 1000)
    assert len(first.labels) == len(second.labels) == 50
    assert not set(first.labels) & set(second.labels)
    np.testing.assert_array_equal(halves(reference, 1000).compared.images, second.images)
    assert len(halves(reference, 7).learned.labels) == 7


def test_too_few_images_are_refused_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{METRICS_ROOM}.extractors.train_domain", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(WorkerUnavailable, match="100 reference images"):
        compared(split(60, 2).images, Reference(split(99, 1), "public", "x"), tmp_path)


def test_without_a_connection_the_reason_names_what_to_do(tmp_path, monkeypatch):
    from datalens_service.evaluation.metrics.extractors import inception_weights

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))

    def offline(*_, **__):
        raise httpx2.ConnectError("no route")

    monkeypatch.setattr(httpx2, "stream", offline)
    with pytest.raises(WorkerUnavailable, match="DATALENS_INCEPTION_WEIGHTS"):
        inception_weights(None)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("there", [False, True])
def test_weights_that_are_not_the_published_ones_are_refused(tmp_path, there):
    from datalens_service.evaluation.metrics.extractors import inception_weights

    path = tmp_path / "weights.pth"
    if there:
        path.write_bytes(b"cos\nsystem\n(S'touch canary'\ntR.")
    with pytest.raises(WorkerUnavailable, match="not the published ones" if there else "does not exist"):
        inception_weights(path)


def test_inception_gets_three_channels_and_its_score_alone_is_for_everybody(tmp_path, monkeypatch):
    """With a network of the right interface in its place, since the weights cannot be had here."""
    from torch_fidelity import FeatureExtractorBase, register_feature_extractor
    from torch_fidelity.registry import FEATURE_EXTRACTORS_REGISTRY

    seen = []

    class Stub(FeatureExtractorBase):
        def __init__(self, name, features_list, **_):
            super().__init__(name, features_list)

        @staticmethod
        def get_provided_features_list():
            return ("features", "logits")

        @staticmethod
        def get_default_feature_layer_for_metric(metric):
            return "logits" if metric == "isc" else "features"

        def forward(self, images):
            seen.append(images.shape[1])
            pooled = torch.nn.functional.adaptive_avg_pool2d(images.float() / 255, 4).flatten(1)
            return tuple({"features": pooled, "logits": pooled[:, :10]}[name] for name in self.features_list)

    if "stub" not in FEATURE_EXTRACTORS_REGISTRY:
        register_feature_extractor("stub", Stub)
    monkeypatch.setattr(f"{METRICS_ROOM}.extractors.INCEPTION", "stub")
    monkeypatch.setattr(
        f"{METRICS_ROOM}.extractors.inception_weights", lambda _configured: (tmp_path / "w", "6726825d" + "0" * 56)
    )
    reference = Reference(split(160, 1), "hold-out", "the owner's 160 test images")
    found = compared(split(120, 2).images, reference, tmp_path, kind="inception")
    assert set(seen) == {3}
    assert {name for name, measure in found.items() if measure.releasable} == {"score_inception"}
    score = found["score_inception"]
    assert (score.floor, score.ceiling, score.basis.reference, score.basis.reference_images) == (None, None, "none", 0)
    assert not set(found) & {name.replace("inception", "domain") for name in found}
    # Of all that were drawn, however few images the reference has.
    assert score.basis.synthetic_images == 120
    assert found["fid_inception"].basis.synthetic_images == 80
