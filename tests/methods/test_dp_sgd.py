"""DP-SGD on all records: plans, charges, resumption, and that it learns."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from datalens_service.base.errors import InfeasiblePlan, InvalidInput, InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.unit_gradients import choose_question, whole_units
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.classifiers.sizes import num_weights
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

from .builders import advance, share_right, start, stripes, train

UNITS = limit_units(8.0, 1e-4)
SCHEMA = stripes().schema


@pytest.mark.parametrize(
    "changes", [{"architecture": "linear"}, {"architecture": "mlp", "optimizer": "adam", "learning_rate": 0.02}]
)
@pytest.mark.parametrize("records", [1, 4])
def test_it_learns_and_planned_is_charged(changes: dict, records: int) -> None:
    dataset, method = stripes(records_per_unit=records), DpSgd(steps=20, **changes)
    account = MemoryAccount(UNITS)
    model = train(method, dataset, UNITS, account).result()
    (release,) = method.plan(dataset.schema, UNITS).releases
    assert [units for *_, units in account.charges] == [release.mechanism.cost()] * 20
    assert account.charged_units <= UNITS
    assert share_right(model) > 0.9


def test_a_linear_schedule_rises_for_a_sixth_and_falls_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a gradient of 1 everywhere a weight moves by the learning rate."""
    method = DpSgd(architecture="linear", steps=12, momentum=0, learning_rate=6.0, learning_rate_schedule="linear")
    training_run, account = start(method, stripes(), UNITS), MemoryAccount(UNITS)
    ones = np.full(num_weights("linear", SCHEMA), SCHEMA.num_units, dtype=np.float64)
    monkeypatch.setattr(GradientSum, "release", lambda *_args, **_settings: ones)
    moved = []
    for step in range(12):
        before = training_run.local("descent").iterate()
        advance(training_run, account, step + 1)
        moved.append(float((before - training_run.local("descent").iterate()).mean()))
    expected = [3.0, 6.0, 6.0, *(6.0 * (12 - step) / 10 for step in range(3, 12))]
    assert moved == pytest.approx(expected, rel=1e-4)


def test_a_job_from_before_schedules_keeps_its_digest() -> None:
    """Checkpoints of another digest are refused: an upgrade in the middle of a job would lose what was paid for."""
    stored = TrainingSpec(method=DpSgd(), epsilon=1.0, delta=1e-5).model_dump_json()
    assert "learning_rate_schedule" not in stored
    chosen = TrainingSpec(method=DpSgd(learning_rate_schedule="linear"), epsilon=1.0, delta=1e-5)
    assert TrainingSpec.model_validate_json(chosen.model_dump_json()) == chosen


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_a_resumed_run_is_the_same_and_charges_nothing_twice(schedule: str) -> None:
    dataset, method = stripes(), DpSgd(architecture="mlp", steps=6, learning_rate_schedule=schedule)
    whole, account = start(method, dataset, UNITS), MemoryAccount(UNITS)
    advance(whole, account, 4)
    resumed = train(method, dataset, UNITS, account)
    advance(whole, account)
    assert len(account.charges) == 6
    for name, value in whole.result().tensors.items():
        np.testing.assert_array_equal(resumed.result().tensors[name], value)


def test_the_whole_job_gives_a_classifier() -> None:
    spec = TrainingSpec(method=DpSgd(architecture="linear", steps=3), epsilon=4.0, delta=1e-4)
    result = run(spec, stripes(), account=MemoryAccount(UNITS))
    assert (result.model.result, result.steps_made, result.initial_generator) == ("classifier", 3, None)
    with pytest.raises(InvalidInput, match="classifier"):
        _ = result.generator


@pytest.mark.parametrize("architecture", ["small_cnn", "lenet", "lenet_relu", "mlp", "linear"])
@pytest.mark.parametrize("size", [(1, 28, 28), (3, 32, 32), (3, 29, 40)], ids=str)
def test_plans_know_the_number_of_weights_without_a_network(architecture: str, size: tuple[int, int, int]) -> None:
    schema = Schema(channels=size[0], height=size[1], width=size[2], class_names=("a", "b", "c"), num_units=9)
    network = build_network({"architecture": architecture}, schema)
    assert num_weights(architecture, schema) == sum(weight.numel() for weight in network.parameters())


def test_images_that_are_too_small_are_refused_when_planning() -> None:
    schema = Schema(channels=1, height=8, width=8, class_names=("a", "b"), num_units=9)
    with pytest.raises(InvalidSpec, match="too small"):
        DpSgd(architecture="lenet").plan(schema, UNITS)


def test_a_named_noise_multiplier_limits_the_steps() -> None:
    release = DpSgd(architecture="linear", noise_multiplier=2.0, steps=10_000).plan(SCHEMA, UNITS).releases[0]
    assert release.mechanism.noise_stddev == 2 * release.mechanism.radius
    assert release.mechanism.cost() * release.count <= UNITS < release.mechanism.cost() * (release.count + 1)
    with pytest.raises(InfeasiblePlan, match="noise_multiplier"):
        DpSgd(architecture="linear", noise_multiplier=0.01).plan(SCHEMA, UNITS)


@pytest.mark.parametrize("compression", ["topk", "normtopk"])
def test_compressed_gradients_learn_and_are_no_longer_than_charged(compression: str) -> None:
    dataset = stripes(records_per_unit=2)
    method = DpSgd(architecture="linear", steps=20, compression=compression, keep=0.6)
    training_run = start(method, dataset, UNITS)
    descent, units = training_run.local("descent"), training_run.local("units")
    chunks = training_run.vault(units).answer(*choose_question(descent.gradients, method))
    rows = torch.cat([chunk.gradients for chunk in chunks])
    longest = method.clip_norm * (0.6**0.5 if compression == "normtopk" else 1)
    assert descent.mechanism.clip_norm == pytest.approx(longest)
    if compression == "normtopk":
        assert float(rows.norm(dim=1).max()) <= longest * (1 + 1e-6)
    assert float((rows == 0).float().mean()) > 0.3
    assert share_right(advance(training_run, MemoryAccount(UNITS)).result()) > 0.9


def test_a_share_without_a_compression_is_refused() -> None:
    with pytest.raises(ValidationError, match="choose topk or normtopk"):
        DpSgd(keep=0.5)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_chunks_split_no_unit(size: int) -> None:
    units = torch.repeat_interleave(torch.arange(9), torch.tensor([1, 3, 1, 2, 5, 1, 1, 4, 2]))
    rows = torch.arange(len(units), dtype=torch.float32)[:, None]
    chunks = list(whole_units(torch.split(rows, size), units))
    torch.testing.assert_close(torch.cat([chunk.gradients for chunk in chunks]), rows)
    torch.testing.assert_close(torch.cat([chunk.units for chunk in chunks]), units)
    GradientSum(dimensions=1, clip_norm=1.0, noise_stddev=10**6).exact_sum(chunks)


def test_noise_that_drowns_the_gradient_is_said_where_it_is_priced() -> None:
    schema = SCHEMA.model_copy(update={"height": 28, "width": 28})
    spec = TrainingSpec(method=DpSgd(steps=10_000), epsilon=1.0, delta=1e-4)
    (warning,) = spec.price(schema).warnings
    assert "learn little" in warning
    assert TrainingSpec(method=DpSgd(architecture="linear", steps=4), epsilon=9.0).price(schema).warnings == []


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
