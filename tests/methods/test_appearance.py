"""What images look like follows from public facts; the words are the same for all methods."""

import pytest

from datalens_service.data.dataset import Schema
from datalens_service.methods import AnyMethod, DataLens, LabelledPool, Method, PooledMoments, Rejection, Scattering
from datalens_service.methods.expected_quality import Looks, describe_images, is_drowned, judge_looks
from datalens_service.planning.presets import preset
from datalens_service.privacy.accounting import limit_units
from datalens_service.spec import TrainingSpec


def shown(records: int, side: int = 28, channels: int = 1, classes: int = 10) -> Schema:
    names = tuple(f"c{number}" for number in range(classes))
    return Schema(channels=channels, height=side, width=side, class_names=names, num_units=records)


@pytest.mark.parametrize(
    ("schema", "epsilon", "looks"),
    [
        (shown(5, classes=2), 1.0, "noise"),
        (shown(200), 1.0, "noise"),
        (shown(2_000), 1.0, "soft"),
        (shown(10_000), 1.0, "soft"),
        (shown(60_000), 1.0, "recognisable"),
        (shown(60_000), 0.2, "recognisable"),
        (shown(5_000, 32, 3), 5.0, "soft"),
        (shown(5_000, 64, classes=2), 5.0, "soft"),
        (shown(50_000, 32, 3), 10.0, "soft"),
    ],
)
def test_what_auto_makes_looks_as_its_pictures_do(schema: Schema, epsilon: float, looks: Looks) -> None:
    assert judge_looks(preset("auto", schema, epsilon), schema, limit_units(epsilon, 1e-5)) == looks


@pytest.mark.parametrize(
    ("method", "looks"),
    [(LabelledPool(), "like photographs"), (Scattering(), None), (DataLens(warm_start=None), "noise")],
)
def test_other_results(method: AnyMethod, looks: Looks | None) -> None:
    assert judge_looks(method, shown(10_000), limit_units(1.0, 1e-5)) == looks


def test_less_budget_never_looks_better() -> None:
    order = ("noise", "soft", "recognisable")
    for method in (PooledMoments(), Rejection(), DataLens()):
        seen = [
            judge_looks(method, shown(20_000), limit_units(epsilon, 1e-5)) for epsilon in (0.05, 0.2, 1.0, 5.0, 10.0)
        ]
        ranks = [order.index(looks) for looks in seen if looks in order]
        assert ranks == sorted(ranks)


def test_a_price_says_what_images_look_like_and_what_a_pool_adds() -> None:
    spec = TrainingSpec(method=PooledMoments(), epsilon=1.0)
    plan = spec.plan(shown(2_000))
    alone, helped = (describe_images(spec.method, plan, shown(2_000), pool=pool) for pool in (False, True))
    assert spec.price(shown(2_000)).rationale == alone != ""
    assert not helped.startswith(alone)
    assert "public" in helped
    assert "public" not in alone


def test_a_price_says_where_edges_come_from() -> None:
    schema = shown(5_000, 64, 3)
    told = [TrainingSpec(method=PooledMoments(texture=texture), epsilon=5.0).price(schema) for texture in (0.0, 1.0)]
    assert ["filter" in price.rationale for price in told] == [True, False]


def test_texture_looks_like_noise_and_few_records_promise_no_shapes() -> None:
    textured = PooledMoments(texture=1.0)
    assert judge_looks(textured, shown(5_000, 32, 3), limit_units(5.0, 1e-5)) == "noise"
    assert not is_drowned(textured, shown(5_000, 32, 3), limit_units(5.0, 1e-5))
    few, many = (TrainingSpec(method=PooledMoments(), epsilon=1.0).price(shown(n)).rationale for n in (600, 5_000))
    assert few.partition("with")[0] != many.partition("with")[0]


def test_no_method_speaks_for_itself() -> None:
    assert not hasattr(Method, "rationale")
