"""Detectors on accounting: what a release costs, what a budget holds, and which way figures are rounded."""

import math
from fractions import Fraction

import dp_accounting
import mpmath
import numpy as np
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from datalens_service import spec
from datalens_service.base.errors import InvalidDelta
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import Mechanism, OuterProductSum, VoteMechanism
from datalens_service.methods import DataLens, DpSgd, Moments
from datalens_service.privacy import accounting
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.store.ledger.account_summary import AccountSummary

from .alarm import expect, refused
from .cases import CASES

# Paper settings at δ = 1e-5 (anchors 1.2): top_k, σ, ε, images.
GOLDEN_IMAGES = (
    (200, 5000, 1.0, 2245),
    (300, 800, 10.0, 2134),
    (350, 1000, 10.0, 2858),
    (700, 9000, 1.0, 2078),
    (500, 700, 10.0, 980),
)


_EMPTIED = accounting.NeighboringRelation.ZERO_OUT


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle & Wang 2018, Theorem 8, with 40 digits; shares no code with the product."""
    with mpmath.workdps(40):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def budgets_pay_for_the_golden_numbers(_rng: np.random.Generator) -> None:
    """R11: exactly so many images, and the next is refused."""
    for top_k, noise_stddev, epsilon, images in GOLDEN_IMAGES:
        allowance = spec.vote_allowance(top_k, noise_stddev, epsilon, 1e-5)
        expect(allowance.images == images, f"({top_k}, {noise_stddev}, {epsilon:g}) pays for {images} images")


def costs_are_those_of_the_proof(_rng: np.random.Generator) -> None:
    """R12, R13: Δ²/(σ² − 9) per query in exact arithmetic, rounded up; B9 halved it."""
    for case in CASES:
        for relation in accounting.NeighboringRelation:
            per_query = case.mechanism.sensitivity_squared(relation) / (case.mechanism.noise_stddev**2 - 9)
            block = case.mechanism.block()
            passes = block.passes if isinstance(block, PartitionedPasses) else 1
            queries = passes * case.mechanism.queries_per_unit(relation)
            least = queries * per_query * accounting.LEDGER_UNITS_PER_MU_SQUARED
            found = case.mechanism.cost(relation)
            # The price of passes is rounded once more, by less than a part in 10^12.
            most = least * (1 + Fraction(1, 10**12)) + queries
            expect(least <= found <= most, f"{case.name}: costs Δ²/(σ² − 9) per query")
        continuous = Fraction(case.mechanism.noise_multiplier()) ** 2 * case.mechanism.sensitivity_squared(_EMPTIED)
        expect(continuous <= case.mechanism.noise_stddev**2 - 9, f"{case.name}: the continuous noise has σ² − 9")


def plans_price_whole_units(_rng: np.random.Generator) -> None:
    """R2: a unit of several records, in several classes, is priced as a whole in every release of a plan."""
    declared = {"unit": "patient", "records_per_unit": 4, "classes_per_unit": 3}
    votes = DataLens(
        num_teachers=30, images_per_step=6, top_k=4, shards="class_pure", noise_stddev=5000, steps=2,
        warm_start=Moments(subspace_dimensions=4),
    )  # fmt: skip
    single, whole = (votes.plan(_schema(500).model_copy(update=more), 10**15) for more in ({}, declared))
    # A teacher votes on 2 of 6 images. Relabelled, a single record reaches two teachers, a unit all six images.
    of_votes = {accounting.NeighboringRelation.ZERO_OUT: 3, accounting.NeighboringRelation.REPLACE_ONE: 1.5}
    for alone, together in zip(single.releases, whole.releases, strict=True):
        for relation in accounting.NeighboringRelation:
            grown = _moved_squared(together.mechanism, relation) / _moved_squared(alone.mechanism, relation)
            expected = of_votes[relation] if isinstance(alone.mechanism, VoteMechanism) else 4**2
            expect(grown >= 0.99 * expected, "a plan prices whole units")


def _moved_squared(mechanism: Mechanism, relation: accounting.NeighboringRelation) -> Fraction:
    """How far one unit may move a release, squared, in steps of the grid."""
    grid = getattr(mechanism, "grid", 1)
    steps = grid**4 if isinstance(mechanism, OuterProductSum) else grid**2
    return mechanism.sensitivity_squared(relation) * mechanism.queries_per_unit(relation) / steps


def conversions_are_exact_and_on_the_safe_side(rng: np.random.Generator) -> None:
    """R10: ε, δ and μ belong together, for every δ; neither is shown too small nor held too large."""
    for _ in range(12):
        epsilon, delta = float(rng.uniform(0.05, 12)), float(10 ** rng.uniform(-9, -3))
        mu = math.sqrt(Fraction(accounting.limit_units(epsilon, delta), accounting.LEDGER_UNITS_PER_MU_SQUARED))
        expect(exact_delta(mu, epsilon) <= delta, "a budget holds no more than its ε and δ")
        expect(exact_delta(mu * 1.0001, epsilon) > delta, "a budget holds all that its ε and δ allow")
        units = int(rng.integers(10**9, 10**15))
        shown = accounting.epsilon_of_ledger_units(units, delta)
        spent = math.sqrt(Fraction(units, accounting.LEDGER_UNITS_PER_MU_SQUARED))
        expect(exact_delta(spent, shown) <= delta, "an ε that is shown covers what was spent")
        tight = shown == 0 or exact_delta(spent, shown * 0.9999) > delta
        expect(tight, "an ε that is shown is the smallest that covers it")


def figures_are_rounded_towards_privacy(rng: np.random.Generator) -> None:
    """R29: spends up, what remains down, wherever people read them (B19)."""
    limit = accounting.limit_units(2.0, 1e-5)
    for _ in range(6):
        reserved, charged = (int(part) for part in rng.integers(10**9, limit // 3, size=2))
        account = AccountSummary("acc", 2.0, 1e-5, limit, reserved, charged, 1, "", None)
        expect(_covers(account.epsilon_spent, charged), "the statement rounds what was spent up")
        expect(_covers(account.epsilon_reserved, reserved), "and what is reserved")
        affordable = accounting.limit_units(account.epsilon_remaining, 1e-5) <= account.remaining_units
        expect(affordable, "what is said to remain can be paid for")
    plan = Moments(subspace_dimensions=4).plan(_schema(500), limit)
    summary = spec.summarize(plan, 2.0, 1e-5)
    expect(_covers(summary.epsilon_at_plan, plan.cost()), "a plan's ε is rounded up")
    mu_squared = Fraction(plan.cost(), accounting.LEDGER_UNITS_PER_MU_SQUARED)
    expect(Fraction(str(summary.mu)) ** 2 >= mu_squared, "a plan's μ is rounded up")


def _covers(epsilon: float, units: int) -> bool:
    """Whether the ledger would let so many units pass within ε at δ = 1e-5."""
    return accounting.limit_units(epsilon, 1e-5) >= units


def jobs_compose_exactly(_rng: np.random.Generator) -> None:
    """Two jobs at ε = 1 cost 1.4652, neither 1 nor 2."""
    spent = accounting.epsilon_of_ledger_units(2 * accounting.limit_units(1.0, 1e-5), 1e-5)
    expect(1.4651 < spent <= 1.4653, "two jobs at ε = 1 cost ε = 1.4652")


def delta_stays_below_one_over_n(rng: np.random.Generator) -> None:
    """R16: a δ at or above 1/n permits publishing whole records (B20)."""
    for units in (int(count) for count in rng.integers(50, 10**6, size=5)):
        expect(accounting.default_delta(units) < 1 / units, "the default δ is below 1/n")
        for delta in (1 / units, 0.01, 0.5):
            asked = spec.TrainingSpec(method=Moments(), epsilon=1.0, delta=delta)
            if delta >= 1 / units:
                with refused(InvalidDelta, "a δ at or above 1/n is refused"):
                    asked.delta_at(_schema(units))


def blocks_cover_what_another_accountant_finds(_rng: np.random.Generator) -> None:
    """R10: a sampled run by dp_accounting, from σ, Δ, q and the draws alone, costs no more than is charged."""
    method = DpSgd(architecture="linear", steps=30, sampling="poisson", batch=40, noise_multiplier=2.005)
    mechanism = method.plan_within(_schema(1_000), 8.0, 1e-4).releases[0].mechanism
    block = mechanism.block()
    squared = mechanism.sensitivity_squared(accounting.NeighboringRelation.ZERO_OUT)
    multiplier = math.sqrt((mechanism.noise_stddev**2 - 9) / squared)
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    noise = dp_accounting.GaussianDpEvent(multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(block.numerator / 2**53, noise), block.draws)
    mu, slack = math.sqrt(block.ledger_units_zero_out / 1e15), block.slack / 1e18
    for epsilon in np.linspace(0, 6 * mu, 40):
        excess = accountant.get_delta(epsilon) - exact_delta(mu, epsilon) - slack
        expect(excess <= 1e-9, "a block is charged no less than another accountant finds")


def charges_do_not_depend_on_data(rng: np.random.Generator) -> None:
    """R15: the same parameters charge the same, whatever the records say (B7, B8)."""
    for case in CASES:
        charges = []
        for data in (case.make(rng), case.make(rng), case.worst[0]):
            account = MemoryAccount(10**30)
            case.mechanism.release(lambda *_batch, data=data: data, step=0, account=account, noise=NoiseSource())
            charges.append(account.charges)
        expect(charges[0] == charges[1] == charges[2], f"{case.name}: charges do not depend on data")
        expect(charges[0] == [(0, case.mechanism.label(), case.mechanism.cost())], f"{case.name}: planned is charged")


def _schema(units: int) -> Schema:
    return Schema(channels=1, height=6, width=6, class_names=("a", "b", "c"), num_units=units)
