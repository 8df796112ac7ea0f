"""Who names neither a method nor a preset gets the same job by REST, command line and page."""

import pytest
from pydantic import ValidationError

from datalens_service.api.pages.views.planning import read_form
from datalens_service.base.errors import InvalidSpec
from datalens_service.cli.specs import SpecOptions
from datalens_service.data.dataset import Schema
from datalens_service.planning.presets import PRESETS, preset
from datalens_service.planning.requested_spec import RequestedSpec

MNIST = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
CLASSIFIER = {"name": "scattering"}


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
def test_it_is_the_same_everywhere(epsilon: float) -> None:
    by_rest = RequestedSpec(epsilon=epsilon).resolve(MNIST)
    by_command = SpecOptions(epsilon).build_spec(MNIST)
    by_page = read_form({"epsilon": str(epsilon), "evaluation": "true"}).resolve(MNIST)
    assert by_rest == by_command == by_page
    assert by_rest.method == preset("auto", MNIST, epsilon)


def test_the_price_says_which_method_it_is_of() -> None:
    assert RequestedSpec(epsilon=1.0).resolve(MNIST).price(MNIST).method == "rejection_or_diffusion"


def test_a_preset_is_its_method() -> None:
    for name in PRESETS:
        assert RequestedSpec(epsilon=1.0, preset=name).resolve(MNIST).method == preset(name, MNIST, 1.0)
    taught = RequestedSpec(epsilon=1.0, purpose="teach").resolve(MNIST)
    assert taught.method == preset("auto", MNIST, 1.0, "teach")


@pytest.mark.parametrize(
    "request_",
    [
        {"method": {"name": "moments"}, "preset": "fast"},
        {"method": {"name": "moments"}, "purpose": "teach"},
        {"preset": "magic"},
        {"method": CLASSIFIER, "synthetic_images": 5},
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_read(request_: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RequestedSpec.model_validate({"epsilon": 1.0, **request_})


def test_what_does_not_go_with_the_chosen_method_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="synthetic_images does not apply"):
        RequestedSpec(epsilon=1.0, preset="classifier", synthetic_images=5).resolve(MNIST)
    with pytest.raises(InvalidSpec, match="purpose 'teach' is one of the preset auto"):
        RequestedSpec(epsilon=1.0, preset="fast", purpose="teach").resolve(MNIST)
