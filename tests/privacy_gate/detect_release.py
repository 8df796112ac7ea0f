"""Detectors on the door itself and on whole runs: charge, draw, store, hand out a function of what was stored."""

from typing import Any

import numpy as np

from datalens_service.base.errors import BudgetExceeded
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.methods import (
    AnyMethod,
    DataLens,
    Diffusion,
    DpGan,
    DpSgd,
    Guided,
    Mixture,
    Moments,
    PateGan,
    PooledMoments,
    Rejection,
    Scattering,
    Shapes,
)
from datalens_service.methods.voting.rivals import build_rival
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.partitioned_passes import Block
from datalens_service.privacy.randomness import Booleans, NoiseSource
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

from .alarm import Alarm, expect, refused
from .cases import CASES

_COUNT, _SIDE, _CLASSES = 90, 6, 3

METHODS: tuple[AnyMethod, ...] = (
    Moments(subspace_dimensions=4),
    PooledMoments(frequencies=9),
    Mixture(components=2, iterations=2, subspace_dimensions=4),
    Shapes(subspace_dimensions=4),
    Shapes(content="drawings", subspace_dimensions=4),
    Shapes(content="objects", subspace_dimensions=4),
    Guided(warm_start=Moments(subspace_dimensions=4), steps=3, samples=120, epochs=1, hidden_units=3),
    Rejection(warm_start=Shapes(subspace_dimensions=4), steps=3, samples=120, dimensions=6),
    DataLens(
        num_teachers=5, teacher="dense", images_per_step=4, top_k=10, clip=1.0, threshold="none", steps=3,
        teacher_batch=6, teacher_warmup_steps=2, z_dim=4,
    ),
    DataLens(
        num_teachers=6, teacher="dense", shards="class_pure", images_per_step=6, top_k=4, clip=1.0, threshold="none",
        vote_basis="dct", vote_dimensions=9, votes="count_sketch", sketch_rows=2, sketch_columns=8, steps=2,
        teacher_warmup_steps=2, warm_start=Moments(subspace_dimensions=4),
    ),
    build_rival(
        "g_pate", num_teachers=6, images_per_step=6, votes={"projections": 4}, vote_dimensions=9, steps=2, z_dim=4
    ),
    PateGan(num_teachers=6, images_per_step=6, discriminator="linear", steps=2, z_dim=4, warm_start=None),
    DpGan(discriminator="linear", steps=2, updates_per_generator_step=1, images_per_step=6, z_dim=4, warm_start=None),
    build_rival("gs_wgan", num_teachers=6, images_per_step=6, vote_dimensions=9, steps=2, z_dim=4),
    DpSgd(architecture="linear", steps=2),
    Scattering(warm_start=Moments(subspace_dimensions=4), steps=2, samples=120, dimensions=6),
    Diffusion(
        warm_start=Moments(subspace_dimensions=4), steps=2, batch=45, noise_multiplier=8.0, width=8, blocks=1,
        pretraining_steps=2, pretraining_samples=120,
    ),
)  # fmt: skip


class Diary(MemoryAccount):  # type: ignore[misc]
    """An account that notes the order of things."""

    def __init__(self, limit_units: int, events: list[str] | None = None) -> None:
        super().__init__(limit_units)
        self.events = [] if events is None else events

    def charge(self, step: int, label: str, ledger_units: int, slack: int = 0) -> None:
        super().charge(step, label, ledger_units, slack)
        self.events.append("charge")

    def charge_draw(self, step: int, label: str, block: Block) -> int:
        drawn: int = super().charge_draw(step, label, block)
        self.events.append("charge")
        return drawn

    def store(self, step: int, noisy: np.ndarray) -> None:
        super().store(step, noisy)
        self.events.append("store")


class Forgetful(MemoryAccount):  # type: ignore[misc]
    """The worker dies between the draw and its record."""

    def store(self, step: int, noisy: np.ndarray) -> None:
        raise ConnectionError


class NotedNoise(NoiseSource):  # type: ignore[misc]
    """Real coins and noise that note when they were drawn; coins may fall as named, and noise may be silent."""

    def __init__(self, events: list[str], fall: Booleans | None = None, silent: bool = False) -> None:
        self._events, self._fall, self._silent = events, fall, silent

    def coins(self, count: int, numerator: int) -> Booleans:
        self._events.append("coins")
        return super().coins(count, numerator) if self._fall is None else self._fall

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> np.ndarray:
        self._events.append("draw")
        drawn: np.ndarray = super().discrete_gaussian(shape, noise_stddev)
        return 0 * drawn if self._silent else drawn

    def directions(self, means: np.ndarray, kappa: float) -> np.ndarray:
        # Drawn in several parts: noted once.
        if self._events[-1:] != ["draw"]:
            self._events.append("draw")
        return super().directions(means, kappa)


def releases_charge_then_draw_then_store(rng: np.random.Generator) -> None:
    """R40: write-ahead; a refused charge draws nothing, and nothing is handed out that was not stored."""
    for case in CASES:
        data = case.make(rng)
        diary = Diary(case.mechanism.cost())
        released = case.mechanism.release(
            lambda *_batch, data=data: data, step=0, account=diary, noise=NotedNoise(diary.events)
        )
        expect(diary.events == ["charge", "draw", "store"], f"{case.name}: charge, then draw, then store, once each")
        stored = diary.replay(0)
        expect(
            np.array_equal(released, case.mechanism.decode(stored)), f"{case.name}: only the noisy sum is handed out"
        )
        poor = Diary(case.mechanism.cost() - 1)
        with refused(BudgetExceeded, f"{case.name}: a release that the budget does not cover is refused"):
            case.mechanism.release(lambda *_batch, data=data: data, step=0, account=poor, noise=NotedNoise(poor.events))
        expect("draw" not in poor.events, f"{case.name}: a refused release draws nothing")


def stored_steps_are_replayed(rng: np.random.Generator) -> None:
    """R41: a resumed step repeats what was stored; it reads no record, draws nothing, charges nothing."""
    case = CASES[0]
    data, diary = case.make(rng), Diary(10**30)
    first = case.mechanism.release(lambda *_batch: data, step=0, account=diary, noise=NotedNoise(diary.events))
    again = case.mechanism.release(_forbidden, step=0, account=diary, noise=NotedNoise(diary.events))
    expect(np.array_equal(first, again), "a stored step is handed out again as it was")
    expect(diary.events == ["charge", "draw", "store"], "a replayed step is neither drawn nor charged again")
    case.mechanism.release(lambda *_batch: data, step=1, account=diary, noise=NotedNoise(diary.events))
    expect(diary.charged_units == 2 * case.mechanism.cost(), "every new step is charged, also after a resume")


def runs_release_what_they_charged_for(rng: np.random.Generator) -> None:
    """The plan is what a run charges (R17), and noisy sums are all that its generator is made of (R4, B13, B16).

    The second run has other records and finds the noisy sums of the first in its account.
    """
    for method in METHODS:
        spec = TrainingSpec(method=method, epsilon=5.0, delta=1e-3)
        account = MemoryAccount(spec.limit_units(_dataset(rng, 60).schema), (spec.epsilon, 1e-3))
        first = run(spec, _dataset(rng, 60), account=account)
        releases = [item.mechanism for item in first.plan.releases for _ in range(item.count)]
        planned = _charges(releases)
        expect(account.charges == planned, f"{method.name}: planned is charged")
        second = run(spec, _dataset(rng, 256), account=account)
        expect(account.charges == planned, f"{method.name}: a run over stored sums charges nothing")
        expect(first.plan == second.plan, f"{method.name}: a plan does not depend on records")
        same = same_model(first.model, second.model)
        expect(same, f"{method.name}: the generator depends on records through noisy sums only")


def _charges(releases: list[Any]) -> list[tuple[int, str, int]]:
    """Of each step; a block is paid with its first draw."""
    paid = [
        0 if mechanism.block() is not None and mechanism in releases[:step] else mechanism.cost()
        for step, mechanism in enumerate(releases)
    ]
    return [
        (step, mechanism.label(), ledger_units)
        for step, (mechanism, ledger_units) in enumerate(zip(releases, paid, strict=True))
    ]


def same_model(first: Generator | Classifier, second: Generator | Classifier) -> bool:
    """Equal to the last bit."""
    names = first.tensors.keys()
    return (
        first.settings == second.settings
        and names == second.tensors.keys()
        and all(first.tensors[name].tobytes() == second.tensors[name].tobytes() for name in names)
    )


def _dataset(rng: np.random.Generator, brightest: int) -> Dataset:
    """Same public schema, any records so bright; classes of any size."""
    names = ("a", "b", "c")
    schema = Schema(channels=1, height=_SIDE, width=_SIDE, class_names=names, num_units=_COUNT)
    images = rng.integers(brightest // 2, brightest, (_COUNT, _SIDE, _SIDE, 1)).astype(np.uint8)
    labels = rng.choice(_CLASSES, p=rng.dirichlet([1, 1, 1]), size=_COUNT)
    return Dataset(schema, Split(images, labels), None, b"k" * 32)


def _forbidden() -> Any:
    raise Alarm("a replayed step reads no record")
