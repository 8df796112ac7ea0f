"""Methods that DataLens is compared with: planned = charged, resume, prices that take no data, refused requests."""

import numpy as np
import pytest
from pydantic import ValidationError

from datalens_service.data.dataset import Dataset, Schema
from datalens_service.errors import InvalidSpec
from datalens_service.methods import AnyMethod, DataLens, DpGan, ExecutionOptions, PateGan
from datalens_service.methods.voting.rivals import RIVALS as RIVALS_OF_DATALENS
from datalens_service.methods.voting.rivals import build_rival
from datalens_service.methods.voting.teachers import ConvTeacher
from datalens_service.planning.presets import preset
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.spec import TrainingSpec

from .test_datalens import stripes

MNIST = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
UNITS = limit_units(8.0, 1e-3)

SMALL: dict = {
    "num_teachers": 12, "images_per_step": 4, "steps": 4, "teacher_batch": 6, "z_dim": 4, "vote_dimensions": 16,
}  # fmt: skip
SCORED: dict = {
    "num_teachers": 12, "images_per_step": 4, "steps": 4, "teacher_batch": 6, "z_dim": 4, "discriminator": "linear",
    "remembered_steps": 2,
}  # fmt: skip
DESCENT: dict = {"discriminator": "linear", "steps": 5, "images_per_step": 6, "z_dim": 4}
SAMPLED = DpGan(warm_start=None, sampling="poisson", batch=30, **DESCENT | {"steps": 60, "noise_multiplier": 2.0})
HISTOGRAM = {"votes": {"projections": 6, "bins": 4}}
RIVALS = [
    build_rival("g_pate", **HISTOGRAM, **SMALL),
    build_rival("g_pate", teacher="dense", shards="mixed", vote_basis="pixels", student="deconv", **HISTOGRAM, **SMALL),
    build_rival("g_pate", warm_start={"name": "moments", "subspace_dimensions": 4}, **HISTOGRAM, **SMALL),
    build_rival("gs_wgan", **SMALL),
    DpGan(warm_start={"name": "moments", "subspace_dimensions": 4}, **DESCENT),
    DpGan(warm_start=None, **DESCENT),
    PateGan(warm_start=None, teacher="dense", **SCORED),
    PateGan(warm_start={"name": "moments", "subspace_dimensions": 4}, votes={"scores": "bit"}, **SCORED),
    PateGan(warm_start=None, shards="mixed", votes={"scores": "relative"}, teacher="conv", **SCORED),
    build_rival("gs_wgan", teacher="dense", shards="mixed", vote_basis="pixels", student="deconv", **SMALL),
]
each_rival = pytest.mark.parametrize("method", RIVALS, ids=lambda method: f"{method.name}")


def trained(method: AnyMethod, dataset: Dataset, account: MemoryAccount, steps: int | None = None) -> np.ndarray:
    """20 samples after so many steps."""
    plan = method.plan(dataset.schema, UNITS)
    training_run = method.create_run(plan, dataset, TrainingRandomness(0), ExecutionOptions())
    for step in range(training_run.steps if steps is None else steps):
        training_run.step(step, account, NoiseSource())
    return training_run.result().sample(20, seed=1)[0]


@each_rival
def test_a_run_goes_on_from_drawn_states(method):
    account = MemoryAccount(UNITS)
    whole = trained(method, stripes(), account)
    charges = list(account.charges)
    np.testing.assert_array_equal(trained(method, stripes(), account), whole)
    assert account.charges == charges, "what is stored is not charged again"


@each_rival
def test_prices_take_no_data(method):
    accounts = [MemoryAccount(UNITS), MemoryAccount(UNITS)]
    for seed, account in enumerate(accounts):
        trained(method, stripes(seed), account)
    assert accounts[0].charges == accounts[1].charges


@each_rival
def test_a_rival_survives_json(method):
    spec = TrainingSpec(method=method, epsilon=1.0)
    assert TrainingSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("name", "votes"),
    [
        ("g_pate", "topagg"),
        ("g_pate", {"name": "clipped_rows"}),
        ("g_pate", {"bins": 1}),
        ("g_pate", {"projections": 65}),
        ("g_pate", None),
        ("gs_wgan", "topagg"),
        ("gs_wgan", {"bins": 4}),
    ],
)
def test_a_rival_refuses_votes_that_it_has_not(name, votes):
    with pytest.raises(ValidationError):
        TrainingSpec.model_validate({"method": {"name": name, "votes": votes}, "epsilon": 1.0})


@pytest.mark.parametrize(
    ("settings", "rate"), [({}, 6e-3), ({"warm_start": "moments"}, 1e-5), ({"student_learning_rate": 0.5}, 0.5)]
)
@pytest.mark.parametrize("name", RIVALS_OF_DATALENS)
def test_the_student_of_a_rival_learns_as_fast_as_ever(name, settings, rate):
    method = TrainingSpec.model_validate({"method": {"name": name, **settings}, "epsilon": 1.0}).method
    assert isinstance(method, DataLens)
    assert method.resolved_student_learning_rate == rate


def test_more_directions_than_numbers_of_an_image_are_refused():
    with pytest.raises(InvalidSpec, match="64 coordinates"):
        build_rival("g_pate", num_teachers=4, vote_basis="pixels", votes={"projections": 65}).plan(
            stripes().schema, UNITS
        )


@pytest.mark.parametrize(("epsilon", "steps"), [(1.0, 56), (10.0, 31)])
def test_the_authors_settings_of_g_pate_pay_for_the_golden_number_of_images(epsilon, steps):
    method = preset("g_pate_paper", MNIST, epsilon)
    assert isinstance(method, DataLens)
    assert isinstance(method.teacher, ConvTeacher)
    plan = method.plan(MNIST, limit_units(epsilon, 1e-5))
    assert (plan.steps, plan.images) == (steps, 64 * steps)


@pytest.mark.parametrize(("epsilon", "lengths"), [(1.0, 5969), (10.0, 800)])
def test_the_authors_settings_of_gs_wgan_get_the_golden_noise(epsilon, lengths):
    method = preset("gs_wgan_paper", MNIST, epsilon)
    assert isinstance(method, DataLens)
    (votes,) = method.plan(MNIST, limit_units(epsilon, 1e-5)).releases
    assert votes.count == 20_000
    assert round(votes.mechanism.noise_stddev / votes.mechanism.grid) == lengths


@pytest.mark.parametrize(
    "request_", [{"teacher": "kernel"}, {"vote_basis": "dct"}, {"votes": {"scores": "rank"}}, {"top_k": 3}], ids=str
)
def test_pate_gan_refuses_what_it_has_not(request_):
    with pytest.raises(ValidationError):
        PateGan(**request_)


@pytest.mark.parametrize(("epsilon", "votes"), [(1.0, 2110), (10.0, 283)])
def test_the_authors_settings_of_pate_gan_get_the_golden_noise(epsilon, votes):
    method = preset("pate_gan_paper", MNIST, epsilon)
    assert isinstance(method, PateGan)
    plan = method.plan(MNIST, limit_units(epsilon, 1e-5))
    (scores,) = plan.releases
    assert plan.images == 320_000
    assert round(scores.mechanism.noise_stddev / method.votes.weight) == votes


def test_a_sampled_dp_gan_goes_on_from_the_state_of_both_networks():
    dataset, spec = stripes(), TrainingSpec(method=SAMPLED, epsilon=50.0, delta=1e-3)
    plan, seeds = spec.plan(dataset.schema), TrainingRandomness(0)
    account = MemoryAccount(spec.limit_units(dataset.schema))
    samples = []
    for _ in range(2):
        training_run = SAMPLED.create_run(plan, dataset, seeds, ExecutionOptions())
        for step in range(training_run.steps):
            training_run.step(step, account, NoiseSource())
        samples.append(training_run.result().sample(20, seed=1)[0])
    step, state = account.latest()
    assert step == 50
    assert {name.split("/")[0] for name in state} == {"discriminator", "generator"}
    np.testing.assert_array_equal(*samples)


def test_generated_images_cost_nothing():
    few, many = (DpGan(warm_start=None, **DESCENT | {"images_per_step": images}) for images in (2, 50))
    accounts = [MemoryAccount(UNITS), MemoryAccount(UNITS)]
    for method, account in zip((few, many), accounts, strict=True):
        trained(method, stripes(), account)
    assert accounts[0].charges == accounts[1].charges


@pytest.mark.parametrize(
    "request_", [{"sampling": "poisson"}, {"discriminator": "dense"}, {"optimizer": "sgd"}], ids=str
)
def test_dp_gan_refuses_what_it_has_not(request_):
    with pytest.raises(ValidationError):
        DpGan(**request_)
