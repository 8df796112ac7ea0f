"""Does a bundle hold together? Checked from the file alone, one line per claim.

ε is recomputed by dp_accounting from the parameters of the mechanisms (privacy/recomputation.py), not by the
accountant that charged them. A bundle may come from anybody: nothing in it is trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from datalens_service.errors import InvalidInput, LedgerCorrupt
from datalens_service.evaluation.card import CardMechanism
from datalens_service.evaluation.statement import Release, first_releases, tier_of
from datalens_service.mechanisms import AnyMechanism
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.recomputation import (
    LARGEST_EPSILON,
    RESOLUTION,
    GaussianReleases,
    composed_epsilon,
    discrete_releases,
)
from datalens_service.store.bundle import Bundle
from datalens_service.store.chain import Entry, EntryKind, budget_label, follow

Status = Literal["holds", "contradiction", "not checked"]
_ZERO_OUT, _REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE

_UNIT: Final = Fraction(1, 10**15)
_SPENDS: Final = (EntryKind.CHARGE, EntryKind.RECOVERED)
# A stated ε is rounded up to four digits and comes from charges rounded up to whole units.
_ROUNDING: Final = 1e-3
_MU_ROUNDING: Final = Fraction(1, 10**6) + Fraction(1, 10**12)

NOT_VERIFIED: Final = (
    "That the program ran as the bundle says: these releases, with exactly this noise, and nothing else.",
    "That the sensitivity of each mechanism is what its parameters say: docs/mechanisms has the proofs.",
    "That no unit was in the input twice, and that the number of units is the declared one.",
    "That the same records have no other account, in another installation or another folder.",
    "That the chain was not rewritten as a whole: compare its head with one that you noted earlier.",
    "That other jobs of the account paid what their mechanisms cost: their own bundles say it.",
    "That the files beside this bundle came from this job.",
)


class Line(BaseModel):
    """One claim of a bundle and what came of it."""

    model_config = ConfigDict(frozen=True)

    check: str
    status: Status
    finding: str


class Verdict(BaseModel):
    """What was verified, line by line, and what cannot be."""

    model_config = ConfigDict(frozen=True)

    holds: bool = Field(description="Whether every line holds.")
    contradiction: str | None = Field(description="The first one; nothing behind it was checked.")
    lines: tuple[Line, ...]
    not_verified: tuple[str, ...] = NOT_VERIFIED

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Verdict:
        """The verdict on these lines; checks that were not reached are added to them."""
        unreached = list(_CHECKS)[len(lines) - 1 :]
        last = lines[-1]
        holds = last.status == "holds"
        return cls(
            holds=holds,
            contradiction=None if holds else f"{last.check}: {last.finding}",
            lines=(*lines, *(Line(check=check, status="not checked", finding="") for check in unreached)),
        )


def verify(content: bytes) -> Verdict:
    """Check a bundle from the outside in, up to the first contradiction.

    Args:
        content: Of the file.

    Raises:
        InvalidInput: It is not JSON.
        WorkerUnavailable: dp_accounting is not installed.
    """
    try:
        bundle = _parsed(content)
    except LedgerCorrupt as error:
        return Verdict.of([Line(check=_FORM, status="contradiction", finding=error.detail)])
    lines = [Line(check=_FORM, status="holds", finding=f"{bundle.format}, of job {bundle.job_id}.")]
    for check, examine in _CHECKS.items():
        lines.append(_line(check, examine, bundle))
        if lines[-1].status != "holds":
            break
    return Verdict.of(lines)


def _parsed(content: bytes) -> Bundle:
    try:
        return Bundle.model_validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise InvalidInput("The file is not JSON: name the privacy.json of a job.") from error
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise LedgerCorrupt(f"At {place}: {first['msg']}.") from error
    except ArithmeticError as error:
        raise LedgerCorrupt("A number is beyond what any job has.") from error


def _line(check: str, examine: Callable[[Bundle], str], bundle: Bundle) -> Line:
    try:
        return Line(check=check, status="holds", finding=examine(bundle))
    except (LedgerCorrupt, InvalidInput) as error:
        return Line(check=check, status="contradiction", finding=error.detail)
    except (ArithmeticError, ValueError):
        # Integers of thousands of digits overflow floats (the one) or cannot be printed (the other).
        return Line(check=check, status="contradiction", finding="A number is beyond what any job has.")


def _chain(bundle: Bundle) -> str:
    """Every entry seals the one before it, and the last one is the head."""
    head, end = bundle.account.head, follow(bundle.entries)
    if (end.head_seq, end.head_hash) != (head.seq, head.hash):
        raise LedgerCorrupt(f"The entries end with number {end.head_seq}, which is not the stated head {head.seq}.")
    if {entry.account_id for entry in bundle.entries} != {bundle.account.id}:
        raise LedgerCorrupt("The entries are not all of the stated account.")
    return f"{head.seq:,} entries, each sealed onto the one before it; the last is {head.hash}."


def _totals(bundle: Bundle) -> str:
    """Limit, reserved and charged units are what the entries add up to."""
    account, balance = bundle.account, follow(bundle.entries)
    if balance.budget != budget_label(account.epsilon, account.delta):
        raise LedgerCorrupt("The first entry names another ε and δ than the account.")
    totals = {
        "limit": (account.limit_units, balance.limit),
        "reserved": (account.reserved_units, balance.total_reserved),
        "charged": (account.charged_units, balance.total_charged),
    }
    for name, (stated, found) in totals.items():
        if stated != found:
            raise LedgerCorrupt(f"The account states {stated:,} units as {name}; its entries add up to {found:,}.")
    spent = f"{account.charged_units:,} units charged and {account.reserved_units:,} reserved"
    return f"{spent}, of a limit of {account.limit_units:,}."


def _card(bundle: Bundle) -> str:
    """The card says what the plan and the charges say."""
    privacy = bundle.card.privacy
    charged = sum(entry.units for entry in _spends(bundle))
    if bundle.card.product != bundle.product:
        raise LedgerCorrupt("The card names another product or version than the bundle.")
    if privacy.units != charged:
        raise LedgerCorrupt(f"The card states {privacy.units:,} units; {charged:,} were charged to the job.")
    made = first_releases(bundle.plan, _steps_made(bundle))
    if privacy.mechanisms != tuple(CardMechanism.of(release) for release in made):
        raise LedgerCorrupt("The mechanisms on the card are not the first ones of the plan.")
    bounds = privacy.records_per_unit, privacy.classes_per_unit
    if not all(release.mechanism.covers_whole_units(*bounds) for release in made):
        raise LedgerCorrupt("The mechanisms are not priced for units of as many records and classes as the card says.")
    mu_squared = Fraction(privacy.mu) ** 2
    if not mu_squared >= charged * _UNIT > (Fraction(privacy.mu) - _MU_ROUNDING) ** 2:
        raise LedgerCorrupt(f"The card states μ = {privacy.mu:g}, which is not the root of its units.")
    if privacy.tier != tier_of(privacy.epsilon):
        raise LedgerCorrupt(f"An ε of {privacy.epsilon:g} is not in the tier {privacy.tier!r}.")
    return f"{_steps_made(bundle):,} releases by mechanisms of the plan; {charged:,} units; μ = {privacy.mu:g}."


def _charges(bundle: Bundle) -> str:
    """Every release was paid, and every charge is at least Δ²/(σ² − 9) of μ² for each query of a unit."""
    spends = _spends(bundle)
    for entry in spends:
        mechanism = _planned(bundle, entry).mechanism
        if entry.label != mechanism.label():
            raise LedgerCorrupt(f"Entry {entry.seq} pays for {entry.label}; the plan has {mechanism.label()} there.")
        cost = _gaussian(mechanism, _ZERO_OUT, 1).mu_squared
        if entry.units * _UNIT < cost:
            raise LedgerCorrupt(
                f"Entry {entry.seq} charges {entry.units:,} units for step {entry.step}; its mechanism costs "
                f"{float(cost / _UNIT):,.0f}."
            )
    paid = {entry.step for entry in spends}
    unpaid = next((step for step in range(_steps_made(bundle)) if step not in paid), None)
    if unpaid is not None:
        raise LedgerCorrupt(f"Step {unpaid} was released without a charge.")
    return f"{len(spends):,} charges, none below what σ and Δ of its mechanism cost."


def _job_epsilon(bundle: Bundle) -> str:
    privacy = bundle.card.privacy
    return _recomputed("the job", _releases(bundle, _ZERO_OUT), privacy.delta, privacy.epsilon)


def _replace_one_epsilon(bundle: Bundle) -> str:
    # A charge whose release was lost counts there at the worst factor of any mechanism: more is no contradiction.
    privacy = bundle.card.privacy
    releases = _releases(bundle, _REPLACE_ONE)
    return _recomputed("replacing a unit", releases, privacy.delta, privacy.epsilon_replace_one, exactly=False)


def _lifetime_epsilon(bundle: Bundle) -> str:
    account = bundle.account
    spent = [GaussianReleases(1 / (account.charged_units * _UNIT), 1)] if account.charged_units else []
    return _recomputed("the account", spent, account.delta, account.epsilon_spent)


def _recomputed(
    what: str, releases: Sequence[GaussianReleases], delta: float, stated: float, *, exactly: bool = True
) -> str:
    if stated > LARGEST_EPSILON:
        return f"ε of {what} is stated as {stated:g}, which promises nothing; not recomputed."
    found = composed_epsilon(releases, delta)
    if found > stated + RESOLUTION:
        raise LedgerCorrupt(f"ε of {what} at δ = {delta:g} is {found:.5f}, above the stated {stated:g}.")
    if exactly and found < stated - _ROUNDING:
        raise LedgerCorrupt(f"ε of {what} at δ = {delta:g} is {found:.5f}, not the stated {stated:g}.")
    return f"ε of {what} at δ = {delta:g} is {found:.5f} by dp_accounting; stated: {stated:g}."


def _spends(bundle: Bundle) -> list[Entry]:
    return [entry for entry in bundle.entries if entry.job_id == bundle.job_id and entry.kind in _SPENDS]


def _steps_made(bundle: Bundle) -> int:
    return sum(mechanism.count for mechanism in bundle.card.privacy.mechanisms)


def _planned(bundle: Bundle, entry: Entry) -> Release:
    """The release of the plan that a charge is for."""
    step = -1 if entry.step is None else entry.step
    for release in bundle.plan:
        if 0 <= step < release.count:
            return release
        step -= release.count
    raise LedgerCorrupt(f"Entry {entry.seq} pays for a step that was not planned.")


def _releases(bundle: Bundle, relation: NeighboringRelation) -> list[GaussianReleases]:
    """One release per charge: also those that a crash lost after they were paid, because they may have been drawn."""
    paid = Counter(_planned(bundle, entry) for entry in _spends(bundle))
    return [_gaussian(release.mechanism, relation, count) for release, count in paid.items()]


def _gaussian(mechanism: AnyMechanism, relation: NeighboringRelation, count: int) -> GaussianReleases:
    queries = count * mechanism.queries_per_unit(relation)
    return discrete_releases(mechanism.sensitivity_squared(relation), mechanism.noise_stddev, queries)


_FORM: Final = "form"
_CHECKS: Final[dict[str, Callable[[Bundle], str]]] = {
    "chain": _chain,
    "totals": _totals,
    "card": _card,
    "charges": _charges,
    "job": _job_epsilon,
    "replace one": _replace_one_epsilon,
    "lifetime": _lifetime_epsilon,
}
