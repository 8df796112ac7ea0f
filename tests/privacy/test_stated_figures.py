"""ε, δ and μ as they are stated: right against exact arithmetic, and with one spelling wherever somebody reads them."""

import ast
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datalens_service.api.pages.views.rendering import _environment
from datalens_service.base.errors import InvalidDelta
from datalens_service.cli.output import format_facts, format_table
from datalens_service.integrations.mlflow_log import flatten
from datalens_service.privacy.accounting import (
    Charge,
    check_delta,
    default_delta,
    limit_units,
    remaining_epsilon,
    round_down,
    round_up,
    stated_epsilon,
    stated_mu,
)
from datalens_service.report.html import read_template
from datalens_service.services.pricing import JobPrivacy
from datalens_service.spec import PlanSummary
from repository import ROOT

HUNDREDTHS: Final = [f"{number / 100:g}" for number in range(1, 1201)]
DELTAS: Final = (1e-5, 5.54e-6, 1e-9)
STEP: Final = Fraction(1, 10_000)
UNITS = st.integers(1, 10**17)


def exact_delta(ledger_units: int, epsilon: Fraction) -> Any:
    """δ(ε) of the Gaussian trade-off curve, to 40 digits (Balle & Wang 2018, Theorem 8)."""
    with mpmath.workdps(60):
        mu, at = mpmath.sqrt(mpmath.mpf(ledger_units) / 10**15), mpmath.mpf(epsilon.numerator) / epsilon.denominator
        return mpmath.ncdf(mu / 2 - at / mu) - mpmath.exp(at) * mpmath.ncdf(-mu / 2 - at / mu)


@given(UNITS, st.sampled_from(DELTAS))
def test_spent_epsilon_is_the_least_of_four_digits_that_is_not_below_the_true_one(
    ledger_units: int, delta: float
) -> None:
    stated = Fraction(str(stated_epsilon(Charge(ledger_units), delta)))
    assert stated % STEP == 0
    assert exact_delta(ledger_units, stated) <= delta
    # The accountant covers the rounding of its own floats by parts in ten thousand million.
    assert stated < STEP or exact_delta(ledger_units, stated - STEP) > delta * (1 - 1e-9)


@given(UNITS, st.sampled_from(DELTAS))
def test_remaining_epsilon_is_never_more_than_the_ledger_lets_pass(ledger_units: int, delta: float) -> None:
    remaining = remaining_epsilon(ledger_units, delta)
    assert Fraction(str(remaining)) % STEP == 0
    assert remaining == 0 or limit_units(remaining, delta) <= ledger_units
    assert limit_units(round_up(remaining + 1e-4), delta) > ledger_units


@given(st.integers(0, 10**20))
def test_mu_is_the_least_of_six_digits_whose_square_is_not_below_the_units(ledger_units: int) -> None:
    mu, step = Fraction(str(stated_mu(ledger_units))), Fraction(1, 10**6)
    assert mu**2 >= Fraction(ledger_units, 10**15)
    assert ledger_units == 0 or (mu - step) ** 2 < Fraction(ledger_units, 10**15)


@given(st.floats(0, 1e6), st.integers(1, 8))
def test_a_number_that_was_rounded_is_not_rounded_again(number: float, digits: int) -> None:
    above, below = round_up(number, digits), round_down(number, digits)
    assert below <= number <= above
    assert (round_up(above, digits), round_down(above, digits)) == (above, above)
    assert (round_up(below, digits), round_down(below, digits)) == (below, below)


@pytest.mark.parametrize("delta", DELTAS)
def test_a_budget_of_hundredths_comes_back_as_it_was_typed(delta: float) -> None:
    """580 of these 1,199 were shown one hundredth above, or below where they remained."""
    for typed in HUNDREDTHS:
        ledger_units = limit_units(float(typed), delta)
        assert str(stated_epsilon(Charge(ledger_units), delta)) == typed
        assert str(remaining_epsilon(ledger_units, delta)) == typed


@pytest.mark.parametrize("ledger_units", [1, 2, 3, 6, 7, 13, 60_000, 10**6, 3 * 10**9])
def test_the_largest_delta_that_is_named_is_admissible(ledger_units: int) -> None:
    with pytest.raises(InvalidDelta) as refused:
        check_delta(1.0, ledger_units)
    largest, default = re.findall(r"= (\S+) for .* get (\S+)\.$", refused.value.detail)[0]
    assert Fraction(largest) <= Fraction(1, ledger_units)
    assert Fraction(default) == Fraction(str(default_delta(ledger_units)))


PAGES: Final = _environment().from_string("{{ value }} ε {{ value }}").render
REPORTS: Final = read_template("report").environment.from_string("{{ value }} ε {{ value }}").render


def spellings(number: float) -> Iterator[str]:
    """The number on each surface, from a value of a model and from one that was read from JSON."""
    cost = PlanSummary(
        images=0, steps=1, mu=number, epsilon_at_plan=number, epsilon_replace_one=number, delta=1e-5,
        epsilon_limit=number, ledger_units=1, releases=[],
    )  # fmt: skip
    privacy = JobPrivacy(epsilon_spent=number, epsilon_limit=number, delta=1e-5, mu=number)
    for value in (cost.epsilon_at_plan, privacy.epsilon_limit, json.loads(privacy.model_dump_json())["epsilon_spent"]):
        yield from PAGES(value=value).split(" ε ")
        yield from REPORTS(value=value).split(" ε ")
        yield format_facts({"ε": value}).plain.removeprefix("ε  ")
        yield format_table(("ε",), [[value]]).plain.removeprefix("ε\n")
        yield flatten({"epsilon": value})["epsilon"]
    yield f"{cost.epsilon_at_plan}"
    yield f"{privacy.epsilon_spent} of {privacy.epsilon_limit}".partition(" of ")[2]


def test_hundredths_have_one_spelling_on_every_surface() -> None:
    for typed in HUNDREDTHS:
        assert set(spellings(float(typed))) == {typed}


@pytest.mark.parametrize("typed", ["1e-5", "5.54e-6", "0.0001", "0.00123", "0.12345", "99.9999", "100"])
def test_other_numbers_have_one_spelling_on_every_surface(typed: str) -> None:
    assert set(spellings(float(typed))) == {typed}


_EXACT: Final = (
    # The first entry of a journal binds these texts, in old journals too.
    "datalens_service/proof/hash_chain.py: {epsilon!r}",
    "datalens_service/proof/hash_chain.py: {delta!r}",
)
# Whole words of names: `mu` and `delta` also stand for other things.
_PARAMETERS: Final = re.compile(r"(^|[._\W])(epsilon\w*|\w*_epsilon|delta|mu)($|\W)|[εδμ]")
_ROUNDING: Final = re.compile(r"(\||%\w? ?\()\s*(round|format)\b|\.format\(|%\.?\d*[gfe]\b")


def test_no_source_rounds_a_privacy_parameter_where_it_is_shown() -> None:
    """A format after a colon in an f-string, and `round`, of anything called ε, δ or μ."""
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for folder in ("api", "datalens_service", "workers")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if _rounds(node)
    ]
    assert found == list(_EXACT)


def _rounds(node: ast.AST) -> bool:
    if isinstance(node, ast.FormattedValue):
        formatted = node.format_spec is not None or node.conversion == ord("r")
        return formatted and _names_parameter(node.value) and not _is_padding(node.format_spec)
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "round"
    return called and any(_names_parameter(argument) for argument in node.args)


def _names_parameter(node: ast.expr) -> bool:
    return bool(_PARAMETERS.search(ast.unparse(node)))


def _is_padding(spec: ast.expr | None) -> bool:
    return spec is not None and bool(re.fullmatch(r"f'[<>^]?\d+'", ast.unparse(spec)))


def test_no_template_and_no_script_rounds_a_privacy_parameter() -> None:
    templates = [*ROOT.glob("api/pages/templates/**/*.j2"), *ROOT.glob("datalens_service/**/*.j2")]
    scripts = [*ROOT.glob("api/pages/static/*.js")]
    assert len(templates) > 30
    assert len(scripts) > 10
    expressions = [
        (path.name, expression)
        for path in templates
        for expression in re.findall(r"\{\{.*?\}\}", path.read_text(encoding="utf-8"))
    ]
    rounded = [one for one in expressions if _ROUNDING.search(one[1]) and _PARAMETERS.search(one[1])]
    assert rounded == []
    numbers = re.compile(r"toFixed|toPrecision|NumberFormat|toLocaleString\(\)")
    # Of a size in bytes.
    assert [path.name for path in scripts if numbers.search(path.read_text(encoding="utf-8"))] == ["upload.js"]
