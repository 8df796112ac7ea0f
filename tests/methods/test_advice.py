"""What a plan advises can be done with the images it speaks of."""

import re

import pytest

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.data.image_sizes import parse_size
from datalens_service.planning.presets import preset
from datalens_service.spec import TrainingSpec


def square(side: int) -> Schema:
    return rectangle(side, side)


def rectangle(width: int, height: int) -> Schema:
    return Schema(channels=3, height=height, width=width, class_names=("cat", "dog"), num_units=200)


def spec_of(method: str) -> TrainingSpec:
    return TrainingSpec.model_validate({"method": method, "epsilon": 1.0})


def plan(method: str, schema: Schema) -> list[str]:
    return spec_of(method).price(schema).warnings


def _drowned(warnings: list[str]) -> bool:
    return any("noise" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("width", "height"), [(32, 32), (64, 64), (128, 128), (224, 224), (96, 24), (256, 64), (64, 256), (200, 30)]
)
def test_a_method_that_is_advised_against_noise_takes_the_images(width: int, height: int) -> None:
    (warning,) = plan("dp_sgd", rectangle(width, height))
    advised = re.search(r"choose the method (\w+)", warning)
    if advised:
        assert not _drowned(plan(advised[1], rectangle(width, height)))
    else:
        smaller = re.search(r"at (\d+) by (\d+) pixels, at which the method (\w+) fits", warning)
        assert smaller is not None
        reduced = int(smaller[1]), int(smaller[2])
        assert not _drowned(plan(smaller[3], rectangle(*reduced)))
        assert reduced[0] / reduced[1] == pytest.approx(width / height, rel=0.15)


@pytest.mark.parametrize("method", ["scattering", "rejection", "labelled_moments"])
def test_a_refusal_names_a_method_of_the_same_kind_and_the_largest_size(method: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        plan(method, rectangle(192, 96))
    advised = re.search(r"the method (\w+), or prepare them at (\d+x\d+) \(prepare_size\)", refused.value.detail)
    assert advised is not None
    plan(advised[1], rectangle(192, 96))
    width, height = parse_size(advised[2])
    plan(method, rectangle(width, height))
    assert spec_of(advised[1]).method.result == spec_of(method).method.result
    with pytest.raises(InvalidSpec):
        plan(method, rectangle(width + 1, height + 1))


@pytest.mark.parametrize("method", ["moments", "mixture", "guided"])
def test_a_plan_for_colour_images_measured_from_black_says_that_they_come_out_dark(method: str) -> None:
    (warning,) = [one for one in plan(method, square(32)) if "center" in one]
    assert "dark" in warning
    grey = Schema(channels=1, height=28, width=28, class_names=("cat", "dog"), num_units=200)
    assert not [one for one in plan(method, grey) if "center" in one]


@pytest.mark.parametrize("name", ["auto", "fast", "balanced"])
def test_presets_measure_colour_images_from_a_middle_brightness(name: str) -> None:
    many = square(32).model_copy(update={"num_units": 50_000})
    priced = TrainingSpec(method=preset(name, many, 10.0), epsilon=10.0, delta=1e-5).price(many)
    assert not [one for one in priced.warnings if "center" in one]
    assert '"center":0.5' in preset(name, many, 10.0).model_dump_json()


@pytest.mark.parametrize("name", ["auto", "fast", "balanced", "classifier"])
def test_a_plan_for_small_grey_images_warns_of_nothing(name: str) -> None:
    """Sums of outlines have fewer numbers than images, which are no working size; the plan has a line for the time."""
    digits = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    spec = TrainingSpec(method=preset(name, digits, 1.0), epsilon=1.0, delta=1e-5)
    assert not spec.price(digits).warnings
