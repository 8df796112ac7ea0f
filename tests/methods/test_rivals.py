"""Methods that DataLens is compared with: golden prices, and refused requests."""

import numpy as np
import pytest
from pydantic import ValidationError

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.methods import DataLens, DpGan, PateGan
from datalens_service.methods.voting.rivals import RIVALS as RIVALS_OF_DATALENS
from datalens_service.methods.voting.rivals import build_rival
from datalens_service.methods.voting.teachers import ConvTeacher
from datalens_service.planning.presets import preset
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.spec import TrainingSpec

from .builders import advance, start, stripes

MNIST = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
UNITS = limit_units(8.0, 1e-3)

DESCENT: dict = {"discriminator": "linear", "steps": 5, "images_per_step": 6, "z_dim": 4}
SAMPLED = DpGan(warm_start=None, sampling="poisson", batch=30, **DESCENT | {"steps": 60, "noise_multiplier": 2.0})


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
    with pytest.raises(InvalidSpec, match="144 coordinates"):
        build_rival("g_pate", num_teachers=4, vote_basis="pixels", votes={"projections": 145}).plan(
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
    data, spec = stripes(count=120, side=8), TrainingSpec(method=SAMPLED, epsilon=50.0, delta=1e-3)
    plan, account = spec.plan(data.schema), MemoryAccount(spec.limit_units(data.schema))
    runs = [advance(start(SAMPLED, data, plan), account) for _ in range(2)]
    samples = [training_run.result().sample(20, seed=1)[0] for training_run in runs]
    step, state = account.latest()
    assert step == 50
    assert {name.split("/")[0] for name in state} == {"discriminator", "generator"}
    np.testing.assert_array_equal(*samples)


def test_generated_images_cost_nothing():
    few, many = (DpGan(warm_start=None, **DESCENT | {"images_per_step": images}) for images in (2, 50))
    assert few.plan(stripes().schema, UNITS) == many.plan(stripes().schema, UNITS)


@pytest.mark.parametrize(
    "request_", [{"sampling": "poisson"}, {"discriminator": "dense"}, {"optimizer": "sgd"}], ids=str
)
def test_dp_gan_refuses_what_it_has_not(request_):
    with pytest.raises(ValidationError):
        DpGan(**request_)
