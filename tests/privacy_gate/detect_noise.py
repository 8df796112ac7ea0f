"""Detectors on noise: scale, independence, exactness, origin; and an audit of whole releases."""

import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy import stats

from datalens_service.mechanisms import (
    GradientChunk,
    GradientSum,
    KLevel,
    Mechanism,
    OuterProductSum,
    TopAgg,
    VectorSum,
    VonMisesFisherSum,
)
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.privacy.accounting import mu_of_ledger_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource

from .alarm import expect
from .cases import CASES, vote
from .exact_noise import expect_exact
from .sampled_audit import declared_and_found

# A false alarm of one comparison has a probability of about 2e-9.
_DEVIATIONS = 6.0
_IMAGES, _PIXELS = 30, 784
_SAMPLES, _BATCH, _WEIGHTS = 60_000, 1500, 300
_NEVER = 10**30
_DRAWS = 600


def noise_has_its_scale_on_every_coordinate(_rng: np.random.Generator) -> None:
    """R7: 141,120 draws of real releases, most coordinates without a vote; 2 % of σ show."""
    noise = _noise_of_releases(steps=6) / _mechanism().noise_stddev
    expect(not (noise == 0).all(axis=0).any(), "every coordinate of every image gets noise, votes or not")
    deviation = (noise.var() - 1) / np.sqrt(2 / noise.size)
    expect(abs(deviation) < _DEVIATIONS, "the noise has the stated standard deviation")
    expect(abs(noise.mean()) * np.sqrt(noise.size) < _DEVIATIONS, "the noise has mean zero")
    expect(abs(stats.kurtosis(noise, axis=None)) < _DEVIATIONS * np.sqrt(24 / noise.size), "the noise is Gaussian")
    without_votes = noise[:, :, _PIXELS // 2 :]
    ratio = without_votes.var() / noise.var()
    expect(abs(ratio - 1) < 10 * np.sqrt(2 / without_votes.size), "coordinates without votes get the same noise")


def noise_of_every_mechanism_has_its_scale(_rng: np.random.Generator) -> None:
    """R7: the noise of whole releases, also where a sum is 0, by the exact sum that is taken off again."""
    for case in CASES:
        if isinstance(case.mechanism, VonMisesFisherSum):
            continue  # Has no noise on the sum; its law is looked at by itself.
        data, account = case.worst[0], MemoryAccount(_NEVER)
        exact = case.mechanism.exact_sum(data)
        releases = max(3, -(-_DRAWS // exact.size))
        for step in range(releases):
            case.mechanism.release(lambda *_batch, data=data: data, step=step, account=account, noise=NoiseSource())
        noise = np.array([account.replay(step) - exact for step in range(releases)]) / case.mechanism.noise_stddev
        expect(not (noise == 0).all(axis=0).any(), f"{case.name}: every coordinate gets noise")
        deviation = (noise.var() - 1) / np.sqrt(2 / noise.size)
        expect(abs(deviation) < _DEVIATIONS, f"{case.name}: the noise has the stated standard deviation")


def noise_is_fresh_everywhere(_rng: np.random.Generator) -> None:
    """R7: images of a batch, steps and runs share no noise (B1)."""
    noise = np.concatenate([_noise_of_releases(steps=2), _noise_of_releases(steps=2)]).reshape(-1, _PIXELS)
    correlations = np.corrcoef(noise)[np.triu_indices(len(noise), 1)]
    expect(np.abs(correlations).max() < 7 / np.sqrt(_PIXELS), "no two images, steps or runs share noise")


def noise_is_exactly_the_discrete_gaussian(_rng: np.random.Generator) -> None:
    """R7: at σ = 1 and 2 a rounded float would show (B23)."""
    for stddev in (1, 2):
        expect_exact(stddev, draws=60_000)


def noise_comes_from_the_operating_system_alone(_rng: np.random.Generator) -> None:
    """R7: same entropy, same noise, whatever other generators do; fresh entropy, fresh noise (B1, B2)."""
    with _frozen_entropy():
        first = _draw()
    _reseed(1)
    with _frozen_entropy():
        second = _draw()
    expect(np.array_equal(first, second), "noise is a function of the system's entropy alone")
    _reseed(2)
    third = _draw()
    _reseed(2)
    expect(not np.array_equal(third, _draw()), "seeding every generator there is does not repeat noise")


def forked_processes_do_not_repeat_noise(_rng: np.random.Generator) -> None:
    """R9: nothing is kept that a fork would copy."""
    _draw()
    prefixes = [_in_child(lambda: _draw()[:16].tobytes()) for _ in range(3)] + [_draw()[:16].tobytes()]
    expect(len(set(prefixes)) == len(prefixes), "forked processes draw noise of their own")


def audits_find_no_more_than_was_charged(_rng: np.random.Generator) -> None:
    """R34: an adversary who knows the worst neighbours measures μ; 0.9 to 1.0 of what the releases charged."""
    for mechanism, batch, first, second, direction in _audited():
        declared, high = _scores(mechanism, batch, first, direction)
        _, low = _scores(mechanism, batch, second, direction)
        found = gdp_lower_bound(high, low)
        expect(found <= declared, f"{mechanism.label()}: the audit finds {found:.3f}, charged were {declared:.3f}")
        expect(found >= 0.9 * declared, f"{mechanism.label()}: the audit has power ({found:.3f} of {declared:.3f})")


def audits_of_sampled_sums_find_no_more_than_was_charged(_rng: np.random.Generator) -> None:
    """R34: the same for one step on a sampled batch, in ε at a large δ."""
    declared, found = declared_and_found(steps=1, runs=40_000)
    expect(found <= declared, f"sampled sums: the audit finds {found:.3f}, charged were {declared:.3f}")
    # Simulated audits show 0.87 of ε, with a standard deviation of 0.02.
    expect(found >= 0.6 * declared, f"sampled sums: the audit has power ({found:.3f} of {declared:.3f})")


def gdp_lower_bound(first: np.ndarray, second: np.ndarray, mistake: float = 1e-6) -> float:
    """Lower bound of μ from two samples of scores, by the midpoint test (Nasr et al. 2023, Clopper–Pearson).

    Args:
        first: Scores of one data set, the higher ones.
        second: Scores of its neighbour, as many.
        mistake: Probability that either error rate is above its bound.
    """
    bar = (first.mean() + second.mean()) / 2
    errors = [(second > bar).sum(), (first <= bar).sum()]
    rates = [stats.beta.ppf(1 - mistake, count + 1, len(first) - count) for count in errors]
    return float(-stats.norm.ppf(rates[0]) - stats.norm.ppf(rates[1]))


def _mechanism() -> TopAgg:
    return TopAgg(
        num_teachers=4, images=_IMAGES, dimensions=_PIXELS, top_k=200, clip=1.0, stochastic=False,
        threshold="none", noise_stddev=5000,
    )  # fmt: skip


def _noise_of_releases(steps: int) -> np.ndarray:
    """(steps, images, pixels): what releases added to the sum; the second half of the pixels has no votes."""
    mechanism, account = _mechanism(), MemoryAccount(_NEVER)
    gradients = torch.zeros(4, _IMAGES, _PIXELS)
    gradients[:, :, :250] = torch.linspace(1, 2, 250)
    exact = mechanism.exact_sum([gradients])
    for step in range(steps):
        mechanism.release(lambda: [gradients], step=step, account=account, noise=NoiseSource())
    return np.array([account.replay(step) for step in range(steps)], dtype=np.float64) - exact


def _audited() -> Iterator[tuple[Mechanism, int, Any, Any, np.ndarray]]:
    """Mechanisms, independent samples per release, worst neighbours, and the direction to look into.

    Images, groups, and units with orthogonal gradients do not touch each other, so each is an experiment of its own
    with the μ of one query.
    """
    votes = vote(KLevel, levels=101, dimensions=1, images=_BATCH, num_teachers=1, noise_stddev=200)
    up = torch.ones(1, _BATCH, 1)
    yield votes, _BATCH, [up], [-up], np.array([1.0])
    everyone = GroupedVectors(np.ones((_BATCH, 1)), np.arange(_BATCH), np.arange(_BATCH))
    none = np.zeros(0, dtype=np.int64)
    nobody = GroupedVectors(np.zeros((0, 1)), none, none)
    means = VectorSum(num_groups=_BATCH, dimensions=1, count_weight=683, noise_stddev=2200)
    yield means, _BATCH, everyone, nobody, np.array([683.0, 2048.0])
    squares = OuterProductSum(num_groups=_BATCH, dimensions=1, noise_stddev=4_300_000)
    yield squares, _BATCH, everyone, nobody, np.array([1.0])
    gradients = GradientSum(dimensions=_WEIGHTS, clip_norm=0.5, noise_stddev=70_000)
    orthogonal = GradientChunk(3 * torch.eye(_WEIGHTS), torch.arange(_WEIGHTS))
    empty = GradientChunk(torch.zeros(0, _WEIGHTS), torch.arange(0))
    yield gradients, _WEIGHTS, [orthogonal], [empty], np.array([1.0])


def _scores(mechanism: Mechanism, batch: int, data: Any, direction: np.ndarray) -> tuple[float, np.ndarray]:
    """μ that one query was charged for, and `_SAMPLES` noisy sums as seen from `direction`."""
    account, steps = MemoryAccount(_NEVER), _SAMPLES // batch
    for step in range(steps):
        mechanism.release(lambda: data, step=step, account=account, noise=NoiseSource())
    stored = np.concatenate([account.replay(step).reshape(batch, -1) for step in range(steps)])
    queries = steps * (batch if isinstance(mechanism, KLevel) else 1)
    return mu_of_ledger_units(account.charged_units // queries), stored @ direction


def _draw() -> np.ndarray:
    return NoiseSource().discrete_gaussian((64,), 1000)


def _reseed(seed: int) -> None:
    """Seed every generator that a process shares."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def _frozen_entropy() -> Iterator[None]:
    stream = io.BytesIO(np.random.default_rng(5).bytes(2**18))
    with mock.patch.object(os, "urandom", stream.read):
        yield


def _in_child(work: Callable[[], bytes]) -> bytes:
    """What `work` returns in a forked process."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
