"""Scattering features and a linear layer: plans, charges, resumption, and that it learns."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.methods import Scattering
from datalens_service.methods.last_layer.dead_leaves import DeadLeaves, draw_dead_leaves
from datalens_service.methods.last_layer.scattering import choose_learning_rate
from datalens_service.methods.sums.moments import Moments
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.classifiers.encoded_features import FeatureBasis, as_classifier
from datalens_service.models.encoders import ImagenetLite0, ScatteringEncoder
from datalens_service.models.encoders.network import OpponentColours, ScatteringNetwork
from datalens_service.models.encoders.wavelets import ScatteringTransform as Features
from datalens_service.models.encoders.wavelets import planes_at_once
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from tests.models.test_encoders import with_weights

from .builders import advance, share_right, start, stripes, train

UNITS = limit_units(40.0, 1e-4)
METHOD = Scattering(warm_start=Moments(subspace_dimensions=8), steps=10, samples=200, dimensions=20)
AT_ONCE = Scattering(warm_start=None, steps=10)
"""All of the budget for gradients on the features of an encoder."""
DRAWINGS = METHOD.model_copy(update={"warm_start": DeadLeaves(), "dimensions": 100})
WAVELETS, OPPONENT = ScatteringEncoder(), ScatteringEncoder(colours="opponent")
MIRRORED = ScatteringEncoder(colours="opponent", mirrored=True)
each_start = pytest.mark.parametrize("method", [METHOD, DRAWINGS, AT_ONCE], ids=["samples", "drawings", "none"])


def shortened(dataset: Dataset, count: int) -> Dataset:
    train = Split(dataset.train.images[:count], dataset.train.labels[:count])
    schema = dataset.schema.model_copy(update={"num_units": count})
    return replace(dataset, schema=schema, train=train)


class Known(ImagenetLite0):
    """Installed or not."""

    def check(self, schema: Schema) -> None:
        pass


def basis_of(schema: Schema, samples: np.ndarray, encoder: ScatteringEncoder = WAVELETS) -> FeatureBasis:
    basis = FeatureBasis.from_encoder(encoder, schema, "cpu", 5)
    basis.fit(samples, 0.25, seed=0)
    return basis


@each_start
@pytest.mark.parametrize("records", [1, 4])
def test_it_learns_and_planned_is_charged(records: int, method: Scattering) -> None:
    dataset = stripes(records_per_unit=records)
    account = MemoryAccount(UNITS)
    model = train(method, dataset, UNITS, account).result()
    plan = method.plan(dataset.schema, UNITS)
    expected = [release.mechanism.cost() for release in plan.releases for _ in range(release.count)]
    assert [units for *_, units in account.charges] == expected
    assert sum(expected) <= UNITS
    assert share_right(model) > 0.9


@each_start
def test_a_resumed_run_is_the_same_and_charges_nothing_twice(method: Scattering) -> None:
    dataset = stripes()
    whole, account = start(method, dataset, UNITS), MemoryAccount(UNITS)
    advance(whole, account, 9)
    resumed = train(method, dataset, UNITS, account)
    advance(whole, account)
    assert len(account.charges) == whole.steps
    for name, value in whole.result().tensors.items():
        np.testing.assert_array_equal(resumed.result().tensors[name], value)


@pytest.mark.parametrize(
    ("method", "records"),
    [
        pytest.param(METHOD, 400, id="samples"),
        pytest.param(DRAWINGS, 400, id="drawings"),
        pytest.param(AT_ONCE, 400, id="none"),
        pytest.param(Scattering(encoder="imagenet-lite0", steps=3), 24, id="imagenet-lite0", marks=with_weights),
    ],
)
def test_the_released_network_gives_the_scores_that_training_followed(method: Scattering, records: int) -> None:
    dataset = shortened(stripes(), records)
    training_run = train(method, dataset, UNITS)
    layer = training_run.local("layer")
    scores = torch.from_numpy(layer.basis.features(dataset.train.images) @ layer._average)
    probabilities = training_run.result().predict(dataset.train.images)
    np.testing.assert_allclose(probabilities, scores.softmax(dim=1).numpy(), atol=1e-5)


def test_another_encoder_starts_from_nothing_and_spends_all_on_gradients() -> None:
    schema = Schema(channels=3, height=64, width=64, class_names=("a", "b"), num_units=900)
    method = Scattering.model_validate({"encoder": {"name": "imagenet-lite0"}})
    (release,) = method.model_copy(update={"encoder": Known()}).plan(schema, UNITS).releases
    assert (release.mechanism.left_dimensions, release.count) == (1281, method.steps)
    assert 0.99 * UNITS < release.cost() <= UNITS
    assert Scattering.model_validate_json(method.model_dump_json()) == method
    with pytest.raises(ValidationError, match="warm_start does not apply"):
        Scattering.model_validate({"encoder": "imagenet-lite0", "warm_start": "moments"})


def test_a_request_of_wavelets_says_and_means_what_it_did() -> None:
    """Before there were others; its hash names it in cards and checkpoints."""
    method = Scattering.model_validate({"name": "scattering"})
    assert "encoder" not in method.model_dump()
    assert method == Scattering(warm_start=Moments(), encoder="scattering") == Scattering(encoder=ScatteringEncoder())


def test_drawings_cost_nothing_and_are_the_same_for_every_data_set() -> None:
    (release,) = DRAWINGS.plan(stripes().schema, UNITS).releases
    assert 0.99 * UNITS < release.cost() <= UNITS
    one, other = (start(DRAWINGS, stripes(seed), UNITS).local("layer").basis.network.basis for seed in (0, 1))
    assert torch.equal(one, other)


@pytest.mark.parametrize("size", [(1, 28, 28), (3, 8, 12)], ids=str)
def test_drawings_vary_and_have_the_size_of_records(size: tuple[int, int, int]) -> None:
    schema = Schema(channels=size[0], height=size[1], width=size[2], class_names=("a",), num_units=9)
    pictures = draw_dead_leaves(schema, 300, np.random.default_rng(0))
    assert (pictures.shape, pictures.dtype) == ((300, *size[1:], size[0]), np.uint8)
    assert pictures.std(axis=0).min() > 25
    assert len(np.unique(pictures, axis=0)) == 300


@pytest.mark.parametrize(
    ("size", "encoder"),
    [((1, 28, 28), WAVELETS), ((3, 8, 8), WAVELETS), ((3, 6, 9), MIRRORED), ((3, 12, 9), OPPONENT)],
)
def test_features_do_not_depend_on_the_place_in_a_batch(size: tuple[int, int, int], encoder: ScatteringEncoder) -> None:
    """To the last bit: a record that is left out moves the others."""
    schema = Schema(channels=size[0], height=size[1], width=size[2], class_names=("a", "b"), num_units=300)
    images = np.random.default_rng(0).integers(0, 256, (300, *size[1:], size[0]), dtype=np.uint8)
    basis = basis_of(schema, images[:20], encoder)
    features = basis.features(images)
    np.testing.assert_array_equal(features[1:], basis.features(images[1:]))
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)


def test_opponent_colours_are_apart_and_of_rgb_images_alone() -> None:
    """Middle grey is nothing, a grey edge in brightness alone, one from red to blue in the first difference."""
    assert OpponentColours()(torch.full((1, 3, 8, 8), 0.5)).abs().max() < 1e-6
    grey, colours = torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 8)
    grey[..., 4:], colours[:, 0, :, 4:], colours[:, 2, :, :4] = 1, 1, 1
    varies = OpponentColours()(torch.cat([grey, colours])).flatten(2).std(dim=2) > 1e-6
    assert varies.tolist() == [[True, False, False], [False, True, False]]
    with pytest.raises(InvalidSpec, match="not of 1 channels"):
        Scattering(encoder=OPPONENT, warm_start=DeadLeaves()).plan(stripes().schema, UNITS)


def test_an_image_and_its_mirror_image_have_the_same_features_where_a_job_asks_for_it() -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 12, 3), dtype=np.uint8)
    schema = Schema(channels=3, height=8, width=12, class_names=("a",), num_units=9)
    for encoder, same in ((MIRRORED, True), (OPPONENT, False)):
        features, of_mirrored = (encoder.load(schema).encode(each) for each in (images, images[:, :, ::-1]))
        assert np.array_equal(features, of_mirrored) is same
        assert np.linalg.norm(features, axis=1).max() <= 1


@pytest.mark.parametrize("encoder", [OPPONENT, MIRRORED], ids=["colours", "mirrored"])
def test_a_released_classifier_keeps_its_encoder(tmp_path: Path, encoder: ScatteringEncoder) -> None:
    schema = Schema(channels=3, height=8, width=12, class_names=("a", "b"), num_units=300)
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 12, 3), dtype=np.uint8)
    basis = basis_of(schema, images, encoder)
    weights = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)
    as_classifier(basis, weights).save(tmp_path / "classifier.safetensors")
    loaded = Classifier.load(tmp_path / "classifier.safetensors")
    loaded.save_onnx(tmp_path / "classifier.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "classifier.onnx", providers=["CPUExecutionProvider"])
    (by_graph,) = session.run(["probabilities"], {"images": images})
    expected = torch.from_numpy(basis.features(images) @ weights).softmax(dim=1).numpy()
    for probabilities in (loaded.predict(images), by_graph):
        np.testing.assert_allclose(probabilities, expected, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("side", [1, 4, 8, 11, 28, 45, 64, 80, 300])
def test_a_batch_is_scattered_in_equal_parts(side: int, channels: int) -> None:
    assert ScatteringNetwork.images_at_once * channels % planes_at_once(side, side) == 0


def test_wavelets_see_direction_and_ignore_brightness() -> None:
    """An edge answers most to the wavelet across it; a constant image to none."""
    columns = torch.zeros(1, 1, 32, 32)
    columns[..., ::4] = 1
    maps = Features()(torch.cat([columns, columns.mT, torch.full_like(columns, 0.7)]))[:, :, 4, 4]
    across, along = maps[0, 1:9], maps[1, 1:9]
    assert (int(across.argmax()), int(along.argmax())) == (0, 4)
    assert maps[2, 0] == pytest.approx(0.7, abs=1e-3)
    assert maps[2, 1:].abs().max() < 1e-3


def test_every_second_pixel_says_what_all_pixels_say() -> None:
    """Averages of the coarser wavelets' moduli at every pixel, away from the edges."""
    network = Features()
    pixels = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images = functional.interpolate(pixels, size=(32, 32), mode="bilinear")
    parts = functional.conv2d(functional.pad(images, (8,) * 4, mode="reflect"), network.get_buffer("wavelets1"))
    lengths = torch.hypot(*parts.chunk(2, dim=1)).flatten(0, 1).unsqueeze(1)
    padded = functional.pad(lengths, (6,) * 4, mode="reflect")
    whole = functional.conv2d(padded, network.get_buffer("average0"), stride=4).reshape(10, 8, 8, 8)[..., 2:-2, 2:-2]
    difference = network(images)[:, 9:17, 2:-2, 2:-2] - whole
    assert difference.norm() < 0.01 * whole.norm()


def test_the_learning_rate_grows_with_the_budget_up_to_a_bound() -> None:
    schema = Schema(channels=1, height=28, width=28, class_names=("a", "b"), num_units=60_000)
    rates = [
        choose_learning_rate(schema, Scattering().plan(schema, limit_units(epsilon, 1e-5)).releases[-1])
        for epsilon in (0.1, 1.0, 10.0)
    ]
    assert rates[0] == pytest.approx(29, rel=0.05)
    assert rates[1] == pytest.approx(236, rel=0.05)
    assert rates[2] == 300


def test_without_samples_the_rate_falls_with_the_number_of_classes() -> None:
    schemas = [
        Schema(channels=1, height=28, width=28, class_names=tuple(map(str, range(classes))), num_units=1000)
        for classes in (2, 8)
    ]
    release = AT_ONCE.plan(schemas[0], limit_units(1.0, 1e-5)).releases[-1]
    two, eight = (choose_learning_rate(schema, release, has_samples=False) for schema in schemas)
    assert two == pytest.approx(2 * eight)
