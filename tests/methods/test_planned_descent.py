"""What a request of `dp_sgd` leaves out is planned from public numbers; what it names stays."""

import pytest

from datalens_service.data.dataset import Schema
from datalens_service.methods import DpSgd
from datalens_service.planning.requested_spec import RequestedSpec


def schema(units: int, side: int = 28, channels: int = 1) -> Schema:
    return Schema(channels=channels, height=side, width=side, class_names=tuple("0123456789"), num_units=units)


def settled(units: int, epsilon: float, side: int = 28, channels: int = 1, **named: object) -> DpSgd:
    request = RequestedSpec.model_validate({"method": {"name": "dp_sgd", **named}, "epsilon": epsilon, "delta": 1e-5})
    method = request.resolve(schema(units, side, channels)).method
    assert isinstance(method, DpSgd)
    return method


def test_more_evidence_goes_farther_and_large_sets_are_sampled() -> None:
    few, many, loose = settled(2_000, 1.0), settled(60_000, 1.0), settled(60_000, 10.0)
    distances = [method.steps * method.learning_rate for method in (few, many, loose)]
    assert distances == sorted(distances)
    assert few.sampling == "none"
    assert many.sampling == "poisson"
    assert many.steps * (many.batch or 0) < 60 * 60_000
    assert (loose.batch or 0) > (many.batch or 0)


@pytest.mark.parametrize(
    ("units", "epsilon"), [(2, 0.01), (40, 0.5), (3_000, 1.0), (3_000, 10.0), (3_000, 100.0), (1_000_000, 100.0)]
)
def test_every_size_and_epsilon_has_settings(units: int, epsilon: float) -> None:
    method = settled(units, epsilon)
    assert 0 < method.learning_rate <= 0.25
    assert (method.batch or 0) <= units // 4, "models of an audit learn from a quarter"
    assert method.plan_within(schema(units), epsilon, 1e-7).steps == method.steps


def test_small_images_get_a_network_that_takes_them() -> None:
    assert settled(1_000, 1.0, side=8).architecture == "mlp"
    assert settled(1_000, 1.0, side=64, channels=3).architecture == "small_cnn"


def test_what_is_named_stays_and_the_rest_follows_it() -> None:
    method = settled(60_000, 1.0, steps=200, architecture="linear", sampling="none")
    assert (method.steps, method.architecture, method.sampling, method.batch) == (200, "linear", "none", None)
    slower = settled(60_000, 1.0, learning_rate=0.05)
    assert slower.learning_rate == 0.05
    assert slower.steps >= settled(60_000, 1.0).steps


@pytest.mark.parametrize("named", [{"optimizer": "adam"}, {"noise_multiplier": 2.0}, {"accounting": "per_instance"}])
def test_settings_that_need_others_are_left_alone(named: dict[str, object]) -> None:
    assert settled(2_000, 8.0, architecture="linear", **named) == DpSgd.model_validate(
        {"architecture": "linear", **named}
    )


def test_a_stored_job_is_read_as_it_was() -> None:
    stored = DpSgd(steps=60, learning_rate=0.5).model_dump(mode="json")
    assert settled(60_000, 1.0, **{name: value for name, value in stored.items() if name != "name"}) == DpSgd()
