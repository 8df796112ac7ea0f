"""Presets: parameters from public values that always fit the data set."""

import pytest

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.methods import (
    DataLens,
    Diffusion,
    Guided,
    LabelledMoments,
    LabelledPool,
    Mixture,
    Moments,
    PooledMoments,
    Rejection,
    RejectionOrDiffusion,
    Scattering,
)
from datalens_service.methods.last_layer.dead_leaves import DeadLeaves
from datalens_service.methods.voting.teachers import ConvTeacher
from datalens_service.models.encoders import ImagenetLite0, ScatteringEncoder, imagenet_lite0
from datalens_service.planning.presets import PRESETS, Purpose, count_teachers, plan_named, preset
from datalens_service.spec import TrainingSpec


def schema(num_units: int, num_classes: int = 10, side: int = 28, channels: int = 1) -> Schema:
    names = tuple(f"class {number}" for number in range(num_classes))
    return Schema(channels=channels, height=side, width=side, class_names=names, num_units=num_units)


MNIST = schema(60_000)


SAMPLED = ("diffusion", "large")


def strip(height: int, width: int, channels: int) -> Schema:
    return schema(60_000, channels=channels).model_copy(update={"height": height, "width": width})


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in SAMPLED])
@pytest.mark.parametrize(
    "public",
    [
        MNIST,
        schema(2),
        schema(3_000, num_classes=1000),
        schema(500, num_classes=1),
        schema(100, side=4),
        schema(20_000, side=64, channels=3),
        strip(256, 4, channels=3),
    ],
    ids=lambda found: f"n{found.num_units}c{found.num_classes}d{found.dimensions}",
)
def test_every_preset_fits_every_data_set(name: str, public: Schema) -> None:
    # Large enough to pay for a step of anything; gradients of `auto` take long to price at a large ε.
    epsilon = 2.0 if name == "auto" and public.num_units > 1000 else 50.0
    spec = TrainingSpec(method=preset(name, public, epsilon), epsilon=epsilon)
    plan = spec.plan(public)
    assert plan.cost() <= spec.limit_units(public)
    if isinstance(spec.method, DataLens):
        assert spec.method.num_teachers <= public.num_units


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize(
    "public",
    [MNIST, schema(50_000, num_classes=100, side=32, channels=3), schema(20, num_classes=1, side=4)],
    ids=["grey", "colour", "tiny"],
)
def test_a_denoiser_fits_what_the_budget_pays_for(name: str, public: Schema) -> None:
    spec = TrainingSpec(method=preset(name, public, 2.0), epsilon=2.0)
    assert spec.plan(public).cost() <= spec.limit_units(public)
    assert isinstance(spec.method, Diffusion)


@pytest.mark.parametrize("name", SAMPLED)
def test_a_denoiser_starts_from_the_outlines_that_auto_would_hand_out(name: str) -> None:
    handed_out = preset("auto", MNIST, 2.0)
    assert isinstance(handed_out, RejectionOrDiffusion)
    share = {"gradient_share": 0.5} if name == "diffusion" else {}
    method = preset(name, MNIST, 2.0)
    assert isinstance(method, Diffusion)
    assert method.warm_start == handed_out.drawings.model_copy(update=share)


def test_a_large_denoiser_of_colours_starts_where_a_classifier_names_images_where_noise_is_quiet() -> None:
    colour = schema(50_000, side=32, channels=3)
    quiet, loud = preset("large", colour, 10.0), preset("large", colour, 1.0)
    assert quiet == Diffusion(warm_start=LabelledMoments(), width=32, blocks=3, steps=600, noise_draws=4)
    assert isinstance(loud, Diffusion)
    assert isinstance(loud.warm_start, Guided)


def test_gradients_of_a_denoiser_are_fewer_where_their_noise_is_louder() -> None:
    loud, quiet = preset("diffusion", MNIST, 1.0), preset("diffusion", MNIST, 10.0)
    start = Rejection(gradient_share=0.5)
    assert (loud, quiet) == (Diffusion(warm_start=start, warm_start_share=0.5, steps=60), Diffusion())


def test_large_says_that_processors_take_long_and_diffusion_does_not() -> None:
    def warnings(name: str) -> str:
        method = preset(name, MNIST, 2.0)
        return " ".join(method.warnings(TrainingSpec(method=method, epsilon=2.0).plan(MNIST), MNIST))

    assert "hours of one core: train on a graphics processor" in warnings("large")
    assert "hours" not in warnings("diffusion")


@pytest.mark.parametrize(
    ("num_units", "multiple_of", "expected"),
    [
        (60_000, 1, 4000),
        (60_000, 10, 4000),
        (1_438, 1, 95),
        (1_438, 10, 90),
        (2, 1, 1),
        (149, 10, 10),
        (10**6, 3, 3999),
    ],
)
def test_shards_keep_about_fifteen_records(num_units: int, multiple_of: int, expected: int) -> None:
    assert count_teachers(schema(num_units), multiple_of=multiple_of) == expected


@pytest.mark.parametrize(
    ("name", "epsilon", "expected"),
    [
        ("paper", 1.0, (5000, 200, 0.7, 50)),
        ("paper", 10.0, (800, 300, 0.2, 50)),
        ("paper_fashion_mnist", 1.0, (5000, 200, 0.9, 50)),
        ("paper_fashion_mnist", 10.0, (1000, 350, 0.27, 64)),
    ],
)
def test_paper_has_the_authors_settings(name: str, epsilon: float, expected: tuple[float, ...]) -> None:
    method = preset(name, MNIST, epsilon)
    assert isinstance(method, DataLens)
    assert (method.noise_stddev, method.votes.top_k, method.threshold, method.z_dim) == expected
    assert (method.num_teachers, method.shards, method.warm_start) == (4000, "mixed", None)
    assert isinstance(method.teacher, ConvTeacher)
    assert (method.teacher.batch, method.teacher.steps, method.teacher.warmup_steps) == (15, 2, 10)
    assert (method.clip, method.image_step_size, method.vote_basis) == (1e-5, 1e-3, "pixels")


@pytest.mark.parametrize(("epsilon", "votes"), [(1.0, 2245), (10.0, 2134)])
def test_paper_votes_on_as_many_images_as_the_budget_allows(epsilon: float, votes: int) -> None:
    spec = TrainingSpec(method=preset("paper", MNIST, epsilon), epsilon=epsilon, delta=1e-5)
    assert spec.plan(MNIST).images == votes - votes % 15


@pytest.mark.parametrize(
    ("name", "epsilon", "expected"),
    [
        ("paper_celeba_gender", 1.0, (6000, 9000, 700, 0.85, 1e-5, 30)),
        ("paper_celeba_gender", 10.0, (6000, 700, 500, 0.12, 1e6, 30)),
        ("paper_celeba_hair", 1.0, (8000, 9000, 700, 0.9, 1e-5, 15)),
        ("paper_celeba_hair", 10.0, (4000, 700, 500, 0.25, 1e6, 30)),
    ],
)
def test_paper_has_the_authors_settings_for_faces(name: str, epsilon: float, expected: tuple[float, ...]) -> None:
    """At ε = 10 their commands have no --max_grad, so that nothing is clipped."""
    faces = Schema(channels=3, height=64, width=64, class_names=("no", "yes"), num_units=182_000)
    method = preset(name, faces, epsilon)
    assert isinstance(method, DataLens)
    assert isinstance(method.teacher, ConvTeacher)
    *settings, batch = expected
    assert [method.num_teachers, method.noise_stddev, method.votes.top_k, method.threshold, method.clip] == settings
    assert (method.z_dim, method.images_per_step, method.teacher.batch, method.teacher.warmup_steps) == (
        100,
        batch,
        batch,
        30,
    )


@pytest.mark.parametrize(("side", "top_k"), [(8, 17), (28, 200), (56, 800)])
def test_paper_votes_on_the_same_part_of_smaller_and_larger_images(side: int, top_k: int) -> None:
    method = preset("paper", schema(60_000, side=side), 1.0)
    assert isinstance(method, DataLens)
    assert method.votes.top_k == top_k


def test_noise_of_paper_shrinks_with_the_teachers_as_far_as_the_budget_pays() -> None:
    """So that the bar of 0.7 of the teachers stands as high above the noise as the authors'."""
    half, tenth, hundredth = (preset("paper", schema(units), 1.0) for units in (30_000, 6_000, 600))
    assert isinstance(half, DataLens)
    assert (half.num_teachers, half.noise_stddev, half.threshold) == (2000, 2500, 0.7)
    assert isinstance(tenth, DataLens)
    assert (tenth.num_teachers, tenth.noise_stddev) == (400, 500)
    assert isinstance(hundredth, DataLens)
    assert (hundredth.num_teachers, hundredth.noise_stddev, hundredth.steps) == (40, None, 1)


@pytest.mark.parametrize(("epsilon", "components"), [(3.0, 4), (10.0, 10), (100.0, 10)])
def test_fast_takes_as_many_components_as_the_budget_pays_for(epsilon: float, components: int) -> None:
    assert preset("fast", MNIST, epsilon) == Mixture(components=components)


def test_fast_is_moments_where_a_mixture_would_drown_in_noise() -> None:
    grouped = MNIST.model_copy(update={"unit": "patient", "records_per_unit": 5})
    for public, epsilon in ((MNIST, 1.0), (grouped, 5.0), (schema(10_000), 10.0)):
        assert preset("fast", public, epsilon) == Moments()


@pytest.mark.parametrize("name", ["auto", "fast"])
def test_few_records_colours_and_large_images_get_pooled_moments(name: str) -> None:
    few = [(schema(500), 10.0), (schema(2_000), 1.0), (schema(10_000), 1.0), (schema(1_438, side=8), 5.0)]
    others = [(schema(5_000, side=32, channels=3), 5.0), (schema(11_000, side=64, num_classes=2), 5.0)]
    for public, epsilon in (*few, *others):
        assert preset(name, public, epsilon) == PooledMoments()
        taught = preset("auto", public, epsilon, "teach")
        labelled = public.channels == 1 and public.height == 28 and public.num_units * epsilon >= 2_000
        assert taught == (LabelledMoments() if labelled else PooledMoments(texture=1.0))


def test_of_tiny_images_that_teach_most_frequencies_are_summed_and_means_get_more() -> None:
    tiny = schema(1_438, side=8)
    assert preset("auto", tiny, 1.0) == PooledMoments()
    assert preset("auto", tiny, 5.0, "teach") == PooledMoments(texture=1.0)
    assert preset("auto", tiny, 1.0, "teach") == PooledMoments(texture=1.0, frequencies=40, means_share=0.7)


DESCENT = {"steps": 240, "learning_rate": 60, "averaging": 0.95}


def test_auto_rejects_shapes_by_a_classifier_where_the_evidence_pays_for_one() -> None:
    assert preset("auto", MNIST, 0.2) == Rejection()
    assert preset("diffusion", schema(50_000, side=32, channels=3), 1.0).warm_start.name == "guided"


@pytest.mark.parametrize(("epsilon", "drawings"), [(1.0, Rejection()), (10.0, Rejection(accepted=0.2))])
def test_auto_takes_the_denoiser_for_objects_where_the_evidence_pays_for_it(
    epsilon: float, drawings: Rejection
) -> None:
    objects = preset("diffusion", MNIST, epsilon)
    assert preset("auto", MNIST, epsilon) == RejectionOrDiffusion(drawings=drawings, objects=objects)


def test_auto_takes_no_denoiser_whose_gradients_take_longer_than_an_hour() -> None:
    for units, epsilon in ((130_000, 10.0), (300_000, 1.0)):
        assert isinstance(preset("auto", schema(units), epsilon), Rejection)
        assert isinstance(preset("auto", schema(units // 3), epsilon), RejectionOrDiffusion)


def test_auto_is_choicier_where_noise_is_quiet_but_the_start_of_a_denoiser_is_not() -> None:
    assert preset("diffusion", MNIST, 10.0).warm_start == preset("large", MNIST, 10.0).warm_start == Rejection()


@pytest.mark.parametrize("purpose", ["look", "teach"])
def test_auto_is_fast_where_the_evidence_is_too_small(purpose: Purpose) -> None:
    for public, epsilon in ((schema(1_438, side=8), 5.0), (schema(60_000, num_classes=1), 1.0), (MNIST, 0.1)):
        fast = preset("fast", public, epsilon)
        if purpose == "teach" and isinstance(fast, PooledMoments):
            fast = LabelledMoments() if public is MNIST else fast.model_copy(update={"texture": 1.0})
        assert preset("auto", public, epsilon, purpose) == fast


def test_only_the_purpose_teach_widens_samples() -> None:
    """Whoever names nothing gets images that look like the private ones."""
    colour = schema(50_000, side=32, channels=3)
    for epsilon in (1.0, 10.0):
        start = preset("diffusion", colour, epsilon).warm_start
        assert isinstance(start, Guided)
        assert (start.spread, start.poses, start.surfaces) == (1.0, False, False)
        assert not isinstance(preset("auto", MNIST, epsilon), Guided)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
def test_many_small_grey_images_teach_most_where_they_look_best(epsilon: float) -> None:
    assert preset("auto", MNIST, epsilon, "teach") == preset("auto", MNIST, epsilon)
    assert preset("auto", schema(2_000), 10.0, "teach") == LabelledMoments()


def test_guided_gets_the_settings_of_its_evidence() -> None:
    widest = Guided(warm_start=Mixture(components=10), least_spread=1.25, **DESCENT)
    assert plan_named(Guided(), MNIST, 10.0) == widest
    assert plan_named(Guided(), MNIST, 1.0) == Guided(warm_start=Moments())


@pytest.mark.parametrize("purpose", ["look", "teach"])
def test_public_images_are_labelled_to_teach_where_features_fit(
    purpose: Purpose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imagenet_lite0, "find_spec", lambda name: None)
    alone = preset("auto", MNIST, 1.0, purpose)
    named = preset("auto", MNIST, 1.0, purpose, pool=True)
    assert isinstance(named, LabelledPool) == (purpose == "teach")
    assert purpose == "teach" or named == alone
    large = MNIST.model_copy(update={"height": 256, "width": 256})
    assert preset("auto", large, 1.0, "teach", pool=True) == preset("auto", large, 1.0, "teach")


def test_features_of_photographs_are_for_colours_and_large_images_where_their_weights_are_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    photographs = (schema(5_000, side=32, channels=3), schema(5_000, side=64), schema(5_000, side=256, channels=3))
    others = (MNIST, schema(5_000, side=32, channels=2))
    for installed in (False, True):
        monkeypatch.setattr(imagenet_lite0, "find_spec", lambda name, found=installed: found or None)
        for one in (*photographs, *others):
            chosen = preset("classifier", one, 1.0)
            labelled = preset("auto", one, 1.0, "teach", pool=True)
            started = preset("classifier", one, 1.0, pool=True)
            TrainingSpec(method=started, epsilon=1.0, public_data="ds_1")
            on_photographs = chosen == Scattering(encoder=ImagenetLite0())
            assert on_photographs == (installed and one in photographs)
            if isinstance(chosen, Scattering) and not on_photographs:
                assert isinstance(chosen.warm_start, DeadLeaves if one.channels > 1 else Moments | PooledMoments)
                assert chosen.encoder == ScatteringEncoder(colours="opponent" if one.channels == 3 else "separate")
                for wavelets in (Scattering(), Scattering(encoder=ScatteringEncoder())):
                    assert plan_named(wavelets, one, 1.0) == chosen
                    assert plan_named(LabelledPool(classifier=wavelets), one, 1.0) == LabelledPool(classifier=chosen)
            assert isinstance(labelled, LabelledPool) == isinstance(chosen, Scattering)
            assert not isinstance(labelled, LabelledPool) or labelled.classifier == chosen
            assert not isinstance(labelled, LabelledPool) or plan_named(LabelledPool(), one, 1.0) == labelled
            stated = Scattering(encoder=ScatteringEncoder(colours="separate"))
            assert plan_named(stated, one, 1.0) == stated
    plan = TrainingSpec(method=Scattering(encoder=ImagenetLite0()), epsilon=1.0).price(MNIST)
    assert any("imagenet-lite0" in warning for warning in plan.warnings)


def test_a_classifier_of_few_records_starts_from_pooled_moments() -> None:
    assert preset("classifier", MNIST, 1.0) == Scattering()
    for public, epsilon in ((schema(2_000), 1.0), (schema(2_000), 10.0), (MNIST, 0.1)):
        chosen = preset("classifier", public, epsilon)
        assert chosen == Scattering(warm_start=PooledMoments(), gradient_share=0.7)
        assert plan_named(Scattering(), public, epsilon) == chosen


@pytest.mark.parametrize(("name", "purpose"), [("fast", "teach"), ("classifier", "teach"), ("auto", "sell")])
def test_a_purpose_that_a_preset_has_not_is_refused(name: str, purpose: Purpose) -> None:
    with pytest.raises(InvalidSpec, match=purpose):
        preset(name, MNIST, 1.0, purpose)


def test_balanced_starts_from_moments() -> None:
    method = preset("balanced", MNIST, 1.0)
    assert isinstance(method, DataLens)
    assert method.warm_start == Moments()


def test_there_is_no_other_preset() -> None:
    with pytest.raises(InvalidSpec, match="auto, fast, diffusion, large, balanced, paper"):
        preset("best", MNIST, 1.0)


ALL = [
    (units, epsilon, side) for units, epsilon in ((2_000, 1.0), (2_000, 10.0), (50_000, 10.0)) for side in (32, 64, 128)
]
QUICK = [
    (name, purpose, *one) for name, purpose in (("auto", "look"), ("auto", "teach"), ("fast", "look")) for one in ALL
]
# The noise of a denoiser takes seconds to find; only `large` asks for the size, where noise is quiet.
SLOW = [("diffusion", "look", 2_000, 1.0, 64), *(("large", "look", *one) for one in (ALL[1], *ALL[-3:]))]


@pytest.mark.parametrize(("name", "purpose", "units", "epsilon", "side"), QUICK + SLOW)
def test_colours_of_every_size_have_a_plan(name: str, purpose: Purpose, units: int, epsilon: float, side: int) -> None:
    public = schema(units, side=side, channels=3)
    spec = TrainingSpec(method=preset(name, public, epsilon, purpose), epsilon=epsilon, delta=1e-6)
    assert 0 < spec.plan(public).cost() <= spec.limit_units(public)
