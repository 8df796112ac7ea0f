"""How far a run says it is: long work between releases is told of, and only the last release ends the training."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from datalens_service.data.dataset import Dataset, Upload
from datalens_service.errors import JobStopped
from datalens_service.methods import (
    AnyMethod,
    Diffusion,
    Guided,
    LabelledMoments,
    LabelledPool,
    Moments,
    PooledMoments,
    PublicVotes,
    Scattering,
)
from datalens_service.models.generators.denoiser import public_denoiser
from datalens_service.phases import Phase
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.run import run
from datalens_service.spec import TrainingSpec

from .test_dp_sgd import stripes
from .test_labelled_pool import pool

Event = tuple[Phase, int, int, int]
"""Phase, value, maximum, and charges made by then."""
FEW = Moments(subspace_dimensions=6)
METHODS: dict[str, AnyMethod] = {
    "guided": Guided(warm_start=FEW, steps=3, samples=400, epochs=2, hidden_units=8),
    "scattering": Scattering(warm_start=FEW, steps=3, samples=100, dimensions=8),
    "labelled_moments": LabelledMoments(steps=3, samples=100, dimensions=8),
    "diffusion": Diffusion(warm_start=FEW, steps=3, pretraining_steps=20, pretraining_samples=100, width=8, blocks=1),
    "labelled_pool": LabelledPool(classifier=Scattering(warm_start=FEW, steps=3, samples=100, dimensions=8)),
    "public_votes": PublicVotes(cells=20, verbatim=False),
    "pooled_moments": PooledMoments(),
}
NEED_A_POOL = ("labelled_pool", "public_votes", "pooled_moments")


def events(name: str, stop: Callable[[Event], bool] = lambda _event: False) -> list[Event]:
    private = stripes()
    public = pool(private) if name in NEED_A_POOL else None
    spec = TrainingSpec(method=METHODS[name], epsilon=20.0, delta=1e-4, public_data=None if public is None else "ds_1")
    return observed(spec, private, public, stop)


def observed(spec: TrainingSpec, private: Dataset, public: Upload | None, stop: Callable[[Event], bool]) -> list[Event]:
    account, seen = MemoryAccount(spec.limit_units(private.schema)), list[Event]()

    def observe(phase: Phase, value: int, maximum: int) -> None:
        seen.append((phase, value, maximum, len(account.charges)))
        if stop(seen[-1]):
            raise JobStopped("enough")

    run(spec, private, account=account, public=public, observe=observe)
    return seen


@pytest.mark.parametrize("name", METHODS)
def test_long_work_between_releases_is_told_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_denoiser, "_STEPS", 40)
    training = [event for event in events(name) if event[0] is Phase.TRAINING]

    charges = training[-1][3]
    assert len({value for _, value, _, _ in training}) > charges + 1
    assert all(before[1] <= after[1] for before, after in pairwise(training))
    assert [made for _, value, maximum, made in training if value == maximum] == [charges]


def test_a_run_can_be_stopped_within_a_long_step() -> None:
    with pytest.raises(JobStopped):
        events("guided", lambda event: event[1] > event[3])


def test_what_was_paid_for_is_finished_whoever_asks_to_stop() -> None:
    fitting = [
        event for event in events("labelled_pool", lambda event: event[0] is Phase.FITTING) if event[0] is Phase.FITTING
    ]
    assert len(fitting) > 1
