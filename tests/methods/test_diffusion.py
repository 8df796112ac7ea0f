"""The diffusion method: a run goes on from its state, noise of a record is its own."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.methods import Diffusion
from datalens_service.methods.descent import diffusion_run
from datalens_service.methods.descent.denoiser_gradients import NoiseBank, denoiser_gradients, hash_images
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.accounting import NeighboringRelation, epsilon_of_charge, limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run
from tests.stepped_runs import SteppedRun

from . import builders
from .builders import advance, stripes

SIDE, EPSILON, DELTA = 8, 2.0, 1e-3
MNIST = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
SMALL: dict[str, Any] = {
    "warm_start": {"name": "moments", "subspace_dimensions": 4}, "batch": 40, "steps": 27, "width": 8, "blocks": 1,
    "pretraining_steps": 20, "pretraining_samples": 100, "path": 3,
}  # fmt: skip


def bars(**changes: int) -> Dataset:
    return stripes(count=200, side=SIDE, **changes)


def start(dataset: Dataset, **changes: Any) -> SteppedRun:
    method = Diffusion.model_validate({**SMALL, "noise_multiplier": 8.0, **changes})
    return builders.start(method, dataset, method.plan_within(dataset.schema, EPSILON, DELTA))


def account() -> MemoryAccount:
    return MemoryAccount(limit_units(EPSILON, DELTA), (EPSILON, DELTA))


def train(run: SteppedRun, books: MemoryAccount, last: int | None = None) -> Generator:
    return advance(run, books, last).result()


def test_a_plan_uses_the_budget_and_no_more() -> None:
    method = Diffusion(warm_start_share=0.25)
    plan = method.plan_within(MNIST, 1.0, 1e-5)
    assert 0.999 < epsilon_of_charge(plan.charge(), 1e-5) <= 1
    warm = sum(release.cost() for release in plan.releases[:-1])
    assert 0.245 < warm / plan.cost() < 0.255


def test_a_run_goes_on_from_its_state_without_a_second_charge() -> None:
    books = account()
    interrupted = start(bars())
    steps = interrupted.begin(books).plan.steps
    train(interrupted, books, steps - 2)
    charges = list(books.charges)
    again = start(bars())
    advance(again, books, steps - 2)
    assert books.charges == charges
    np.testing.assert_array_equal(again.result().sample(6)[0], interrupted.result().sample(6)[0])
    train(again, books)
    assert len(books.charges) == steps


def test_a_run_killed_after_its_first_gradient_is_not_pretrained_again() -> None:
    books = account()
    killed = start(bars())
    train(killed, books, killed.begin(books).plan.steps - SMALL["steps"] + 1)
    resumed = start(bars())
    with mock.patch.object(diffusion_run, "fit_denoiser", side_effect=AssertionError("pretrained again")):
        train(resumed, books)
    assert len(books.charges) == resumed.steps


def test_a_run_that_lost_a_release_of_its_start_hands_out_the_start() -> None:
    """The block of gradients no longer fits: what was paid for is not lost with it."""
    dataset, books = bars(), account()
    method = Diffusion.model_validate({**SMALL, "noise_multiplier": None})
    plan = method.plan_within(dataset.schema, EPSILON, DELTA)
    first = plan.releases[0].mechanism
    books.charge(0, first.label(), first.price(1, NeighboringRelation.ZERO_OUT).ledger_units, 0)
    result = run(TrainingSpec(method=method, epsilon=EPSILON, delta=DELTA), dataset, account=books, plan=plan)
    start = sum(release.count for release in plan.releases[:-1])
    assert (result.steps_made, len(books.charges)) == (start, start + 1)
    assert result.generator.kind == "gaussian"
    assert result.rationale.startswith("The result is the warm start alone.")
    assert f"ended after {start} of {start + SMALL['steps']} planned releases" in result.rationale


def test_gradients_move_images_towards_records() -> None:
    """Sums without noise, after a start that knows nothing."""
    run = start(bars(), pretraining_steps=0, steps=150, path=8)
    train(run, account(), 4)
    denoiser, units, mechanism = run.local("denoiser"), run.local("units"), run.local("gradients").mechanism
    for step in range(3, 103):
        gradients = run.vault(units).answer(denoiser_gradients, denoiser.copies._replace(seed=step))
        denoiser.follow(mechanism.decode(mechanism.exact_sum(gradients)), step - 3)
    images, _ = run.result().sample(100)
    halves = images[:, :4].mean(axis=(1, 2, 3)), images[:, 4:].mean(axis=(1, 2, 3))
    assert (np.abs(halves[0] - halves[1]) > 75).mean() > 0.8, "one half is bright, the other one dark"


@pytest.mark.parametrize("changes", [{"records_per_unit": 2}, {"channels": 3}], ids=str)
def test_units_of_several_records_and_colours(changes: dict[str, int]) -> None:
    dataset = bars(**changes)
    drawn, _ = train(start(dataset, steps=2), account()).sample(4)
    assert drawn.shape[1:] == dataset.train.images.shape[1:]


def test_samples_may_begin_at_the_warm_start() -> None:
    model = train(start(bars(), steps=1, pretraining_steps=0, start_stddev=0.03), account())
    plain = train(start(bars(), steps=1, pretraining_steps=0), account())
    started = {**model.settings["start"]}
    assert started["kind"] == "gaussian"
    assert (model.settings["start_stddev"], model.settings["end_stddev"]) == (0.03, 0.015)
    assert np.abs(model.sample(50)[0].astype(float) - plain.sample(50)[0]).mean() > 10


def test_images_after_a_start_with_soft_labels_have_some(tmp_path: Path) -> None:
    labelled = {"name": "labelled_moments", "samples": 100, "dimensions": 20, "steps": 3}
    released = train(start(bars(channels=3), warm_start=labelled, steps=2), account())
    released.save(tmp_path / "generator.safetensors")
    soft = Generator.load(tmp_path / "generator.safetensors").soft_labels(30, seed=1)
    assert soft is not None
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-5)
    # Half of each is the class that the image was drawn for; the rest is what the classifier says, and differs.
    _, drawn = released.sample(30, seed=1)
    own = soft[np.arange(30), drawn]
    assert (own >= 0.5).all()
    assert len(np.unique(own)) > 20
    assert train(start(bars(), steps=2), account()).soft_labels(30) is None


def test_the_noise_at_which_the_path_ends_belongs_to_the_generator() -> None:
    """The network was not trained, so what it leaves at the end is seen; files of earlier versions end at 0.02."""
    model = train(start(bars(), steps=1, pretraining_steps=0), account())
    assert model.settings["end_stddev"] == 0.15
    settings = {name: value for name, value in model.settings.items() if name != "end_stddev"}
    earlier = Generator(model.kind, model.schema, settings, model.tensors)
    ended = Generator(model.kind, model.schema, settings | {"end_stddev": 0.02}, model.tensors)
    np.testing.assert_array_equal(earlier.sample(8)[0], ended.sample(8)[0])
    assert (model.sample(8)[0] != ended.sample(8)[0]).any()


def test_guidance_belongs_to_the_generator() -> None:
    """Earlier versions drew without. Weights after one step hardly know classes, so others take their place."""
    plain = train(start(bars(), steps=1, guidance_scale=1.0), account())
    model = train(start(bars(), steps=1), account())
    assert (model.settings["guidance_scale"], plain.settings["guidance_scale"]) == (1.5, 1.0)
    rng = np.random.default_rng(0)
    tensors = {
        name: rng.normal(0, 0.1, value.shape).astype(np.float32) if name.startswith("denoiser.") else value
        for name, value in model.tensors.items()
    }
    settings = {name: value for name, value in model.settings.items() if name != "guidance_scale"}
    guided = Generator(model.kind, model.schema, model.settings, tensors)
    unguided = Generator(model.kind, model.schema, settings | {"guidance_scale": 1.0}, tensors)
    earlier = Generator(model.kind, model.schema, settings, tensors)
    np.testing.assert_array_equal(earlier.sample(8)[0], unguided.sample(8)[0])
    assert (guided.sample(8)[0] != unguided.sample(8)[0]).any()


def test_images_cannot_end_with_more_noise_than_they_begin_with() -> None:
    with pytest.raises(InvalidSpec, match="end_stddev"):
        Diffusion(start_stddev=0.1, end_stddev=0.1).plan_within(bars().schema, 4.0, 1e-4)


def test_a_job_of_an_earlier_version_keeps_its_digest() -> None:
    """Checkpoints of another digest are refused: an upgrade in the middle of a job would lose what was paid for."""
    earlier = TrainingSpec(method=Diffusion(path=12), epsilon=EPSILON, delta=DELTA)
    stored = earlier.model_dump_json()
    assert "end_stddev" not in stored
    assert "guidance_scale" not in stored
    assert TrainingSpec.model_validate_json(stored).digest() == earlier.digest()


def test_noise_of_a_record_is_a_function_of_that_record() -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (50, 1, 6, 6)).astype(np.uint8))
    hashes = hash_images(images)
    assert len(hashes.unique()) == 50
    torch.testing.assert_close(hash_images(images[7:9]), hashes[7:9])
    bank = NoiseBank.draw(36, np.random.default_rng(1), torch.device("cpu"))
    stddevs, noise = bank.choose(hashes, 3)
    assert (stddevs.shape, noise.shape) == ((50, 3), (50, 3, 36))
    alone = bank.choose(hashes[7:8], 3)
    torch.testing.assert_close(alone[0], stddevs[7:8])
    torch.testing.assert_close(alone[1], noise[7:8])


def test_records_that_share_noise_part_at_the_next_step() -> None:
    hashes = hash_images(torch.arange(20_000).to(torch.uint8).view(-1, 1) ^ torch.tensor([[3, 5]], dtype=torch.uint8))
    numbers = torch.arange(2**16) * 2**48 + hashes[0]
    banks = [NoiseBank.draw(256, np.random.default_rng(seed), torch.device("cpu")) for seed in (1, 2)]
    first, second = (bank.choose(numbers, 1)[1][:, 0, 0] for bank in banks)
    share = (first == first[0]).float().mean()
    assert 0 < share < 0.01
    assert (second[first == first[0]] == second[0]).float().mean() < 0.1


@pytest.mark.parametrize("changes", [{"width": 12}, {"steps": 0}, {"warm_start": {"name": "dp_sgd"}}], ids=str)
def test_requests_that_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Diffusion.model_validate(changes)


def test_a_plan_needs_epsilon_and_delta() -> None:
    with pytest.raises(InvalidSpec, match="ε and δ"):
        Diffusion().plan(bars().schema, 10**12)


def test_a_plan_warns_where_noise_drowns_the_gradients() -> None:
    for noise_multiplier, count in ((2.0, 0), (100.0, 1)):
        method = Diffusion(noise_multiplier=noise_multiplier, warm_start_share=0.01)
        plan = TrainingSpec(method=method, epsilon=100.0, delta=1e-5).plan(MNIST)
        assert len(method.warnings(plan, MNIST)) == count
