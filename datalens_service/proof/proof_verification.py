"""Checks that a proof holds together, from the file alone, one line per claim.

ε is recomputed by dp_accounting from the parameters of the mechanisms (privacy/recomputation.py), not by the
accountant that charged them. A proof may come from anybody: nothing in it is trusted. Both files of `job_proof.py`
are read; the claims about the job are checked by the same lines in either.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic import ValidationError

from datalens_service.base.errors import LedgerCorrupt
from datalens_service.base.parsing import decimal_text
from datalens_service.base.signatures import PublicKey
from datalens_service.mechanisms import AnyMechanism, IndividualHistogram, PlannedRelease
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.privacy.accounting import NeighboringRelation, delta_beside, round_up
from datalens_service.privacy.poisson_sampling import PoissonSampling
from datalens_service.privacy.randomness import COIN_BITS
from datalens_service.privacy.recomputation import (
    LARGEST_EPSILON,
    RESOLUTION,
    GaussianReleases,
    SampledReleases,
    composed_epsilon,
    discrete_releases,
    gaussian_delta,
)
from datalens_service.proof.hash_chain import budget_label, follow
from datalens_service.proof.input_file import proof_format
from datalens_service.proof.job_charges import check_charges
from datalens_service.proof.job_proof import (
    ACCOUNT_FORMAT,
    EARLIER_ACCOUNT_FORMAT,
    PROOF_FORMAT,
    SIGNATURE,
    AccountProof,
    EarlierAccountProof,
    ExpectedKey,
    JobProof,
    Payment,
    Proof,
    name_signer,
)
from datalens_service.proof.verdict import Examination, VerificationResult, VerifiedSubject, judge
from datalens_service.report.card import CardMechanism
from datalens_service.report.privacy_statement import (
    classify_epsilon,
    first_releases,
)

_ZERO_OUT, _REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE

_UNIT: Final = Fraction(1, 10**15)
# A stated ε is rounded up to four digits and comes from charges rounded up to whole units.
_ROUNDING: Final = 1e-3
_MU_ROUNDING: Final = Fraction(1, 10**6) + Fraction(1, 10**12)

_NOT_VERIFIED: Final = (
    "That the program ran as the proof says: these releases, with exactly this noise, and nothing else.",
    "That the sensitivity of each mechanism is what its parameters say: docs/mechanisms has the proofs.",
    "That no unit was in the input twice, and that the number of units is the declared one.",
    "That the same records have no other account, in another installation or another folder.",
)
NOT_VERIFIED_OF_LONE_PROOF: Final = (
    "Any image or model: only the proof was given. Give the archive of the release, or its folder, to check every file."
)
NOT_VERIFIED_OF_JOB: Final = (
    *_NOT_VERIFIED,
    "That no charge of the job was left out and the rest chained anew, beyond what the card and the plan show.",
    "The lifetime of the account: it is not in this file. Whoever holds several releases from the same records adds "
    "up their μ²; the owner has the journal, account-proof.json.",
)
NOT_VERIFIED_OF_ACCOUNT: Final = (
    *_NOT_VERIFIED,
    "That the chain was not rewritten as a whole: compare its head with one that you noted earlier.",
    "That other jobs of the account paid what their mechanisms cost: their own proofs say it.",
)

NOT_VERIFIED_OF_SPENDERS: Final = (
    "That the named keys and persons submitted the jobs: the installation says so and signs it. Its audit journal "
    "seals who did what."
)


def verify(
    content: bytes, key: PublicKey | None = None, beside: Mapping[str, Examination] = MappingProxyType({})
) -> VerificationResult:
    """Check a proof that was given alone, from the outside in, up to the first contradiction.

    Args:
        key: The key that has to have signed it; None accepts anybody's.
        beside: Claims about what lies beside it.

    Raises:
        InvalidInput: It is something else; the sentence names it, and the file to give instead.
    """
    subject = describe_proof(content, key)
    subject = subject._replace(claims={**subject.claims, **beside})
    return judge(subject._replace(not_verified=(*subject.not_verified, NOT_VERIFIED_OF_LONE_PROOF)))


def describe_proof(content: bytes, key: PublicKey | None) -> VerifiedSubject:
    """Collect the claims of a proof, signature included, and what no proof can show.

    Raises:
        InvalidInput: It is something else; the sentence names it, and the file to give instead.
    """
    kind = _KINDS[proof_format(content)]
    parsed = cache(partial(_parsed, kind.model, content))
    examinations = {_FORM: _form, **kind.checks}
    claims: dict[str, Examination] = {
        name: partial(_examine, examine, parsed) for name, examine in examinations.items()
    }
    claims[SIGNATURE] = partial(name_signer, content, None if key is None else ExpectedKey(key))
    return VerifiedSubject(kind.given, claims, (*_of_plugin(parsed), *kind.not_verified))


def _of_plugin(parsed: Callable[[], Proof]) -> tuple[str, ...]:
    """List what rests on the package of a plug-in, if the proof can be read."""
    try:
        card = parsed().card
    except LedgerCorrupt:
        return ()
    if card.plugin is None:
        return ()
    return (
        f"That the method {card.method}, a plug-in of {card.plugin}, lets a unit move nothing of what other units "
        "contribute.",
    )


def _examine(examine: Callable[[Any], str], parsed: Callable[[], Proof]) -> str:
    try:
        return examine(parsed())
    except (ArithmeticError, ValueError) as error:
        # Integers of thousands of digits overflow floats (the one) or cannot be printed (the other).
        raise LedgerCorrupt("A number is beyond what any job has.") from error


def _form(proof: Proof) -> str:
    return f"{proof.format}, of job {proof.job_id}."


def _parsed(model: type[Proof], content: bytes) -> Proof:
    try:
        return model.model_validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise LedgerCorrupt(f"At {place}: {first['msg']}.") from error
    except ArithmeticError as error:
        raise LedgerCorrupt("A number is beyond what any job has.") from error


def _charge_chain(proof: JobProof) -> str:
    """Check that every charge seals the one before it, and that the last one is the head."""
    check_charges(proof.job_id, proof.charges)
    if proof.charges[-1].hash != proof.head:
        raise LedgerCorrupt(f"The charges end with number {len(proof.charges)}, which is not the stated head.")
    return f"{len(proof.charges):,} charges, each sealed onto the one before it; the last is {proof.head}."


def _chain(proof: AccountProof | EarlierAccountProof) -> str:
    """Check that every entry seals the one before it, and that the last one is the head."""
    head, end = proof.account.head, follow(proof.entries)
    if (end.head_seq, end.head_hash) != (head.seq, head.hash):
        raise LedgerCorrupt(f"The entries end with number {end.head_seq}, which is not the stated head {head.seq}.")
    if {entry.account_id for entry in proof.entries} != {proof.account.id}:
        raise LedgerCorrupt("The entries are not all of the stated account.")
    return f"{head.seq:,} entries, each sealed onto the one before it; the last is {head.hash}."


def _totals(proof: AccountProof | EarlierAccountProof) -> str:
    """Check that limit, reserved and charged units are the sums of the entries."""
    account, balance = proof.account, follow(proof.entries)
    if balance.budget != budget_label(account.epsilon, account.delta):
        raise LedgerCorrupt("The first entry names another ε and δ than the account.")
    totals = {
        "limit": (account.limit_units, balance.limit),
        "reserved": (account.reserved_units, balance.total_reserved),
        "charged": (account.charged_units, balance.total_charged),
    }
    slack = sum(balance.reserved_slack.values()), sum(balance.charged_slack.values())
    if (account.reserved_slack, account.charged_slack) != slack:
        raise LedgerCorrupt("The account states another slack than its entries add up to.")
    for name, (stated, added) in totals.items():
        if stated != added:
            raise LedgerCorrupt(f"The account states {stated:,} units as {name}; its entries add up to {added:,}.")
    spent = f"{account.charged_units:,} units charged and {account.reserved_units:,} reserved"
    return f"{spent}, of a limit of {account.limit_units:,}."


def _card(proof: Proof) -> str:
    """Check that the card agrees with the plan and the charges."""
    privacy = proof.card.privacy
    charged = sum(paid.ledger_units for paid in proof.payments)
    if proof.card.product != proof.product:
        raise LedgerCorrupt("The card names another product or version than the proof.")
    if privacy.ledger_units != charged:
        raise LedgerCorrupt(f"The card states {privacy.ledger_units:,} units; {charged:,} were charged to the job.")
    slack = sum(paid.slack for paid in proof.payments)
    if privacy.slack != slack:
        raise LedgerCorrupt(f"The card states a slack of {privacy.slack:,}; {slack:,} was charged to the job.")
    made = first_releases(proof.plan, _steps_made(proof))
    if privacy.mechanisms != tuple(CardMechanism.from_release(release) for release in made):
        raise LedgerCorrupt("The mechanisms on the card are not the first ones of the plan.")
    if privacy.delta * privacy.num_units >= 1:
        raise LedgerCorrupt(f"δ = {privacy.delta} is not below 1/n for the {privacy.num_units:,} units of the card.")
    bounds = privacy.records_per_unit, privacy.classes_per_unit
    if not all(release.mechanism.covers_whole_units(*bounds) for release in made):
        raise LedgerCorrupt("The mechanisms are not priced for units of as many records and classes as the card says.")
    mu = Fraction(decimal_text(privacy.mu))
    if not mu**2 >= charged * _UNIT > (mu - _MU_ROUNDING) ** 2:
        raise LedgerCorrupt(f"The card states μ = {privacy.mu}, which is not the root of its units.")
    if privacy.tier != classify_epsilon(privacy.epsilon):
        raise LedgerCorrupt(f"An ε of {privacy.epsilon} is not in the tier {privacy.tier!r}.")
    individual = _individual(proof, [release.mechanism for release in made])
    return (
        f"{_steps_made(proof):,} releases by mechanisms of the plan; {charged:,} units; μ = {privacy.mu}.{individual}"
    )


def _individual(proof: Proof, made: Sequence[AnyMechanism]) -> str:
    """Check that mean and quantiles of individual ε follow from noisy counts that were planned and paid for."""
    figures = proof.card.privacy.individual
    histogram = next((mechanism for mechanism in made if isinstance(mechanism, IndividualHistogram)), None)
    if histogram is None or figures is None:
        if histogram is not None or figures is not None:
            raise LedgerCorrupt("The card has figures of individual ε without a release of them, or the other way.")
        return ""
    public = (histogram.num_units, histogram.delta, histogram.bins)
    if public != (proof.card.privacy.num_units, proof.card.privacy.delta, len(figures.noisy_counts)):
        raise LedgerCorrupt("The histogram of individual ε has other units, another δ or other bins than the card.")
    recomputed = IndividualFigures.from_counts(histogram, np.array(figures.noisy_counts, dtype=np.int64))
    if not recomputed.agrees_with(figures):
        raise LedgerCorrupt("Mean and quantiles of individual ε do not follow from their noisy counts.")
    return f" Mean individual ε = {figures.mean}, from {histogram.bins} noisy counts."


def _charges(proof: Proof) -> str:
    """Check that every release was paid, and every charge is at least Δ²/(σ² − 9) of μ² for each query of a unit."""
    for payment in proof.payments:
        mechanism = _planned(proof, payment.step).mechanism
        if payment.label != mechanism.label():
            raise LedgerCorrupt(f"{payment.name} pays for {payment.label}; the plan has {mechanism.label()} there.")
        if mechanism.block() is not None:
            continue
        cost = _gaussian(mechanism, _ZERO_OUT, 1).mu_squared
        if payment.ledger_units * _UNIT < cost:
            raise LedgerCorrupt(
                f"{payment.name} is of {payment.ledger_units:,} units for step {payment.step}; its mechanism costs "
                f"{float(cost / _UNIT):,.0f}."
            )
    for release in proof.plan:
        _check_block(proof, release)
        _check_slack(proof, release)
    _check_unpaid(proof)
    return f"{len(proof.payments):,} charges, none below what σ and Δ of its mechanism cost."


def _check_unpaid(proof: Proof) -> None:
    """Refuse unpaid steps, unless a crash had others paid twice and the rest does not pay for them."""
    paid = {payment.step for payment in proof.payments}
    unpaid = next((step for step in range(sum(release.count for release in proof.plan)) if step not in paid), None)
    if unpaid is None:
        return
    if unpaid < _steps_made(proof):
        raise LedgerCorrupt(f"Step {unpaid} was released without a charge.")
    release = _planned(proof, unpaid)
    block, draws = release.mechanism.block(), len(_payments(proof, release))
    left = sum(each.cost() for each in proof.plan) - sum(payment.ledger_units for payment in proof.payments)
    if draws < block.draws if block and draws else left >= release.mechanism.cost():
        raise LedgerCorrupt(f"Step {unpaid} was planned and could be paid for, yet no charge is of it.")


def _check_slack(proof: Proof, release: PlannedRelease) -> None:
    """Check that the first of the releases pays for what another branch of the plan would have cost."""
    slack = release.mechanism.slack_beside()
    payments = _payments(proof, release)
    if payments and payments[0].slack < slack:
        raise LedgerCorrupt(f"{payments[0].name} pays a slack of {payments[0].slack:,}; the plan has {slack:,} there.")


def _check_block(proof: Proof, release: PlannedRelease) -> None:
    """Check sampled draws: the price is that of q, σ, their number and slack; the first paid all; there are no more."""
    block = release.mechanism.block()
    payments = _payments(proof, release)
    if block is None or not payments:
        return
    block.recompute_price(release.mechanism.noise_multiplier())
    if isinstance(block, PoissonSampling):
        check_draws(release.mechanism, block)
    if block.num_units != proof.card.privacy.num_units:
        raise LedgerCorrupt(f"Batches are drawn from {block.num_units:,} units, not those of the card.")
    if not release.count <= block.draws or len(payments) > block.draws:
        raise LedgerCorrupt(f"{len(payments):,} sampled draws were booked; {block.draws:,} were paid for.")
    first = payments[0]
    if (first.ledger_units, first.slack) != block.charge():
        raise LedgerCorrupt(f"{first.name} opens sampled draws and does not pay for all of them.")
    again = next((payment for payment in payments[1:] if payment.ledger_units or payment.slack), None)
    if again is not None:
        raise LedgerCorrupt(f"{again.name} pays once more for sampled draws.")


def check_draws(mechanism: AnyMechanism, block: PoissonSampling) -> None:
    """Refuse a price of sampled draws below what they cost by dp_accounting alone, from σ, Δ, q and their number.

    Raises:
        LedgerCorrupt: The price is below.
    """
    squared = 1 / discrete_releases(mechanism.sensitivity_squared(_ZERO_OUT), mechanism.noise_stddev, 1).mu_squared
    draws = SampledReleases(squared, Fraction(block.numerator, 2**COIN_BITS), block.draws)
    price = block.charge(_ZERO_OUT)
    if draws.excess_over(price.ledger_units * _UNIT, Fraction(price.slack, 10**18)) > 0:
        raise LedgerCorrupt(
            f"By dp_accounting, {block.draws:,} draws cost more than their {price.ledger_units:,} units."
        )


def _job_epsilon(proof: Proof) -> str:
    privacy = proof.card.privacy
    delta = delta_beside(privacy.slack, privacy.delta)
    return _recomputed("the job", _releases(proof, _ZERO_OUT), delta, privacy.epsilon)


def _replace_one_epsilon(proof: Proof) -> str:
    # A charge whose release was lost counts there at the worst factor of any mechanism: more is no contradiction.
    privacy = proof.card.privacy
    releases, delta = _releases(proof, _REPLACE_ONE), delta_beside(privacy.slack, privacy.delta)
    return _recomputed("replacing a unit", releases, delta, privacy.epsilon_replace_one, exactly=False)


def _spenders(proof: AccountProof) -> str:
    """Check that the file says of each job of the journal, and of no other, who submitted it."""
    named = [spender.job_id for spender in proof.spenders]
    if named != list(dict.fromkeys(entry.job_id for entry in proof.entries if entry.job_id is not None)):
        raise LedgerCorrupt("The jobs whose submitters are named are not those of the entries.")
    actors = {spender.submitted_by.id for spender in proof.spenders if spender.submitted_by is not None}
    unknown = sum(spender.submitted_by is None for spender in proof.spenders)
    said = f"{len(named):,} jobs, submitted by {len(actors):,} keys or persons"
    return f"{said}; of {unknown:,} it was not recorded." if unknown else f"{said}."


def _lifetime_epsilon(proof: AccountProof | EarlierAccountProof) -> str:
    account = proof.account
    spent = [GaussianReleases(1 / (account.charged_units * _UNIT), 1)] if account.charged_units else []
    delta = delta_beside(account.charged_slack, account.delta)
    return _recomputed("the account", spent, delta, account.epsilon_spent)


def _recomputed(
    what: str, releases: Sequence[GaussianReleases], delta: float, stated: float, *, exactly: bool = True
) -> str:
    said = decimal_text(stated)
    if stated > LARGEST_EPSILON:
        return _confirmed_large(what, releases, delta, stated, exactly=exactly)
    composed = composed_epsilon(releases, delta)
    found = f"ε of {what} at δ = {decimal_text(delta)} is {round_up(composed)}"
    if composed > stated + RESOLUTION:
        raise LedgerCorrupt(f"{found}, above the stated {said}.")
    if exactly and composed < stated - _ROUNDING:
        raise LedgerCorrupt(f"{found}, not the stated {said}.")
    return f"{found} by dp_accounting; stated: {said}."


def _confirmed_large(
    what: str, releases: Sequence[GaussianReleases], delta: float, stated: float, *, exactly: bool
) -> str:
    """Confirm an ε beyond dp_accounting's reach: it promises little, but has to be true."""
    mu, said = math.sqrt(sum(each.mu_squared for each in releases)), decimal_text(stated)
    found = f"ε of {what} at δ = {decimal_text(delta)} is"
    if gaussian_delta(mu, stated + RESOLUTION) > delta:
        raise LedgerCorrupt(f"{found} above the stated {said}.")
    if exactly and gaussian_delta(mu, stated - _ROUNDING) < delta:
        raise LedgerCorrupt(f"{found} below the stated {said}.")
    return f"{found} not above the stated {said}, by the curve of one Gaussian release."


def _steps_made(proof: Proof) -> int:
    return sum(mechanism.count for mechanism in proof.card.privacy.mechanisms)


def _planned(proof: Proof, step: int | None) -> PlannedRelease:
    """Return the release of the plan that a step makes."""
    place = -1 if step is None else step
    for release in proof.plan:
        if 0 <= place < release.count:
            return release
        place -= release.count
    raise LedgerCorrupt(f"A charge pays for step {step}, which was not planned.")


def _payments(proof: Proof, release: PlannedRelease) -> list[Payment]:
    return [payment for payment in proof.payments if _planned(proof, payment.step) == release]


def _releases(proof: Proof, relation: NeighboringRelation) -> list[GaussianReleases]:
    """Return one release per charge, including those that a crash lost after payment: they may have been drawn."""
    paid = Counter(_planned(proof, payment.step) for payment in proof.payments)
    return [_gaussian(release.mechanism, relation, count) for release, count in paid.items()]


def _gaussian(mechanism: AnyMechanism, relation: NeighboringRelation, count: int) -> GaussianReleases:
    block = mechanism.block()
    if block is not None:
        # The Gaussian that its draws are a post-processing of, up to the slack (docs/mechanisms/poisson_sampling.md).
        return GaussianReleases(1 / (block.charge(relation).ledger_units * _UNIT), 1)
    queries = count * mechanism.queries_per_unit(relation)
    return discrete_releases(mechanism.sensitivity_squared(relation), mechanism.noise_stddev, queries)


class _Kind(NamedTuple):
    """The checks of one format."""

    given: str
    model: type[Proof]
    checks: Mapping[str, Callable[[Any], str]]
    not_verified: tuple[str, ...]


_FORM: Final = "form"
_OF_JOB: Final[dict[str, Callable[[Any], str]]] = {
    "card": _card,
    "charges": _charges,
    "job": _job_epsilon,
    "replace one": _replace_one_epsilon,
}
_OF_ACCOUNT: Final[dict[str, Callable[[Any], str]]] = {
    "chain": _chain,
    "totals": _totals,
    **_OF_JOB,
    "lifetime": _lifetime_epsilon,
}
_KINDS: Final = {
    PROOF_FORMAT: _Kind(
        "proof of one job, publishable", JobProof, {"chain": _charge_chain, **_OF_JOB}, NOT_VERIFIED_OF_JOB
    ),
    ACCOUNT_FORMAT: _Kind(
        "journal of an account, for the owner",
        AccountProof,
        {**_OF_ACCOUNT, "spenders": _spenders},
        (*NOT_VERIFIED_OF_ACCOUNT, NOT_VERIFIED_OF_SPENDERS),
    ),
    EARLIER_ACCOUNT_FORMAT: _Kind(
        "journal of an account, for the owner", EarlierAccountProof, _OF_ACCOUNT, NOT_VERIFIED_OF_ACCOUNT
    ),
}
