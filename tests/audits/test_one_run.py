"""Lower bounds on μ from one run with many canaries: of laws that are known, of a mechanism, and of a whole job.

Each canary is in or out by a fair coin. An attacker guesses some of the coins; many right guesses refute small μ (after
Mahloujifar, Melis and Chaudhuri 2024; proved in docs/decisions/0098-one-run-bounds-mu.md).
"""

from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
from scipy import optimize, special

from datalens_service.data import dataset as datasets
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import VectorSum
from datalens_service.mechanisms.gradient_sum import GradientSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.privacy.accounting import epsilon_for_mu, epsilon_of_ledger_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

DELTA = 1e-6
EPSILON = 4.0
CONFIDENCE = 0.99
_SIDE, _BLOCK = 28, 2
_SMALLEST_MU, _LARGEST_MU = 1e-3, 20.0
_PRECISION = 1e-4
_ROUNDING = 1e-9


def count_right_guesses(scores: np.ndarray, is_included: np.ndarray, guesses: int) -> int:
    """Right among the guesses: the highest half of them are called in, the lowest half out.

    Args:
        scores: (canaries,) higher where the canary seems to be in.
        is_included: (canaries,) its coin.
        guesses: How many canaries are guessed, an even number that is fixed before looking.
    """
    order, half = np.argsort(scores, kind="stable"), guesses // 2
    return int(is_included[order[-half:]].sum() + (1 - is_included[order[:half]]).sum())


def mu_tail(mu: float, right: int, guesses: int, canaries: int) -> float:
    """Largest probability of `right` or more right guesses under μ-GDP, rounded up.

    With T(j) that of j or more: j·T(j) ≤ canaries·Φ(Φ⁻¹((guesses − j + 1)·T(j − 1)/canaries) + μ).
    """
    tail = 1.0
    for count in range(1, right + 1):
        wrong = min(1.0, (guesses - count + 1) * tail / canaries)
        tail = min(tail, canaries / count * float(special.ndtr(special.ndtri(wrong) + mu)) * (1 + _ROUNDING))
    return tail


def mu_lower_bound(right: int, guesses: int, canaries: int, confidence: float = 0.95) -> float:
    """Largest μ that the guesses refute, at a confidence; 0 if none."""

    def surplus(mu: float) -> float:
        return mu_tail(mu, right, guesses, canaries) - (1 - confidence)

    if surplus(_SMALLEST_MU) >= 0:
        return 0.0
    if surplus(_LARGEST_MU) <= 0:
        return _LARGEST_MU
    # Rounded towards no leakage.
    return float(optimize.brentq(surplus, _SMALLEST_MU, _LARGEST_MU, xtol=_PRECISION)) - _PRECISION


def test_independent_gaussian_scores_have_no_more_right_guesses_than_the_tail_allows() -> None:
    rng, mu, canaries, guesses, times = np.random.default_rng(6), 1.0, 2000, 100, 200
    right = []
    for _ in range(times):
        coins = rng.integers(0, 2, canaries)
        right.append(count_right_guesses(rng.normal(size=canaries) + mu * coins, coins, guesses))
    for seen in range(min(right), max(right) + 1):
        share = np.mean(np.array(right) >= seen)
        assert mu_tail(mu, seen, guesses, canaries) >= share - 4 * np.sqrt(share * (1 - share) / times)


def test_the_tail_of_mu_falls_with_right_guesses_and_rises_with_mu() -> None:
    tails = [mu_tail(1.0, right, 200, 4000) for right in range(150, 201, 5)]
    assert tails == sorted(tails, reverse=True)
    assert tails[0] == 1.0
    assert tails[-1] < 0.01
    assert mu_tail(0.5, 190, 200, 4000) < mu_tail(0.8, 190, 200, 4000)
    assert mu_tail(1.0, 0, 200, 4000) == 1.0
    # A single canary is told with probability Φ(μ/2) at most: fewer than all are right half of the time.
    assert mu_lower_bound(1, 1, 1) == 0.0


def test_the_bound_on_mu_lies_below_the_truth_and_above_most_of_it() -> None:
    rng, mu, canaries, guesses = np.random.default_rng(7), 1.0, 40_000, 1000
    bounds = []
    for _ in range(40):
        coins = rng.integers(0, 2, canaries)
        right = count_right_guesses(rng.normal(size=canaries) + mu * coins, coins, guesses)
        bounds.append(mu_lower_bound(right, guesses, canaries, CONFIDENCE))
    assert max(bounds) < mu
    assert np.mean(bounds) > 0.6 * mu


def audit_job(seed: int) -> float:
    """ε that one real job refutes: noisy gradients of a linear layer on canaries whose gradients hardly overlap."""
    schema = Schema(
        channels=1, height=_SIDE, width=_SIDE, class_names=tuple("0123456789"), num_units=10 * (_SIDE // _BLOCK) ** 2
    )
    images, labels = make_canaries(schema)
    coins = np.random.default_rng(seed).integers(0, 2, len(labels))
    included = np.flatnonzero(coins)
    with mock.patch.object(datasets, "check_units"):
        data = Dataset(schema, Split(images[included], labels[included], included), None, b"k" * 32)
    method = {"name": "dp_sgd", "architecture": "linear", "steps": 2, "clip_norm": 0.05}
    descent = {"momentum": 0.0, "averaging": 0.0, "learning_rate": 1.0}
    spec = TrainingSpec.model_validate({"method": method | descent, "epsilon": EPSILON, "delta": DELTA, "seed": seed})
    account = MemoryAccount(spec.limit_units(schema))
    released = run(spec, data, account=account).model.tensors
    # Each canary pushes the weights of its own pixels: up for its class, down for the others.
    name = next(name for name, value in released.items() if value.ndim == 2)
    initial = build_network({"architecture": "linear"}, schema, TrainingRandomness(seed).seed("classifier"))
    moved = (released[name] - initial.state_dict()[name].numpy()).reshape(10, _SIDE, _SIDE)
    pushed = moved - moved.mean(axis=0)
    scores = np.array([pushed[label][image[..., 0] == 255].sum() for image, label in zip(images, labels, strict=True)])
    return refuted_epsilon(scores, coins, guesses=200)


def refuted_epsilon(scores: np.ndarray, coins: np.ndarray, guesses: int) -> float:
    """The largest ε at `DELTA` that the guesses refute."""
    right = count_right_guesses(scores, coins, guesses)
    mu = mu_lower_bound(right, guesses, len(coins), CONFIDENCE)
    return epsilon_for_mu(mu, DELTA) if mu else 0.0


def make_canaries(schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Images that are grey, which the network reads as zero, but for one white block each."""
    per_side = _SIDE // _BLOCK
    images = np.full((schema.num_units, _SIDE, _SIDE, 1), 128, dtype=np.uint8)
    labels = np.arange(schema.num_units) % 10
    for number in range(schema.num_units):
        row, column = divmod(number // 10, per_side)
        images[number, row * _BLOCK : (row + 1) * _BLOCK, column * _BLOCK : (column + 1) * _BLOCK] = 255
    return images, labels.astype(np.int64)


@dataclass(frozen=True)
class ClassSums:
    """One release of class sums, whose canaries have a class each.

    Attributes:
        coins: (canaries,) whether each is in.
        exact: What was summed, as the best attacker weighs it.
        noisy: The same of what was released.
        declared: ε that was charged.
    """

    coins: np.ndarray
    exact: np.ndarray
    noisy: np.ndarray
    declared: float

    def refuted(self, noise: float) -> float:
        """ε that a release with this share of the noise refutes."""
        return refuted_epsilon(self.exact + noise * (self.noisy - self.exact), self.coins, guesses=1500)


@pytest.fixture(scope="module")
def class_sums() -> ClassSums:
    canaries, weights = 60_000, np.array([683.0, 2048.0])
    mechanism = VectorSum(num_groups=canaries, dimensions=1, count_weight=683, noise_stddev=2_577)
    coins = np.random.default_rng(8).integers(0, 2, canaries)
    included = np.flatnonzero(coins)
    data = GroupedVectors(np.ones((len(included), 1)), included, included)
    account = MemoryAccount(mechanism.cost())
    mechanism.release(lambda: data, step=0, account=account, noise=NoiseSource())
    noisy = account.replay(0)
    assert noisy is not None
    declared = epsilon_of_ledger_units(account.charged_units, DELTA)
    return ClassSums(coins, mechanism.exact_sum(data) @ weights, noisy @ weights, declared)


def test_canaries_in_class_sums_show_more_than_half_of_what_was_charged(class_sums: ClassSums) -> None:
    assert class_sums.declared == pytest.approx(EPSILON, rel=0.02)
    assert 0.5 * class_sums.declared < class_sums.refuted(noise=1.0) <= class_sums.declared


def test_class_sums_with_half_of_the_noise_are_refuted(class_sums: ClassSums) -> None:
    assert class_sums.refuted(noise=0.5) > class_sums.declared


def test_canaries_in_a_job_leak_less_than_declared_but_are_seen() -> None:
    bound = audit_job(seed=0)
    assert 0.2 * EPSILON < bound <= EPSILON


def test_a_job_with_a_quarter_of_the_noise_is_refuted() -> None:
    release = GradientSum.release

    def quieter(self: GradientSum, *arguments: object, **named: object) -> object:
        quiet = self.model_copy(update={"noise_stddev": self.noise_stddev // 4})
        return release(quiet, *arguments, **named)

    with mock.patch.object(GradientSum, "release", quieter), mock.patch.object(MemoryAccount, "charge"):
        assert audit_job(seed=0) > EPSILON
