"""The whole measurement on a small set: what is measured, for whom, and what the observer hears."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from datalens_service.base.errors import JobStopped
from datalens_service.data.dataset import Split
from datalens_service.evaluation import METRICS, EvaluationSettings
from datalens_service.evaluation.evaluate import EvaluatedModel, evaluate
from datalens_service.evaluation.measures import Measurements
from datalens_service.evaluation.metrics import fidelity
from datalens_service.evaluation.metrics.classifier_benchmark import STEPS_OF_A_TRAINING
from datalens_service.evaluation.metrics.outcome import MetricResult

SMALL = EvaluationSettings(synthetic_images=900, epochs=2, seeds=2, fidelity=())


def evaluated(generator, dataset, settings=SMALL, observe=lambda *_: None, **more) -> Measurements:
    """Everything, as the owner sees it."""
    given = {"epsilon": 1.0, "delta": 1e-5, "device": "cpu", "folder": Path("/nowhere")} | more
    return evaluate(EvaluatedModel(generator, dataset, **given), settings, observe).measured.for_owner()


def measured(generator, dataset, settings=SMALL, observe=lambda *_: None, **more):
    return by_name(evaluated(generator, dataset, settings, observe, **more))


def by_name(found: Measurements):
    assert len({measure.name for measure in found.measures}) == len(found.measures)
    return {measure.name: measure for measure in found.measures}


@pytest.fixture(scope="module")
def heard():
    """What the observer of `whole` hears."""
    return []


@pytest.fixture(scope="module")
def whole(generator, dataset, heard) -> Measurements:
    """With everything that needs no encoder."""
    return evaluated(generator, dataset, observe=lambda *event: heard.append(event), moments_generator=generator)


def test_figures_are_plausible_and_all_of_them_private(whole):
    found = by_name(whole)
    assert list(found) == ["accuracy", "discriminant", "floor_majority", "floor_averages", "floor_moments", "ceiling"]
    for measure in found.values():
        assert (measure.status, measure.audience, measure.unit) == ("private", "owner", "percent")
        assert measure.seeds == (1 if measure.name == "floor_majority" else 2)
        assert (measure.spread is None) == (measure.seeds == 1)
        assert (measure.balanced_spread is None) == (measure.seeds == 1)
        assert abs(measure.balanced - measure.value) < 10
    assert found["ceiling"].value > 90
    assert found["accuracy"].value > 60
    assert found["discriminant"].value > 60
    assert found["floor_majority"].balanced == pytest.approx(100 / 3)
    assert found["floor_moments"].value == found["accuracy"].value


def test_protocols_name_classifier_steps_counts_and_reference(whole):
    found = by_name(whole)
    accuracy, floor, ceiling = found["accuracy"].protocol, found["floor_averages"].protocol, found["ceiling"].protocol
    assert "standard CNN" in accuracy
    assert "judge 2" in accuracy
    assert "29 steps of 64 of 900 synthetic images" in accuracy
    # As many for 600 real images.
    assert "29 steps of 64 of 600 real training images" in ceiling
    assert "of at most 8×8 pixels" in floor
    assert "ε = 1 at δ = 1e-5" in floor
    assert "nor charged" in floor
    assert all("the owner's 200 test images" in protocol for protocol in (accuracy, floor, ceiling))


def test_there_are_no_more_real_images_than_synthetic_ones(generator, dataset):
    settings = SMALL.model_copy(update={"synthetic_images": 400})
    assert "of 400 of 600 real training images" in measured(generator, dataset, settings)["ceiling"].protocol


def test_classes_that_may_be_mirrored_are(generator, dataset):
    settings = SMALL.model_copy(update={"epochs": 1, "seeds": 1, "mirrored": True, "floors": False})
    assert "mirrored at random" in measured(generator, dataset, settings)["accuracy"].protocol


def test_one_seed_has_no_spread_and_repeats(generator, dataset):
    settings = EvaluationSettings(synthetic_images=300, epochs=1, seeds=1, floors=False, ceiling=False, fidelity=())
    first, again = measured(generator, dataset, settings), measured(generator, dataset, settings)
    assert first == again
    assert list(first) == ["accuracy", "discriminant"]
    assert (first["accuracy"].spread, first["accuracy"].seeds) == (None, 1)


def test_an_evaluation_is_repeated_and_has_an_interval(generator, dataset):
    settings = EvaluationSettings(synthetic_images=300, epochs=1, floors=False, ceiling=False, fidelity=())
    accuracy = measured(generator, dataset, settings)["accuracy"]
    assert accuracy.seeds == 3
    low, high = accuracy.confidence_interval
    # Student's t with two degrees of freedom: 4.303.
    assert high == pytest.approx(min(100, accuracy.value + 4.3027 * accuracy.spread / 3**0.5), rel=1e-4)
    assert low == pytest.approx(max(0, accuracy.value - 4.3027 * accuracy.spread / 3**0.5), rel=1e-4)


@pytest.mark.usefixtures("whole")
def test_progress_is_public_and_complete(heard):
    steps = STEPS_OF_A_TRAINING * 2 * 3
    assert list(dict.fromkeys(heard)) == [(done, steps) for done in range(steps + 1)]


def test_somebody_who_stops_it_is_heard_while_images_are_drawn(generator, dataset, monkeypatch):
    drawn = []
    original = type(generator).sample

    def sample(model, n, **options):
        images = original(model, n, **options)
        drawn.append(n)
        return images

    def stop(value, maximum):
        raise JobStopped("Cancelled.")

    monkeypatch.setattr(type(generator), "sample", sample)
    with pytest.raises(JobStopped):
        measured(generator, dataset, observe=stop)
    assert drawn == []


@pytest.mark.parametrize("without", ["test", "settings"])
def test_nothing_is_measured_without_test_images_or_wish(generator, dataset, without):
    if without == "test":
        assert measured(generator, dataclasses.replace(dataset, test=None)) == {}
    else:
        assert measured(generator, dataset, EvaluationSettings(enabled=False)) == {}


def public(dataset):
    return dataclasses.replace(dataset, schema=dataset.schema.model_copy(update={"test_is_public": True}))


def test_on_public_test_images_only_what_read_released_images_alone_may_be_passed_on(generator, dataset):
    settings = SMALL.model_copy(update={"epochs": 1, "seeds": 1})
    found = measured(generator, public(dataset), settings, moments_generator=generator)
    releasable = {name for name, measure in found.items() if measure.releasable}
    assert releasable == {"accuracy", "discriminant", "floor_majority"}
    assert "the 200 public test images" in found["accuracy"].protocol
    assert {measure.status for name, measure in found.items() if name not in releasable} == {"private"}


def test_the_table_of_classes_says_what_the_accuracies_say(whole, dataset):
    lines = whole.per_class
    assert [line.class_name for line in lines] == list(dataset.schema.class_names)
    assert sum(line.test_images for line in lines) == len(dataset.test.labels)
    measures = by_name(whole)
    for name, column in (("accuracy", "accuracy"), ("ceiling", "ceiling")):
        right = sum(line.test_images * getattr(line, column) for line in lines) / len(dataset.test.labels)
        assert right == pytest.approx(measures[name].value)
        assert sum(getattr(line, column) for line in lines) / len(lines) == pytest.approx(measures[name].balanced)


def encode_pixels(network, images):
    """In place of the encoder."""
    return images.reshape(len(images), -1).astype(np.float32)


def test_features_of_a_public_encoder_are_measured_beside_the_standard_cnn(generator, dataset, monkeypatch):
    from datalens_service.models.encoders.lite0_network import Lite0Network

    monkeypatch.setattr(Lite0Network, "encode", encode_pixels)
    settings = EvaluationSettings(
        synthetic_images=300, epochs=1, seeds=1, floors=False, stronger_classifier=True, fidelity=()
    )
    heard = []
    found = evaluated(generator, dataset, settings, lambda *event: heard.append(event))
    names = ["accuracy", "discriminant", "ceiling", "accuracy_features", "ceiling_features"]
    assert [measure.name for measure in found.measures] == names
    assert "features of imagenet-lite0" in found.measures[3].protocol
    assert found.measures[3].value > 90
    assert len(found.per_class) == 2 * len(dataset.schema.class_names)
    assert heard[-1] == (4 * STEPS_OF_A_TRAINING, 4 * STEPS_OF_A_TRAINING)


def test_without_the_extra_the_features_are_named_as_missing(generator, dataset, monkeypatch):
    monkeypatch.setattr("datalens_service.models.encoders.imagenet_lite0.find_spec", lambda _name: None)
    settings = TINY.model_copy(update={"fidelity": (), "seeds": 1, "floors": False, "stronger_classifier": True})
    found = evaluated(generator, dataset, settings)
    assert [measure.name for measure in found.measures] == ["accuracy", "discriminant", "ceiling"]
    assert {one.figure for one in found.unavailable} == {
        "Features of ImageNet, synthetic images",
        "Features of ImageNet, real images",
    }
    assert all("datalens-service[imagenet]" in one.reason for one in found.unavailable)


def test_a_figure_that_cannot_be_had_says_why_and_the_others_are_there(generator, dataset, tmp_path):
    settings = SMALL.model_copy(update={"seeds": 1, "epochs": 1, "fidelity": ("inception",)})
    found = evaluated(generator, dataset, settings, folder=tmp_path, inception_weights=tmp_path / "none.pth")
    (missing,) = found.unavailable
    assert "ImageNet Inception" in missing.figure
    assert "DATALENS_INCEPTION_WEIGHTS" in missing.reason
    assert "accuracy" in {measure.name for measure in found.measures}


def failing(*_args, **_kwargs):
    raise RuntimeError("record 17 of class secret-diagnosis is odd")


TINY = EvaluationSettings(synthetic_images=60, epochs=1, fidelity=("domain",))


def computed_by(monkeypatch, name, compute):
    monkeypatch.setitem(METRICS, name, dataclasses.replace(METRICS[name], compute=compute))


@pytest.fixture
def quick_fidelity(monkeypatch):
    """Distances that take no minute."""
    for name in ("fid_domain", "kid_domain", "precision_domain", "recall_domain", "score_domain"):
        computed_by(monkeypatch, name, lambda _context: MetricResult((1.0,), "p"))


@pytest.mark.usefixtures("quick_fidelity")
@pytest.mark.parametrize("missing", ["floor_averages", "floor_moments", "ceiling", "fid_domain"])
def test_a_figure_that_fails_leaves_the_others_and_is_named_without_what_it_said(
    generator, dataset, monkeypatch, capfd, missing
):
    computed_by(monkeypatch, missing, failing)
    found = evaluated(generator, public(dataset), TINY, moments_generator=generator)
    fidelity = {f"{name}_domain" for name in ("fid", "kid", "precision", "recall", "score")}
    # Figures of one extractor come from one computation and fail together.
    lost = fidelity if missing in fidelity else {missing}
    public_names = {"accuracy", "discriminant", "floor_majority"} | fidelity
    names = {"floor_averages", "floor_moments", "ceiling"} | public_names
    assert {one.name for one in found.measures} == names - lost
    assert {one.name for one in found.measures if one.releasable} == public_names - lost
    (reported,) = found.unavailable
    assert "could not be computed" in reported.reason
    said = capfd.readouterr()
    assert "secret" not in repr(found) + said.out + said.err
    assert len(found.per_class) == len(dataset.schema.class_names)


def test_the_accuracy_that_fails_leaves_the_others_and_no_table(generator, dataset, monkeypatch):
    computed_by(monkeypatch, "accuracy", failing)
    found = evaluated(generator, dataset, TINY.model_copy(update={"fidelity": ()}))
    assert [one.name for one in found.measures] == ["floor_majority", "floor_averages", "ceiling"]
    assert [one.figure for one in found.unavailable] == ["Trained on the synthetic images"]
    assert found.per_class == ()


def test_the_public_score_does_not_depend_on_private_images(generator, dataset, tmp_path, monkeypatch):
    settings = TINY.model_copy(
        update={"fidelity": ("inception",), "fidelity_images": 90, "floors": False, "ceiling": False}
    )
    extractor = fidelity.Extractor("inception", "stub", tmp_path, "0" * 64)
    score = lambda images, **_: (extractor, fidelity.ReferenceComparison({"score": float(images.mean())}, len(images)))  # noqa: E731
    monkeypatch.setattr(fidelity, "compare", failing)
    monkeypatch.setattr(fidelity, "score_alone", score)
    smaller = dataclasses.replace(dataset, test=Split(dataset.test.images[:120], dataset.test.labels[:120]))
    found, other = (evaluated(generator, one, settings, folder=tmp_path) for one in (dataset, smaller))
    (public,) = [one for one in found.measures if one.releasable]
    assert [public] == [one for one in other.measures if one.releasable]
    assert (public.name, public.basis.synthetic_images, public.floor) == ("score_inception", 90, None)
    assert [one.figure for one in found.unavailable] == ["Fidelity, ImageNet Inception"]
