"""Two sources of randomness of two types that cannot be exchanged.

`NoiseSource` is for privacy: discrete Gaussian noise and the secret coins of Poisson sampling, exact, and noisy
directions in float64, all from the operating system's entropy. It has no seed, no state and therefore nothing to copy
on fork, to store in a checkpoint or to repeat on resume.

`TrainingRandomness` is for everything the guarantee does not rest on (initial weights, batches, stochastic
rounding): seeded, addressed by purpose and step, so that a resumed run repeats it without stored state.

The sampler is Canonne, Kamath & Steinke 2020 ("The Discrete Gaussian for Differential Privacy"), Algorithms
1 to 3, with t = σ in Algorithm 3 and vectorised by rounds. Only integers take part.
"""

import hashlib
import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import InvalidSpec
from datalens_service.privacy.von_mises_fisher import draw_directions

# 2·K·σ² must stay below 2^63 in every round K of Algorithm 1; rounds beyond 2^8 have probability below 1e-500.
MAXIMUM_NOISE_STDDEV: Final = 2**26
_LARGEST_ROUND: Final = 2**8
# Multiples of σ in |Y| beyond this have probability e^-512 and would leave the range of int64.
_LARGEST_MULTIPLE: Final = 512
_CHUNK: Final = 2**18

COIN_BITS: Final = 53
"""Probabilities of coins are whole multiples of 2^-53."""

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@final
class NoiseSource:
    """Noise from OS entropy, the only noise that a mechanism may add."""

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> Integers:
        """Draw independent int64 numbers from N_Z(0, noise_stddev²), one for every coordinate of `shape`.

        Args:
            shape: Shape of the array to return.
            noise_stddev: σ, an integer from 1 to 2^26.

        Raises:
            InvalidSpec: σ is outside the range in which int64 arithmetic is exact.
        """
        if not 1 <= noise_stddev <= MAXIMUM_NOISE_STDDEV:
            raise InvalidSpec(f"σ of the noise must lie between 1 and {MAXIMUM_NOISE_STDDEV}.")
        size = math.prod(shape)
        sizes = [min(_CHUNK, size - start) for start in range(0, size, _CHUNK)]
        if len(sizes) <= 1:
            return _discrete_gaussian(size, noise_stddev).reshape(shape)
        # Draws are independent, and entropy and arithmetic release the interpreter, so threads share them.
        with ThreadPoolExecutor(min(len(sizes), os.cpu_count() or 1)) as threads:
            parts = list(threads.map(partial(_discrete_gaussian, stddev=noise_stddev), sizes))
        return np.concatenate(parts).reshape(shape)

    def coins(self, count: int, numerator: int) -> Booleans:
        """Toss independent coins (count,), one for each privacy unit: who is in a Poisson-sampled batch.

        Amplification by sampling rests on these coins, so the caller must neither store nor show them.

        Args:
            numerator: Each coin is True with a probability of exactly numerator / 2^53.

        Raises:
            InvalidSpec: The probability is not within 0 and 1.
        """
        if not 0 <= numerator <= 2**COIN_BITS:
            raise InvalidSpec("The probability of a coin must lie between 0 and 1.")
        # A comparison of integers: the probability is exact, with no float in between.
        return (_words(count) >> np.uint64(64 - COIN_BITS)) < np.uint64(numerator)

    def directions(self, means: Floats, kappa: float) -> Floats:
        """Draw independent rows (rows, d) of length 1 from von Mises-Fisher laws, exact in real arithmetic only.

        Args:
            means: (rows, d) float64 mean directions of length 1; a row of zeros stands for the uniform law.
            kappa: Concentration, at least 0.

        Raises:
            InvalidInput: The means have another type, shape or length.
        """
        return draw_directions(means, kappa, _uniforms)


def _discrete_gaussian(size: int, stddev: int) -> Integers:
    """Draw by Algorithm 3: rejection from the discrete Laplace of scale t = σ."""
    accepted: list[Integers] = []
    missing = size
    while missing:
        # About 76 % of the proposals are accepted; a small surplus avoids many short rounds.
        remainder, multiple, negative = _discrete_laplace(missing + missing // 2 + 16, stddev)
        keep = _accept(remainder, multiple, stddev)
        magnitude = remainder[keep] + stddev * multiple[keep]
        draws = np.where(negative[keep], -magnitude, magnitude)[:missing]
        accepted.append(draws)
        missing -= len(draws)
    return np.concatenate(accepted) if accepted else np.empty(0, dtype=np.int64)


def _accept(remainder: Integers, multiple: Integers, stddev: int) -> Booleans:
    """Draw Bernoulli(exp(−(|Y| − σ)² / 2σ²)) for |Y| = remainder + σ·multiple, without leaving int64.

    With w = multiple − 1 the exponent is w²/2 + (r² + 2rσw) / 2σ². Its whole part takes as many
    Bernoulli(exp(−1)), the rest Algorithm 1.
    """
    offset = multiple - 1
    denominator = 2 * stddev * stddev
    numerator = remainder * remainder + 2 * remainder * stddev * offset + (offset * offset % 2) * stddev * stddev
    # For |Y| < σ the mixed term is negative: borrow one from w²/2 (w = −1, so w² is odd and covers it).
    whole = offset * offset // 2 + numerator // denominator
    alive = _bernoulli_exp(numerator % denominator, denominator)
    while (todo := np.flatnonzero(alive & (whole > 0))).size:
        alive[todo] = _bernoulli_exp(np.ones(todo.size, dtype=np.int64), 1)
        whole[todo] -= 1
    return alive


def _discrete_laplace(size: int, scale: int) -> tuple[Integers, Integers, Booleans]:
    """Draw (remainder, multiple, negative) with P(x) ∝ exp(−|x|/scale) by Algorithm 2; returns fewer than `size`."""
    remainder = _uniform_below(scale, size)
    remainder = remainder[_bernoulli_exp(remainder, scale)]
    multiple = _geometric(len(remainder))
    negative = _uniform_below(2, len(remainder)) == 1
    # Zero would come up twice, as 0 and as −0, so one of the two is rejected.
    keep = ~(negative & (remainder == 0) & (multiple == 0))
    return remainder[keep], multiple[keep], negative[keep]


def _geometric(size: int) -> Integers:
    """Draw the number of successes of Bernoulli(exp(−1)) before the first failure."""
    count = np.zeros(size, dtype=np.int64)
    active = np.arange(size)
    while active.size:
        active = active[_bernoulli_exp(np.ones(active.size, dtype=np.int64), 1)]
        count[active] += 1
    if size and int(count.max()) > _LARGEST_MULTIPLE:
        raise ArithmeticError("The entropy source is broken: an event of probability below 1e-200 occurred.")
    return count


def _bernoulli_exp(numerator: Integers, denominator: int) -> Booleans:
    """Draw True with probability exp(−numerator/denominator) by Algorithm 1, for 0 ≤ numerator ≤ denominator."""
    result = np.zeros(numerator.size, dtype=np.bool_)
    active = np.arange(numerator.size)
    for k in range(1, _LARGEST_ROUND):
        if not active.size:
            return result
        going_on = _uniform_below(k * denominator, active.size) < numerator[active]
        # The parity of the round with the first failure is the coin.
        result[active[~going_on]] = k % 2 == 1
        active = active[going_on]
    raise ArithmeticError("The entropy source is broken: an event of probability below 1e-500 occurred.")


def _uniform_below(bound: int, size: int) -> Integers:
    """Draw uniform integers in [0, bound), by rejection from 64-bit words of OS entropy."""
    if bound == 1:
        return np.zeros(size, dtype=np.int64)
    # A power of two divides 2^64, so the low bits are uniform as they are.
    if bound & (bound - 1) == 0:
        return (_words(size) & np.uint64(bound - 1)).astype(np.int64)
    # Words behind the last whole multiple of the bound would make small numbers more likely.
    limit = np.uint64(2**64 // bound * bound - 1)
    words = _words(size)
    while (rejected := np.flatnonzero(words > limit)).size:
        words[rejected] = _words(rejected.size)
    return (words % np.uint64(bound)).astype(np.int64)


def _uniforms(size: int) -> Floats:
    """Draw from the centres of 2^52 equal parts of (0, 1), so that neither end is ever drawn."""
    return ((_words(size) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _words(size: int) -> NDArray[np.uint64]:
    # The kernel each time: a generator in this process could be copied by a fork or read from its memory.
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64).copy()


@final
class TrainingRandomness:
    """Seeds for everything the guarantee does not rest on, one per purpose and step; the public `seed` repeats them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def seed(self, purpose: str, step: int = 0) -> int:
        """Return a 63-bit seed that depends on (seed, purpose, step) only."""
        digest = hashlib.sha256(f"{self._seed}/{purpose}/{step}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def numpy(self, purpose: str, step: int = 0) -> np.random.Generator:
        return np.random.default_rng(self.seed(purpose, step))
